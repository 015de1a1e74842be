"""`costada compare`: methods side by side, from runs that are done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costada.cli import options
from costada.cli.errors import refusing
from costada.runs.exit_codes import ExitCode

if TYPE_CHECKING:
    from costada.experiments.comparison.report import Report
    from costada.experiments.comparison.tables import Table
    from costada.reports.terminal import TerminalTable


SPARE_COLUMNS = ("model", "budget", "runs", "AvgCost", "AUC", "best", "objective")
"""What a narrow terminal does without, the first of them first."""

Directory = Annotated[
    Path,
    typer.Argument(
        parser=options.named_path,
        metavar="DIR",
        help="A folder with finished runs below it, at any depth.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        parser=options.named_path,
        metavar="DIR",
        help="Where the files go.",
        show_default="the folder of the runs",
    ),
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
    from costada.experiments.comparison.report import write_comparison

    with refusing(ExitCode.BAD_INPUT):
        report = write_comparison(
            directory, out or directory, baseline=baseline, with_published=published
        )
    _print(report)


def _print(report: Report) -> None:
    from costada.experiments.comparison.tables import mix_lines, overview
    from costada.reports.terminal import table_console

    console = table_console()
    _table(overview(report.comparison)).print(console)
    for line in mix_lines(report.comparison.mixes):
        console.print(line, markup=False, soft_wrap=True)
    for each in report.left_out:
        console.print(f"left out {each.place}: {each.reason}", markup=False, soft_wrap=True)
    for file in report.files:
        console.print(str(file), markup=False, soft_wrap=True)


def _table(table: Table) -> TerminalTable:
    from costada.reports.terminal import TerminalTable

    names = table.header[: table.num_names]
    return TerminalTable(table.header, table.rows, names, optional=SPARE_COLUMNS)
