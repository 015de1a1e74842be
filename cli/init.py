"""`costada init`: an example problem folder, a copy of a benchmark, or one for a repository."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from shutil import which
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.formats import counted
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode
from costada.values.path_words import path_word

TEMPLATE = "template"
SUFFIX = ".txt"
"""Keeps the files of the template from being modules of this package."""
TEST_FILE = "test_problem.py"
SHOWN_NAMES = 5
SCRIPT_ENDINGS = (".py", ".sh")
OPTIONS = {"program": "--edit", "command": "--score", "test": "--test", "focus": "--focus"}
REPOSITORY_TASK = """\
# {name}

Improve the files {files} of the repository {name}, so that this command, which runs in the
repository's folder, reports a better score:

    {command}

Every other file of the repository stays as it is. Keep what other files import from these.
"""
REPOSITORY_SETTINGS = """\

# A lower score is better; reference is that of score 1:
# direction = "minimize"
# reference = 1.0
# timeout = 360.0  # seconds of one evaluation
# repeats = 3  # measurements of each candidate, where the score is noisy
# build = "make"  # runs before the command
# files = ["build/*.so"]  # files that git ignores and the command needs
"""

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


Repository = Annotated[
    Path | None,
    typer.Option(
        "--from-repo",
        parser=options.named_path,
        metavar="PATH",
        help="Improve files of this repository, which is only read.",
    ),
]
Edited = Annotated[
    list[str] | None,
    typer.Option(
        "--edit",
        metavar="PATTERN",
        help="Files of the repository that candidates may add, change and delete; repeatable.",
    ),
]
ScoreCommand = Annotated[
    str | None,
    typer.Option(
        "--score",
        metavar="COMMAND",
        help="Command that scores a copy of the repository; it prints a number or JSON last.",
    ),
]


TestCommand = Annotated[
    str | None,
    typer.Option(
        "--test",
        metavar="COMMAND",
        help="Command that must succeed in a copy of the repository before the score counts.",
    ),
]
FocusedFunctions = Annotated[
    list[str] | None,
    typer.Option(
        "--focus",
        metavar="PATH::NAME",
        help="Function of the repository that prompts show in full; repeatable. The slowest of the"
        " score command if absent.",
    ),
]


def init(
    folder: NewFolder,
    benchmark: BenchmarkName = None,
    repository: Repository = None,
    edited: Edited = None,
    command: ScoreCommand = None,
    test: TestCommand = None,
    focus: FocusedFunctions = None,
) -> None:
    """Write a problem folder: an example with a test, a benchmark, or one for a repository."""
    notes: Sequence[str] = ()
    with refusing(ExitCode.BAD_INPUT):
        if repository is not None:
            if benchmark:
                raise ValueError("--from and --from-repo are both given; expected one of them")
            settings = {"program": edited, "command": command, "test": test, "focus": focus}
            texts, notes = _repository_texts(folder, repository, settings)
        elif edited or command or test or focus:
            raise ValueError(
                "--edit, --score, --test and --focus belong to --from-repo; expected the"
                " repository's path"
            )
        else:
            texts = _benchmark_texts(benchmark) if benchmark else _example_texts()
        write_files(folder, texts)
    names = sorted(texts)
    steps = _next_steps(folder, has_test=TEST_FILE in texts)
    if repository is not None:
        place = path_word(folder)
        steps = [*notes, "Next:", f"  describe the task in {place}/problem.md"]
        steps += [f"  costada check {place}", f"  costada run {place} --budget 0.2"]
    show("\n".join([f"Wrote {folder}:", *(f"  {name}" for name in names), *steps]))


def _example_texts() -> dict[str, str]:
    template = files("costada.cli") / TEMPLATE
    return {each.name.removesuffix(SUFFIX): each.read_text("utf-8") for each in template.iterdir()}


def _benchmark_texts(name: str) -> dict[str, str]:
    from costada.evaluators.folder_files import content_files
    from costada.evaluators.registry import benchmark_folder

    found = content_files(benchmark_folder(name))
    return {file_name: path.read_text("utf-8") for file_name, path in found}


def _repository_texts(
    folder: Path, repository: Path, given: Mapping[str, str | list[str] | None]
) -> tuple[dict[str, str], list[str]]:
    """The files of a problem folder for a repository, and what to know about its copies.

    Args:
        folder: The problem folder.
        repository: The repository.
        given: Settings by their key in `problem.toml`.

    Raises:
        ValueError: If an option is missing, or the repository cannot be used like this.
    """
    from costada.evaluators.folder_settings import FolderSettings
    from costada.evaluators.repository import load_repository

    edited, command = given["program"], given["command"]
    if not edited or not isinstance(command, str) or not command:
        name = "--score" if edited else "--edit"
        raise ValueError(f"{name} is missing; needed with --from-repo")
    root, place = repository.resolve(), folder.resolve()
    is_inside = place.is_relative_to(root)
    path = os.path.relpath(root, place) if is_inside else str(root)
    task = REPOSITORY_TASK.format(name=root.name, command=command, files=", ".join(edited))
    settings = {"repository": path, **{name: value for name, value in given.items() if value}}
    try:
        checked = FolderSettings.model_validate(settings)
        problem = load_repository(place, checked, task)
    except ValueError as error:
        raise ValueError(_with_options(str(error), place)) from None
    notes = [f"Candidates change {counted(len(problem.start), 'file')} of {root}.", *problem.notes]
    program, *words = shlex.split(command)
    file = next((word for word in words if word[:1] != "-"), "")
    is_script = file.endswith(SCRIPT_ENDINGS) and " " not in file  # else a shell's own command
    if is_script and not (root / file).exists() and not given.get("build"):
        raise ValueError(f"--score is {command!r}; found no file {file!r} in {root}")
    if "/" not in program:
        _check_program(program, command)
    elif not (root / program).exists():
        notes.append(f"{program} is missing: a build must make it, see {place}/problem.toml.")
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()
    ]
    texts = {"problem.md": task, "problem.toml": "\n".join([*lines, REPOSITORY_SETTINGS])}
    return texts, notes


def _with_options(message: str, place: Path) -> str:
    """A message that names an option in place of its key in the `problem.toml` not yet written."""
    for key, option in OPTIONS.items():
        for where in (f"{place / 'problem.toml'}: ", f"{place}: ", ""):
            if message.startswith(start := f"{where}{key} "):
                return f"{option} {message.removeprefix(start)}"
    return message


def _check_program(program: str, command: str) -> None:
    """Refuse the command of a repository if its program is not found in the sandbox's folders."""
    from costada.evaluators.sandbox.interpreter import distinct_folders, own_interpreter
    from costada.evaluators.sandbox.toolchains import installed_toolchains

    toolchains = [os.path.join(each, "bin") for each in installed_toolchains()]
    places = [*own_interpreter().program_paths, *toolchains]
    if program != "python" and which(program, path=os.pathsep.join(places)) is None:
        raise ValueError(
            f"--score is {command!r}; found no program {program!r} in"
            f" {', '.join(distinct_folders(places))}"
        )


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot be created ({error.strerror})"
        raise OSError(error.errno, reason, str(folder)) from error
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _next_steps(folder: Path, *, has_test: bool) -> list[str]:
    place = path_word(folder)
    program = path_word(folder / "initial_program.py")
    return [
        "Next:",
        f"  costada evaluate {place} {program}",
        f"  costada run {place} --budget 0.2",
        *([f"  pytest {place}"] if has_test else []),
    ]
