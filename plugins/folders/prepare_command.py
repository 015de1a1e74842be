"""`costada prepare`: an environment for a problem folder, with the packages that it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.cli.main import OTHERS, PROBLEMS, PluginCommand
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode

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


def prepare(
    folder: ProblemPath, packages: Packages = None, allow_builds: AllowsBuilds = False
) -> None:
    """Install the packages that a problem folder needs in an environment of its own, with uv.

    Installs requirements.txt, of a repository too, and well-known packages that the folder's Python
    files import, in ~/.local/share/costada/environments (XDG_DATA_HOME). The folder's programs are
    then evaluated in this environment. Only wheels are installed, so no code of a package runs.
    Options and addresses in requirements.txt are refused, and uv's settings in files are not read:
    say with the variables of uv where packages come from. If nothing is missing, no environment is
    created.
    """
    with refusing(ExitCode.BAD_INPUT):
        from costada.evaluators.environment import interpreter_of
        from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
        from costada.evaluators.folders import read_folder
        from costada.evaluators.repository import repository_root
        from costada.evaluators.sandbox.interpreter import interpreter_at, own_interpreter
        from costada.plugins.folders.dependencies import find_needs, needs_of
        from costada.plugins.folders.installation import make_environment
        from costada.plugins.folders.requirements_file import REQUIREMENTS_FILE, requirement_lines

        program = interpreter_of(folder)
        python = interpreter_at(program) if program else own_interpreter()
        settings = read_settings(folder / SETTINGS_FILE)
        if settings.repository is None:
            found = read_folder(folder)
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
        if is_ready and not packages:
            show(f"Nothing is missing, so nothing is installed. Next: costada check {folder}")
            return
        files = dict.fromkeys(str(line.file) for line in requirements)
        wanted = [*files, *imported, *(packages or ())]
        show(f"Installing {', '.join(wanted)} ...")
        place = make_environment(
            folder, requirements, [*imported, *(packages or ())], allow_builds=allow_builds
        )
        missing = "" if settings.repository else read_folder(folder).missing.refusal
        if missing:
            raise ValueError(f"{folder} still {missing}")
    show(f"Made {place}. Next: costada check {folder}")


COMMAND = PluginCommand(prepare, PROBLEMS, OTHERS)
