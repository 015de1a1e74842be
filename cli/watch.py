"""`costada watch`: live pages of a run, or of all runs below a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.formats import counted
from costada.reports.terminal import show
from costada.runs.folder import RunFolder
from costada.runs.interruption import ExitCode
from costada.store.address import is_database

if TYPE_CHECKING:
    from costada.reports.index_page.run_index import RunIndex

Watched = Annotated[
    str,
    typer.Argument(
        parser=options.named_place,
        metavar="DIR",
        help="The folder of a run, or a folder with runs below it, which need not exist yet; or a"
        " Postgres database: DSN, DSN#RUN or DSN#SWEEP.",
    ),
]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=options.MAX_PORT, help="Port on 127.0.0.1.", show_default="any free one"
    ),
]


def watch(place: Watched, port: Port = 0) -> None:
    """Serve a run as a live page, or several runs as an index, until Ctrl-C.

    Only this machine can connect. Where no run has begun, the page waits for it.
    """
    from costada.reports.page_server import PageServer

    def announce(kind: str) -> None:
        show(f"{shown}: {'the run has' if kind == 'run' else 'a run has'} begun")

    with refusing(ExitCode.BAD_INPUT):
        index = _index(place)
        shown = index.title if is_database(place) else place
        server = PageServer(index, port, announce)
    with server:
        kind, what = index.kind, shown
        if kind == "runs":
            what = f"{counted(len(index.names), 'run')} below {shown}"
        show(f"{server.address} shows {what}; stop with Ctrl-C")
        if kind == "waiting":
            show(f"{shown}: no run yet; the page shows it as soon as one begins")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            show()


def _index(place: str) -> RunIndex:
    """The runs at a place; those of a sweep in Postgres are where its folder says."""
    from costada.experiments.sweep.place import SweepPlace
    from costada.reports.index_page.run_index import RunIndex
    from costada.runs.stored_index import StoredIndex

    if is_database(place):
        return StoredIndex(place)
    folder = options.named_path(place)
    if folder.is_dir() and (store := SweepPlace.load(folder).followed):
        return StoredIndex(store, folder.absolute())
    return RunIndex(folder, RunFolder)
