"""`costada fork`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.terminal import show
from costada.runs.folder import RunFolder
from costada.runs.interruption import ExitCode

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
    with refusing(ExitCode.BAD_INPUT):
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
