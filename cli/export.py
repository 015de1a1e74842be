"""`costada export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.export.export_files import FileFormat, check_format, lines_of, write_table
from costada.reports.export.export_tables import TableName, table_of
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode

To = Annotated[
    FileFormat, typer.Option("--to", metavar="|".join(FileFormat), help="Format of the table.")
]
Which = Annotated[
    TableName,
    typer.Option(
        "--table",
        metavar="|".join(TableName),
        help="One row per iteration, model request or candidate.",
    ),
]
Programs = Annotated[
    bool, typer.Option("--programs", help="Add the program of each candidate as a column.")
]
Out = Annotated[
    Path | None,
    options.path_option(
        "File of the table, replaced if it exists.",
        metavar="FILE",
        show_default="standard output; parquet needs a file",
    ),
]


def export(
    run: options.Run,
    to: To,
    table: Which = TableName.STEPS,
    programs: Programs = False,
    out: Out = None,
) -> None:
    """Write a run as a table, also while it is running. Prompts and responses are left out."""
    from costada.runs.loaded_run import opened

    with refusing(ExitCode.BAD_INPUT):
        check_format(to)
        if programs and table is not TableName.CANDIDATES:
            raise ValueError(f"--programs: got --table {table}, expected --table candidates")
        if to is FileFormat.PARQUET and out is None:
            raise ValueError("--out: expected a file for --to parquet")
        if out:
            run.check_output(out)
        with opened(run) as (history, run_id):
            found = table_of(history, table, run_id, has_programs=programs)
            if out:
                if not out.parent.is_dir():
                    raise ValueError(f"--out: got {out}, expected a file in a folder that exists")
                write_table(found, to, out)
                show(out)
                return
            for line in lines_of(found, to):
                if sys.stdout.isatty():
                    show(line.removesuffix("\n"))
                else:
                    sys.stdout.buffer.write(line.encode())
            sys.stdout.flush()
