"""Packages that are installed in editable mode (`pip install -e .`): their code lies elsewhere.

The metadata of such a package is among the installed ones, and says where its project is. Only the
packages with an `__init__.py` and the modules that it provides count, never the project's folder:
that may hold keys, runs or the answers of problems. Of a package, which may be its project's
folder, files and folders that usually hold secrets or a history stay hidden.
"""

import json
import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

SECRET_FILES = (".env*", ".git-credentials", ".netrc", ".npmrc", ".pypirc")
SECRETS = (
    *(*SECRET_FILES, ".git", ".hg", ".svn", ".*_history"),
    *(".ssh", ".gnupg", ".aws", ".azure", ".config", ".docker", ".kube"),
)
"""Names of files and folders that usually hold secrets or a history."""


class EditablePackage(NamedTuple):
    """A package or module, without dots in its name, of a project that is installed so."""

    name: str
    path: str

    @property
    def listed(self) -> str:
        """The folder in which an import looks for its name; empty if a finder knows its path."""
        return folder if (folder := os.path.dirname(self.path)) in sys.path else ""

    @property
    def shown(self) -> "ShownPaths":
        """What of it may be read."""
        return _shown(self.path)

    def is_apart_from(self, folder: Path) -> bool:
        """Whether it neither holds a folder nor lies in it."""
        own, other = Path(os.path.realpath(self.path)), folder.resolve()
        return not (own.is_relative_to(other) or other.is_relative_to(own))


class ShownPaths(NamedTuple):
    """Files and folders that may be read, and folders around them whose names may be listed."""

    readable: tuple[str, ...]
    listed: tuple[str, ...]


@cache
def _shown(path: str) -> ShownPaths:
    """What is not hidden of a file or folder; of a folder that hides nothing, the folder alone.

    Links beside hidden files are left out: a rule for one would hold for what it leads to. A
    folder that this process may not read needs no hiding.
    """
    if not os.path.isdir(path):
        return ShownPaths((path,), ())
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except PermissionError:
        return ShownPaths((path,), ())
    shown = [entry for entry in entries if not _is_secret(entry.name)]
    parts = [_shown(entry.path) for entry in shown if not entry.is_symlink()]
    if len(shown) == len(entries) and not any(each.listed for each in parts):
        return ShownPaths((path,), ())
    readable = [each for part in parts for each in part.readable]
    return ShownPaths((*readable,), (path, *(each for part in parts for each in part.listed)))


def _is_secret(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in SECRETS)


@cache
def editable_packages(libraries: tuple[str, ...]) -> tuple[EditablePackage, ...]:
    """The packages of this process that folders of installed packages say are editable."""
    found: dict[EditablePackage, None] = {}
    for each in distributions(path=list(libraries)):
        try:
            about = json.loads(each.read_text("direct_url.json") or "{}")
            is_editable = bool(about["dir_info"]["editable"])
            project = os.path.realpath(url2pathname(urlsplit(about["url"]).path))
            names = [*_names(each)] if is_editable else []
        except (KeyError, OSError, TypeError, ValueError):  # not a folder, or damaged
            continue
        for name in names:
            below = (path for path in _places(name) if _is_below(path, project))
            found |= dict.fromkeys(EditablePackage(name, path) for path in below)
    return tuple(found)


def _places(name: str) -> Iterator[str]:
    """Where any finder finds a name: a project beside a script is found before its package."""
    for finder in sys.meta_path:
        if hasattr(finder, "find_spec") and (spec := finder.find_spec(name, None)) and spec.origin:
            yield from spec.submodule_search_locations or [spec.origin]


def _is_below(path: str, folder: str) -> bool:
    return os.path.exists(path) and os.path.realpath(path).startswith(f"{folder}/")


def _names(distribution: Distribution) -> Iterator[str]:
    """Names of the packages and modules that a project provides.

    Setuptools lists them. Other build backends add a folder to the import path, by a `.pth` file.
    """
    if listed := distribution.read_text("top_level.txt"):
        yield from listed.split()
        return
    yield distribution.name.replace("-", "_")
    for file in distribution.files or ():
        if file.suffix == ".pth":
            for line in file.read_text().splitlines():
                if os.path.isabs(line):
                    yield from (path.parent.name for path in Path(line).glob("*/__init__.py"))
