"""`costada runs`: the runs of a Postgres database."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated, Any
from urllib.parse import unquote

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.formats import objective_text
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode

COLUMNS = ("run", "problem", "method", "best", "spent", "budget", "state", "holder")
NUM_NAMES = 3
OPTIONAL = ("budget", "method", "holder")
"""Columns that a narrow terminal omits, in this order."""

Database = Annotated[
    str,
    typer.Argument(metavar="DSN", help="Address of the database, postgresql://USER@HOST/DATABASE."),
]


def runs(database: Database, as_json: options.AsJson = False) -> None:
    """List the runs in a Postgres database: results, dollars and the processes that hold them."""
    from costada.reports.terminal import TerminalTable, table_console
    from costada.runs.stored_index import StoredIndex
    from costada.store.address import check_database

    with refusing(ExitCode.BAD_INPUT):
        check_database(database)
        with closing(StoredIndex(database)) as index:
            answer: Any = index.rows()
            while answer["unread"]:
                answer = index.rows()
            found: list[dict[str, Any]] = answer["rows"]
            rows = [_row(each, index.holder(unquote(each["id"]))) for each in found]
    if as_json:
        show(json.dumps(rows, indent=2, allow_nan=False))
        return
    table = [
        [
            *(str(row[name] or "") for name in ("run", "problem", "method")),
            objective_text(row["best"]),
            *(f"${row[name]:.4f}" if row[name] is not None else "" for name in ("spent", "budget")),
            str(row["state"]),
            str(row["holder"]),
        ]
        for row in rows
    ]
    TerminalTable(COLUMNS, table, COLUMNS[:NUM_NAMES], optional=OPTIONAL).print(table_console())


def _row(row: dict[str, Any], holder: str) -> dict[str, Any]:
    known = {name: row.get(name) for name in COLUMNS}
    return {**known, "run": unquote(row["id"]), "holder": holder, "words": row.get("words")}
