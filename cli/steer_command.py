"""The commands that fork and steer a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode

if TYPE_CHECKING:
    from costada.runs.folder import RunFolder
    from costada.runs.steering import Added

At = Annotated[int, typer.Option(metavar="ITERATION", min=1, help="The last iteration to copy.")]
New = Annotated[Path, options.path_option("A new folder for the new run.", "--out", metavar="NEW")]
Budget = Annotated[
    float | None,
    typer.Option(
        help="Budget of the new run in dollars, including the calls that are copied.",
        show_default="as the original",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Random seed from that iteration on.", show_default="as the original"),
]


def fork(
    folder: options.Folder,
    at: At,
    out: New,
    budget: Budget = None,
    seed: Seed = None,
    trust: options.Trust = False,
) -> None:
    """Fork a run at an iteration. Makes no model calls."""
    with refusing(ExitCode.BAD_INPUT):  # around the imports too: Ctrl-C may come while they load
        from costada.runs.folder import RunFolder
        from costada.runs.fork import fork_run

        original, new = RunFolder(folder), RunFolder(out)
        forked = fork_run(original, at, new, budget=budget, seed=seed, trust=trust)
    command = forked.folder.next_command(forked.folder.load())
    copied = f"with ${forked.spent:.6f} spent"
    if forked.in_flight:
        copied += f" and ${forked.in_flight:.6f} of calls of steps in flight, charged as they land"
    show(
        f"{out}: forked from {folder} after iteration {forked.iterations}, {copied}."
        f"\nResume with: {command}"
    )


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
