"""`costada watch`: live pages of a run, or of all runs below a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.errors import refusing
from costada.reports.formats import counted
from costada.reports.terminal import show
from costada.runs.folder import RunFolder
from costada.runs.interruption import ExitCode

Watched = Annotated[
    Path,
    typer.Argument(
        parser=options.named_path,
        metavar="DIR",
        help="The folder of a run, or a folder with runs below it. It need not exist yet.",
    ),
]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=options.LARGEST_PORT, help="Port on 127.0.0.1.", show_default="any free one"
    ),
]


def watch(folder: Watched, port: Port = 0) -> None:
    """Serve a run as a live page, or several runs as an index, until Ctrl-C.

    Only this machine can connect. Where no run has begun, the page waits for it.
    """
    from costada.reports.page.server import PageServer

    def announce(kind: str) -> None:
        show(f"{folder}: {'the run has' if kind == 'run' else 'a run has'} begun")

    with refusing(ExitCode.BAD_INPUT):
        server = PageServer(folder, RunFolder, port, announce)
    with server:
        kind, what = server.index.kind, str(folder)
        if kind == "runs":
            what = f"{counted(len(server.index.names), 'run')} below {folder}"
        show(f"{server.address} shows {what}; stop with Ctrl-C")
        if kind == "waiting":
            show(f"{folder}: no run yet; the page shows it as soon as one begins")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            show()
