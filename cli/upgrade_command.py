"""The command that upgrades what an earlier version has written."""

from __future__ import annotations

from typing import Annotated

import typer

from costada.cli.command_errors import refusing
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode

Place = Annotated[
    str,
    typer.Argument(
        metavar="PLACE",
        help="A run folder, the file of a run or a purse, or a database as"
        " postgresql://USER@HOST/DATABASE.",
    ),
]


def upgrade(place: Place) -> None:
    """Upgrade runs and purses of an earlier version. Keeps a backup beside each file."""
    with refusing(ExitCode.BAD_INPUT):
        from costada.runs.upgrade import upgrade as upgraded

        for line in upgraded(place):
            show(line)
