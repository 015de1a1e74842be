"""`costada diff`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing, say
from costada.reports.terminal import show
from costada.runs.folder import RunFolder
from costada.runs.interruption import ExitCode
from costada.store.address import is_there
from costada.values.program_form import invalid_path_reason

Since = Annotated[
    str,
    typer.Option(
        "--from", metavar="CANDIDATE", help="Id of the candidate to compare with, or start."
    ),
]


def diff(run: options.Run, since: Since = "start") -> None:
    """Print a patch for `git apply`, from the initial program to the best one."""
    from costada.reports.patch import START, run_patch

    with refusing(ExitCode.BAD_INPUT):
        run.load()
        text = run_patch(run.database, since, _place(run) if is_there(run.database) else "")
    if not text:
        same = "the initial program" if since == START else f"candidate {since}"
        say(f"the best program equals {same}: nothing to apply")
    elif sys.stdout.isatty():
        show(text.removesuffix("\n"))
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
        sys.stdout.flush()


def _place(run: RunFolder) -> str:
    """Where the program is in the run's problem folder; empty if that is not known."""
    from costada.evaluators.initial_program import program_place

    folder = Path(run.load().problem)
    try:
        place = program_place(folder) if folder.is_dir() else ""
    except (ValueError, OSError):
        return ""
    return "" if invalid_path_reason(place) else place
