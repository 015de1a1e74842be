"""`costada prepare`: the packages that a problem folder needs, and the data that it downloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.cli.main import OTHERS, PROBLEMS, PluginCommand
from costada.reports.terminal import printable_line, show
from costada.runs.interruption import ExitCode
from costada.values.path_words import path_word

if TYPE_CHECKING:
    from costada.evaluators.folder_settings import FolderSettings
    from costada.evaluators.folders import ProblemFolder

ProblemPath = Annotated[
    Path,
    typer.Argument(parser=options.named_path, metavar="DIR", help="A problem folder."),
]
Packages = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="PACKAGE",
        help="Install this as well, such as 'jax[cpu]>=0.6'. Repeatable.",
        show_default="none",
    ),
]


AllowsBuilds = Annotated[
    bool,
    typer.Option(
        "--allow-builds",
        help="Build packages that have no wheel, in the sandbox but with a network.",
    ),
]


Confirmed = Annotated[
    bool,
    typer.Option(
        "--confirm",
        help="Run the command that problem.toml names as prepare, which downloads data or models.",
    ),
]


def prepare(
    folder: ProblemPath,
    packages: Packages = None,
    allow_builds: AllowsBuilds = False,
    confirm: Confirmed = False,
) -> None:
    """Install the packages that a problem folder needs, and fetch the data that it downloads.

    Installs requirements.txt, of a repository too, and well-known packages that the folder's Python
    files import, with uv in ~/.local/share/costada/environments (XDG_DATA_HOME). The folder's
    programs are then evaluated in this environment. Only wheels are installed, so no code of a
    package runs. Options and addresses in requirements.txt are refused, and uv's settings in files
    are not read: name package indexes in uv's variables. If nothing is missing, no
    environment is created.

    With --confirm, the command that problem.toml names as prepare then runs in the sandbox, in a
    copy of the folder, with a network. The new files that it leaves are put into the folder and
    listed with their sizes and SHA-256. A run is refused when one of them has changed.
    """
    with refusing(ExitCode.BAD_INPUT):
        from costada.evaluators.environment import interpreter_of
        from costada.evaluators.fetched_files import fetched_fault, fetched_files
        from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
        from costada.evaluators.sandbox.interpreter import interpreter_at, own_interpreter
        from costada.plugins.folders.fetching import fetch

        for package in packages or ():
            if not package.strip() or package.startswith("-"):
                raise ValueError(f"--with: got {package!r}, expected a package, such as 'jax[cpu]'")
        settings = read_settings(folder / SETTINGS_FILE)
        if confirm and settings.prepare is None:
            raise ValueError(f"--confirm: {folder / SETTINGS_FILE} names no command as prepare")
        show(_install(folder, settings, packages or (), allow_builds=allow_builds))
        if confirm and settings.prepare is not None:
            program = interpreter_of(folder)
            python = interpreter_at(program) if program else own_interpreter()
            show(f"Running {printable_line(settings.prepare)} ...")
            for each in fetch(folder.resolve(), settings.prepare, python):
                show(f"  {printable_line(each.path)}  {each.size:,} bytes  {each.sha256}")
        elif settings.prepare is not None and not fetched_files(folder):
            command = printable_line(settings.prepare)
            raise ValueError(
                f"{folder} downloads what it needs by `{command}`. That would run in the sandbox,"
                " in a copy of the folder, with a network; services of this machine and its network"
                f" can be reached too. To run it: costada prepare {path_word(folder)} --confirm"
            )
        if fault := fetched_fault(folder):
            raise ValueError(fault)
    show(f"Next: costada check {path_word(folder)}")


def _install(
    folder: Path, settings: FolderSettings, packages: Sequence[str], *, allow_builds: bool
) -> str:
    """Make the environment of a folder if it lacks packages; what was done, in a sentence."""
    from costada.evaluators.environment import interpreter_of
    from costada.evaluators.repository import repository_root
    from costada.evaluators.sandbox.interpreter import interpreter_at, own_interpreter
    from costada.plugins.folders.dependencies import find_needs, missing_dependencies, needs_of
    from costada.plugins.folders.installation import make_environment
    from costada.plugins.folders.requirements_file import (
        REQUIREMENTS_FILE,
        check_requirements,
        requirement_lines,
    )

    program = interpreter_of(folder)
    python = interpreter_at(program) if program else own_interpreter()
    if settings.repository is None:
        found = _read_unfetched(folder)
        is_ready = needs_of(found.layout, found.settings, found.program, python).are_met
        bare = replace(own_interpreter(), libraries=())
        needs = needs_of(found.layout, found.settings, found.program, bare)
        imported = needs.packages([*needs.missing, *needs.later])
        requirements = needs.requirements
    else:
        listed = repository_root(folder, settings) / REQUIREMENTS_FILE
        imported = ()
        requirements = tuple(requirement_lines(listed)) if listed.is_file() else ()
        is_ready = find_needs([], [listed.parent], python).are_met
    check_requirements(requirements)
    if is_ready and not packages:
        return "No package is missing, so none is installed."
    files = dict.fromkeys(str(line.file) for line in requirements)
    show(f"Installing {', '.join([*files, *imported, *packages])} ...")
    place = make_environment(
        folder, requirements, [*imported, *packages], allow_builds=allow_builds
    )
    if settings.repository is None:
        missing = missing_dependencies(_read_unfetched(folder)).refusal
        if missing:
            raise ValueError(f"{folder} still {missing}")
    return f"Made {place}."


def _read_unfetched(folder: Path) -> ProblemFolder:
    """What a folder says, without the declared files that are still to be fetched."""
    from costada.evaluators.folder_files import matching
    from costada.evaluators.folders import read_folder

    found = read_folder(folder)
    there = tuple(each for each in found.settings.files if matching(found.layout.folder, each))
    return replace(found, settings=found.settings.model_copy(update={"files": there}))


COMMAND = PluginCommand(prepare, PROBLEMS, OTHERS)
