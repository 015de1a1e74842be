"""`costada report`: a run as one page; spends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.errors import refusing
from costada.reports.terminal import show
from costada.runs.exit_codes import ExitCode
from costada.runs.folder import RunFolder

Out = Annotated[
    Path | None,
    typer.Option(
        parser=options.named_path,
        metavar="FILE",
        help="Where the page goes.",
        show_default="DIR/report.html",
    ),
]


def report(folder: options.Folder, out: Out = None) -> None:
    """Write a run as one HTML page that needs no network; also while the run goes on."""
    from costada.reports.page.page import write_page

    with refusing(ExitCode.BAD_INPUT):
        show(write_page(RunFolder(folder), out))
