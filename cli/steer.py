"""`costada steer` and `costada submit`: a user's idea or program in a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.terminal import show
from costada.runs.folder import RunFolder
from costada.runs.interruption import ExitCode

if TYPE_CHECKING:
    from costada.runs.steering import Added

Idea = Annotated[str, typer.Argument(metavar="IDEA", help="What to try, in a sentence or two.")]
ProgramPath = Annotated[
    Path,
    typer.Argument(
        parser=options.named_path,
        metavar="FILE",
        help="The program; a folder where the programs of the run have several files.",
    ),
]


def steer(run: options.Run, idea: Idea) -> None:
    """Let the next step of a run try an idea. Works while the run is running."""
    from costada.runs.steering import add_idea

    _add(run, "idea", lambda: add_idea(run, idea))


def submit(run: options.Run, file: ProgramPath) -> None:
    """Let the next step of a run evaluate a program of yours. Makes no model call."""
    from costada.runs.steering import add_program

    _add(run, "program", lambda: add_program(run, file))


def _add(run: RunFolder, what: str, add: Callable[[], Added]) -> None:
    from costada.runs.steering import outlook

    with refusing(ExitCode.BAD_INPUT):
        added = add()
        show(f"{run.place}: {what} {added.number} added; {outlook(run, added)}")
