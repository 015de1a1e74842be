"""Which paths of a folder may be shown: to its evaluator, to a model, to another machine.

The folder may come from somebody else, and a link in it may lead to any file of the user. So what
counts is the real path, without links: it is below the folder, and no part of it there is hidden or
left behind by Python or runs. Nor may a link on the way lead to a folder around it, as that has no
end. A hard link is the file itself and cannot be told from it; programs
that unpack archives or clone repositories make none to files elsewhere.
"""

import fcntl
import json
import os
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from stat import S_ISDIR, S_ISFIFO, S_ISREG, S_ISSOCK
from typing import Final

OUTPUT_FOLDERS = {"__pycache__", "runs-out"}
OUTPUT_SUFFIXES = (".pyc", ".log")
RUN_SETTINGS = "settings.json"
RUN_KEYS = {"problem", "method", "budget"}
"""Keys that distinguish the settings of a run from a data file of the same name."""

MAX_RUN_SETTINGS = 2**16
F_GETPATH: Final[int | None] = getattr(fcntl, "F_GETPATH", None)
"""How macOS says what path a descriptor leads to; Linux says it in /proc."""

MAX_PATH_BYTES = 1024


Known = set[tuple[str, tuple[Path, ...]]]
"""Folders, without links, of which a file may be shown; and below which folders it may be."""


def unshown_reason(
    path: Path, *folders: Path, with_hidden: bool = False, known: Known | None = None
) -> str | None:
    """Why a file or folder may not be shown, as the rest of a sentence; None if it may.

    Args:
        path: Where it is looked for; links on the way are followed.
        folders: Where it may be: below one of these.
        with_hidden: Whether hidden files count too, as the tracked ones of a repository do.
        known: What earlier calls have found, where folders do not change meanwhile and only the
            last part of `path` may be a link.
    """
    real = os.path.realpath(path)
    return _reason(path, real, folders, with_hidden=with_hidden, known=known)


def open_shown(
    path: Path, *folders: Path, with_hidden: bool = False, known: Known | None = None
) -> BufferedReader:
    """Open a regular file that may be shown; `known` as in `unshown_reason`.

    What counts is where the opened file is, so a link that changes meanwhile leads to nothing else.

    Raises:
        ValueError: If it may not be shown, with the reason, or is not a regular file.
        OSError: If it cannot be opened.
    """
    # Opening a pipe in place of the file must not wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with ExitStack() as unless_shown:
        unless_shown.callback(os.close, descriptor)
        real = _path_of(descriptor)
        reason = _reason(path, real, folders, with_hidden=with_hidden, known=known)
        if reason is None and not S_ISREG(os.fstat(descriptor).st_mode):
            reason = "is not a regular file"
        if reason is not None:
            raise ValueError(f"{path} {reason}; expected a file of {folders[0]}, or a copy of it")
        unless_shown.pop_all()
    return os.fdopen(descriptor, "rb")


def read_shown(path: Path, *folders: Path, with_hidden: bool = False) -> bytes:
    """Content of a file; raises as `open_shown` does."""
    with open_shown(path, *folders, with_hidden=with_hidden) as file:
        return file.read()


def odd_file_reason(path: Path) -> str | None:
    """What is in the place of a file, as the rest of a sentence; None for a file, or nothing."""
    if path.is_file() or not os.path.lexists(path):
        return None
    if not path.exists():
        return f"is a link to {os.readlink(path)!r}, which is not there"
    kind = path.stat().st_mode
    named = {S_ISDIR: "a folder", S_ISFIFO: "a pipe", S_ISSOCK: "a socket"}
    return f"is {next((name for is_kind, name in named.items() if is_kind(kind)), 'a device')}"


def is_output(path: Path) -> bool:
    """Whether a file or folder is hidden, or left behind by Python or by runs.

    The files of a run must not change its evaluator.
    """
    if is_output_name(path.name):
        return True
    settings = f"{path}/{RUN_SETTINGS}"
    # A link may lead to a folder that this user cannot read: `Path.is_file` would raise.
    if not os.path.isfile(settings) or os.stat(settings).st_size > MAX_RUN_SETTINGS:
        return False
    try:
        known = json.loads(Path(settings).read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(known, dict) and known.keys() >= RUN_KEYS


def is_output_name(name: str) -> bool:
    """Whether a file or folder of this name is hidden, or left behind by Python or by runs."""
    return name.startswith(".") or name in OUTPUT_FOLDERS or name.endswith(OUTPUT_SUFFIXES)


def _reason(
    path: Path,
    real: str,
    folders: tuple[Path, ...],
    *,
    with_hidden: bool,
    known: Known | None = None,
) -> str | None:
    around, name = os.path.split(real)
    place = around, folders
    if known is not None and place in known and not is_output_name(name):
        return None
    reason = _reason_from_the_top(path, Path(real), folders, with_hidden=with_hidden)
    if known is not None and reason is None:
        known.add(place)
    return reason


def _reason_from_the_top(
    path: Path, real: Path, folders: tuple[Path, ...], *, with_hidden: bool
) -> str | None:
    is_link = real != Path(os.path.abspath(path))
    lead = f"leads to {real}, " if is_link else "is "
    reason = f"{lead}outside of {folders[0]}"
    for folder in folders:
        root = Path(os.path.realpath(folder))
        if not real.is_relative_to(root):
            continue
        hidden = None if with_hidden else _hidden_part(path, folder) or _hidden_part(real, root)
        if hidden is None and is_link and (around := _repeated(path, folder)):
            return f"leads through {around}, which leads to a folder around it"
        if hidden is None:
            return None
        if is_link:
            lead += "which is" if hidden == real else f"and {hidden} is"
        elif hidden != path:
            lead += f"in {hidden}, which is"
        reason = f"{lead.strip()} hidden, or left behind by Python or runs"
    return reason


def _hidden_part(path: Path, folder: Path) -> Path | None:
    """The outermost part of a path below a folder that is hidden or left behind."""
    if not path.is_relative_to(folder):
        return None
    within = path.relative_to(folder)
    parts = reversed([folder / each for each in (within, *within.parents) if each.name])
    return next(filter(is_output, parts), None)


def _repeated(path: Path, folder: Path) -> Path | None:
    """The outermost part of a path below a folder that is, without links, one around it."""
    if not path.is_relative_to(folder):
        return None
    around = {os.path.realpath(folder)}
    for part in (*reversed([folder / each for each in path.relative_to(folder).parents]), path):
        real = os.path.realpath(part)
        if part != folder and real in around:
            return part
        around.add(real)
    return None


def _path_of(descriptor: int) -> str:
    """The path of an open file, without links."""
    if F_GETPATH is None:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    found = fcntl.fcntl(descriptor, F_GETPATH, bytes(MAX_PATH_BYTES))
    return os.fsdecode(found.rstrip(b"\0"))
