"""The command that starts a process of `inside/server_main.py`, and the paths that it must see."""

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from glob import glob
from importlib.util import find_spec
from pathlib import Path

from costada.evaluators.sandbox.interpreter import Interpreter, own_interpreter
from costada.values.plugins import plugins_of

SANDBOX_FOLDER = Path(__file__).parent
PACKAGE_FOLDER = Path(__file__).parents[2]
"""Hidden from candidates: the benchmarks hold what their answers are compared with."""

SERVER_FILE = SANDBOX_FOLDER / "inside" / "server_main.py"
INSIDE_FILES = (
    SANDBOX_FOLDER,
    PACKAGE_FOLDER / "values" / "provider_error.py",
    PACKAGE_FOLDER / "values" / "timing.py",
)
"""What the server and the processes that it forks import of the package."""

COMPAT_MODULES = "costada.compat_modules"
"""Group of entry points; each is a module that makes other packages importable for evaluators. The
server loads it by its name, from the file that this process finds, and calls its `offer` where an
evaluator runs. This process does not load it.
"""

GUARDS = ("landlockpy", "pyseccomp")
"""Packages that the sandbox itself imports: always those of the process that starts it."""

INTERPRETER_OPTIONS = ("-s", "-P", "-B", "-u", "-X", "utf8")
WITHOUT_SITE = "-S"
"""Has an interpreter run no code of its packages when it starts, such as that of `.pth` files."""

SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime")
NETWORK_FILES = (
    *("/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/pki"),
    *("/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/ssl/certs"),
)
"""What looking up a name and trusting a server need."""

TOOLS = (
    *("/usr/include", "/usr/libexec", "/usr/share", "/usr/local/include", "/usr/local/share"),
    *("/usr/local/go", "/etc/alternatives", "/etc/java*", "/etc/R", "/etc/julia"),
    *("/etc/ssl/openssl.cnf", "/etc/gitconfig"),  # git ends where it finds one and can't read it
)


@cache
def tools() -> tuple[str, ...]:
    """What the system's compilers and interpreters read beside its libraries."""
    return tuple(path for pattern in TOOLS for path in sorted(glob(pattern)))


def server_command(python: Interpreter, settings: Mapping[str, object]) -> list[str]:
    """The command that starts a server process with these settings."""
    is_own = python.program == own_interpreter().program
    options = INTERPRETER_OPTIONS if is_own else (*INTERPRETER_OPTIONS, WITHOUT_SITE)
    return [python.program, *options, str(SERVER_FILE), json.dumps(settings)]


@cache
def module_file(name: str) -> str | None:
    """The file of a module or package; None if it is not installed here."""
    spec = find_spec(name)
    return str(spec.origin) if spec is not None else None


def guard_files() -> dict[str, str | None]:
    """The file of each package that the sandbox imports."""
    return {name: module_file(name) for name in GUARDS}


def compat_files() -> dict[str, str]:
    """The file of each module that makes other packages importable for evaluators."""
    names = (plugin.module for plugin in plugins_of(COMPAT_MODULES).values())
    return {name: file for name in names if (file := module_file(name))}


def mounted_paths(python: Interpreter, others: Iterable[str]) -> list[str]:
    """What must be visible beside the system: the interpreter, packages, our files and others."""
    installed = [*python.program_paths, *python.standard_folders, *python.libraries]
    ours = [*map(str, INSIDE_FILES), *compat_files().values()]
    guards = [
        os.path.dirname(path) if os.path.basename(path) == "__init__.py" else path
        for path in guard_files().values()
        if path is not None
    ]
    paths = dict.fromkeys([*installed, *ours, *others, *guards])
    return [path for path in paths if not path.startswith("/usr/")]


def confined_build(
    command: Sequence[str],
    folder: Path,
    readable: Sequence[str],
    writable: Sequence[str],
    environment: Collection[str],
) -> list[str]:
    """The command that runs an installer, which may build packages, confined.

    Args:
        command: The installer; its first word is the path of a program.
        folder: Its working folder, where it may write too.
        readable: What it may read, and execute, beside the system.
        writable: Further folders that it may write to.
        environment: Names of the variables that it keeps; every user can read a command line, and
            values may be secret.
    """
    settings = {
        "role": "build",
        "command": command,
        "folder": str(folder),
        "readable": [*SYSTEM_FOLDERS, *tools(), *readable],
        "writable": [str(folder), *writable],
        "environment": sorted(environment),
        "guards": guard_files(),
    }
    return server_command(own_interpreter(), settings)
