"""`costada compare`: methods side by side, from runs that are done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costada.runs.exit_codes import ExitCode
from costada.runs.refusal import refusing

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from costada.runs.comparison.columns import Table
    from costada.runs.comparison.report import Report

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="A folder with finished runs below it, at any depth.")
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where the files go.", show_default="the folder of the runs"),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help="The method that differences refer to.",
        show_default="costada, or the first there is",
    ),
]
Published = Annotated[
    bool, typer.Option("--published", help="Show the paper's numbers beside these.")
]


def compare(
    directory: Directory,
    out: Out = None,
    baseline: Baseline = None,
    published: Published = False,
) -> None:
    """Compare methods at equal dollars: tables and a page with figures, from finished runs."""
    from costada.runs.comparison.report import write_comparison

    with refusing(ExitCode.BAD_INPUT):
        report = write_comparison(
            directory, out or directory, baseline=baseline, with_published=published
        )
    _print(report)


def _print(report: Report) -> None:
    from costada.runs.comparison.tables import overview
    from costada.runs.trace import table_console

    console = table_console()
    console.print(_rich_table(overview(report.comparison)))
    for each in report.left_out:
        console.print(f"left out {each.place}: {each.reason}", markup=False, soft_wrap=True)
    for file in report.files:
        console.print(str(file), markup=False, soft_wrap=True)


def _rich_table(table: Table) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, heading in enumerate(table.header):
        shown.add_column(heading, justify="left" if column < table.num_names else "right")
    for cells in table.rows:
        shown.add_row(*map(Text, cells))
    return shown
