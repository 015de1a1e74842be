"""`costada report`: a run as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode
from costada.runs.stored_run import StoredRun

Out = Annotated[
    Path | None,
    options.path_option(
        "File of the page or picture.",
        metavar="FILE",
        show_default="report.html or report.png in the folder of the run",
    ),
]
Png = Annotated[
    bool, typer.Option("--png", help="Draw a picture of objective and dollars, not the page.")
]


def report(run: options.Run, out: Out = None, png: Png = False) -> None:
    """Write a run as one self-contained HTML page. Works while the run is running."""
    with refusing(ExitCode.BAD_INPUT):
        if out and (out.suffix == ".png") is not png:
            expected = "a name that ends in .png with --png, and another one without it"
            raise ValueError(f"--out: got {out}, expected {expected}")
        if out and out.resolve() != run.report.resolve():
            run.check_output(out)
            if out.is_file() and out.suffix not in (".html", ".htm", ".png"):
                raise ValueError(f"--out: {out} is not a page, expected a name that ends in .html")
        if out is None and isinstance(run, StoredRun):
            run.take_folder()
        if png:
            from costada.reports.picture import report_of, write_report

            path = out or run.path / "report.png"
            write_report(report_of(run), path)
            show(path)
            return
        from costada.reports.page.page import write_page

        show(write_page(run, out))
