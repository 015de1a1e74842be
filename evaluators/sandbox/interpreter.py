"""The Python that runs candidates: that of this process, or of an environment for one problem."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path

from costada.evaluators.sandbox.editable_packages import EditablePackage, editable_packages

MIN_VERSION = (3, 11)
QUERY_SECONDS = 30.0
QUERY = """
import json, os, site, sys
bases = site.getsitepackages([sys.base_prefix, sys.base_exec_prefix])
above = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
settings = os.path.join(above, "pyvenv.cfg")
if os.path.isfile(settings):
    sys.prefix = sys.exec_prefix = above
    lines = open(settings, encoding="utf-8").read().splitlines()
    pairs = [[word.strip().lower() for word in line.split("=", 1)] for line in lines]
    if ["include-system-site-packages", "true"] not in pairs:
        bases = []
own = site.getsitepackages([sys.prefix])
prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix]
print(json.dumps({"version": sys.version_info[:2], "prefixes": prefixes, "path": own + bases}))
"""
"""Asked without `site`, which would run code of the packages: their folders are computed here."""

SYSTEM_PROGRAMS = ("/usr/local/bin", "/usr/bin", "/bin")
LIBRARIES = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter with the packages that candidates can import.

    Attributes:
        program: Path of the program.
        version: Major and minor number of the language.
        prefixes: Folders of the environment and of the installation below it.
        libraries: Folders of installed packages.
        editable: What is installed in editable mode; none but for the interpreter of this process,
            as the code of others that finds it does not run.
    """

    program: str
    version: tuple[int, ...]
    prefixes: tuple[str, ...]
    libraries: tuple[str, ...]
    editable: tuple[EditablePackage, ...] = ()

    @property
    def standard_folders(self) -> list[str]:
        """The folders of the standard library, and of the headers of its interface in C."""
        names = ("lib", "lib64", "include")
        found = [os.path.join(prefix, name) for prefix in self.prefixes for name in names]
        return [path for path in found if os.path.isdir(path)]

    @property
    def program_paths(self) -> list[str]:
        """The folders of programs, the interpreter's own first, and what it needs to start."""
        names = ("bin", "pyvenv.cfg")
        own = [os.path.join(prefix, name) for prefix in self.prefixes[:2] for name in names]
        # The system's own Python has its programs among those of the system.
        paths = dict.fromkeys((*own, *SYSTEM_PROGRAMS))
        return [path for path in paths if os.path.exists(path)]

    def has_module(self, name: str) -> bool:
        """Whether a module or package of this name, without dots, is installed."""
        if name in sys.stdlib_module_names or name in (each.name for each in self.editable):
            return True
        return PathFinder.find_spec(name, self.libraries) is not None

    def editable_apart_from(self, folder: Path) -> tuple[EditablePackage, ...]:
        """What is editable and neither holds a problem's folder nor lies in it."""
        return tuple(each for each in self.editable if each.is_apart_from(folder))

    @property
    def packages(self) -> tuple[str, ...]:
        """Name and version of each installed package, in alphabetical order."""
        found = distributions(path=list(self.libraries))
        return tuple(sorted({f"{each.name}=={each.version}" for each in found}))


def distinct_folders(paths: Sequence[str]) -> list[str]:
    """The folders among paths, each once, whatever number of links lead to it."""
    found: dict[str, str] = {}
    for path in filter(os.path.isdir, paths):
        found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def own_interpreter() -> Interpreter:
    """The interpreter of this process: candidates import what this process can import."""
    # Started as `../bin/python`, it would name itself by folders that the sandbox lacks.
    libraries = _libraries(sys.path)
    return Interpreter(
        os.path.normpath(sys.executable),
        sys.version_info[:2],
        tuple(dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix))),
        libraries,
        editable_packages(libraries),
    )


def interpreter_at(program: str) -> Interpreter:
    """The interpreter at a path, which is started once to ask where its packages are.

    Raises:
        ValueError: If there is none, it does not start, or its version is too old.
    """
    path = os.path.abspath(program)
    settings = Path(path).parent.parent / "pyvenv.cfg"
    return _described_interpreter(path, settings.stat().st_mtime_ns if settings.is_file() else 0)


@lru_cache
def _described_interpreter(program: str, _stamp: int) -> Interpreter:
    """What an interpreter says of itself; asked again if its environment is made again."""
    try:
        answer = subprocess.run(
            [program, "-I", "-S", "-B", "-c", QUERY],
            capture_output=True,
            check=True,
            env={},
            text=True,
            timeout=QUERY_SECONDS,
        ).stdout
        known = json.loads(answer)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = "there is none" if isinstance(error, FileNotFoundError) else str(error)
        raise ValueError(
            f"interpreter is {program!r}; expected the path of a Python ({reason})"
        ) from None
    version = tuple(known["version"])
    if version < MIN_VERSION:
        raise ValueError(
            f"interpreter is {program!r}, Python {'.'.join(map(str, version))}; expected"
            f" {'.'.join(map(str, MIN_VERSION))} or newer"
        )
    prefixes = tuple(dict.fromkeys(known["prefixes"]))
    return Interpreter(program, version, prefixes, _libraries(known["path"]))


def _libraries(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(path for path in paths if path.endswith(LIBRARIES) and os.path.isdir(path))
