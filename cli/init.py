"""`costada init`: an example problem folder, or a copy of a benchmark."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.errors import refusing
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode

TEMPLATE = "template"
SUFFIX = ".txt"
"""Keeps the files of the template from being modules of this package."""
TEST_FILE = "test_problem.py"
SHOWN_NAMES = 5

NewFolder = Annotated[
    Path,
    typer.Argument(
        parser=options.named_path,
        metavar="DIR",
        help="The folder to write; it must be empty or new.",
    ),
]


BenchmarkName = Annotated[
    str | None,
    typer.Option("--from", metavar="NAME", help="Copy this benchmark instead of the example."),
]


def init(folder: NewFolder, benchmark: BenchmarkName = None) -> None:
    """Write an example problem folder with a test, or copy a benchmark."""
    with refusing(ExitCode.BAD_INPUT):
        texts = _benchmark_texts(benchmark) if benchmark else _example_texts()
        write_files(folder, texts)
    names = sorted(texts)
    steps = _next_steps(folder, has_test=TEST_FILE in texts)
    show("\n".join([f"Wrote {folder}:", *(f"  {name}" for name in names), *steps]))


def _example_texts() -> dict[str, str]:
    template = files("costada.cli") / TEMPLATE
    return {each.name.removesuffix(SUFFIX): each.read_text("utf-8") for each in template.iterdir()}


def _benchmark_texts(name: str) -> dict[str, str]:
    from costada.evaluators.folder_files import content_files
    from costada.evaluators.registry import benchmark_folder

    found = content_files(benchmark_folder(name))
    return {file_name: path.read_text("utf-8") for file_name, path in found}


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write texts under their names into a folder that is new or empty.

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
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _next_steps(folder: Path, *, has_test: bool) -> list[str]:
    place = shlex.quote(str(folder))
    program = shlex.quote(str(folder / "initial_program.py"))
    return [
        "Next:",
        f"  costada evaluate {place} {program}",
        f"  costada run {place} --budget 0.05",
        *([f"  pytest {place}"] if has_test else []),
    ]
