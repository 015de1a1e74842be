"""`costada init`: a problem of one's own to begin with."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.errors import refusing
from costada.reports.terminal import show
from costada.runs.exit_codes import ExitCode

TEMPLATE = "template"
SUFFIX = ".txt"
"""Keeps the files of the template from being taken for modules of ours."""
SHOWN_NAMES = 5

NewFolder = Annotated[
    Path,
    typer.Argument(
        parser=options.named_path,
        metavar="DIR",
        help="The folder to write; it must be empty or new.",
    ),
]


def init(folder: NewFolder) -> None:
    """Write a small problem of your own, complete with a test, to change into yours."""
    with refusing(ExitCode.BAD_INPUT):
        names = write_template(folder)
    show("\n".join([f"Wrote {folder}:", *(f"  {name}" for name in names), *_next_steps(folder)]))


def write_template(folder: Path) -> list[str]:
    """Write the files of the example problem and return their names.

    Raises:
        ValueError: If the folder is a file or holds something, naming what is there.
        OSError: If it cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is a file, expected a new or empty folder")
    found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if found:
        more = f" and {len(found) - SHOWN_NAMES} more" if len(found) > SHOWN_NAMES else ""
        named = ", ".join(found[:SHOWN_NAMES]) + more
        raise ValueError(f"{folder}: holds {named}; expected a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    template = files("costada.cli") / TEMPLATE
    texts = {each.name.removesuffix(SUFFIX): each.read_text("utf-8") for each in template.iterdir()}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(texts)


def _next_steps(folder: Path) -> list[str]:
    place = shlex.quote(str(folder))
    program = shlex.quote(str(folder / "initial_program.py"))
    return [
        "Next:",
        f"  costada evaluate {place} {program}",
        f"  costada run {place} --budget 0.05",
        f"  pytest {place}",
    ]
