"""`costada compare`: methods side by side, from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.runs.interruption import ExitCode
from costada.store.address import is_database

OPTIONAL_COLUMNS = ("model", "budget", "runs", "AvgCost", "AUC", "best", "objective")
"""Columns that a narrow terminal omits, in this order."""

Directory = Annotated[
    str,
    typer.Argument(
        parser=options.named_place,
        metavar="DIR",
        help="A folder with finished runs below it, at any depth, or a Postgres database: DSN, or"
        " DSN#SWEEP for the runs of one sweep.",
    ),
]
Out = Annotated[
    Path | None,
    options.path_option(
        "Folder for the tables and the page.", show_default="the folder of the runs; comparison"
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help="The method that differences refer to.",
        show_default="costada, or else the first",
    ),
]
Published = Annotated[
    bool, typer.Option("--published", help="Show the paper's tables beside these.")
]


def compare(
    directory: Directory, out: Out = None, baseline: Baseline = None, published: Published = False
) -> None:
    """Compare methods at equal dollars: tables and a page with figures, from finished runs."""
    from costada.experiments.comparison.comparison_report import write_comparison
    from costada.experiments.comparison.tables import missing_lines, mix_lines, overview
    from costada.reports.terminal import TerminalTable, table_console

    with refusing(ExitCode.BAD_INPUT):
        folder = None if is_database(directory) else Path(directory)
        report = write_comparison(
            folder or directory,
            out or folder or Path("comparison"),
            baseline=baseline,
            with_published=published,
        )
    console = table_console()
    table = overview(report.comparison)
    names = table.header[: table.num_names]
    TerminalTable(table.header, table.rows, names, optional=OPTIONAL_COLUMNS).print(console)
    lines = [*missing_lines(report.comparison), *mix_lines(report.comparison.mixes)]
    lines += [f"left out {each.place}: {each.reason}" for each in report.left_out]
    for line in (*lines, *map(str, report.files)):
        console.print(line, markup=False, soft_wrap=True)
