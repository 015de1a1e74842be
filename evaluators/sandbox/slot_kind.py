"""What a slot is prepared for: candidates that need the same share slots."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from glob import glob, has_magic
from math import ceil
from pathlib import Path

from costada.evaluators.sandbox.editable_packages import EditablePackage
from costada.evaluators.sandbox.inside.orders import MAX_COPIED_BYTES, ORIGINAL
from costada.evaluators.sandbox.interpreter import Interpreter
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.opened import NOTHING, Opened

PRELOAD = ("numpy", "scipy.optimize")
"""Modules that most candidates import; importing them in a candidate costs no time."""

LATE = "scipy"
"""Loaded before the first candidate that names it: a process without it forks in half the time."""


OF_KERNEL = ("/dev", "/proc", "/sys")
OF_SANDBOX = (*OF_KERNEL, "/tmp")  # noqa: S108
"""Folders of which the sandbox has its own."""

BLOCK_BYTES = 4096
NUM_FOLDERS = 4  # that of a copy, and those in it


@cache
def can_fork() -> bool:
    """Whether candidates can be forked from a loaded process here, watched and killed.

    Not on macOS, whose libraries do not survive a fork, nor without pidfds, as in gVisor.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of an evaluator, of which each of its candidates is evaluated beside a clean copy."""

    path: str
    place: str  # in the copy
    identity: tuple[int, int]  # device and inode: a replaced file makes another kind of slot
    size: int  # in bytes
    changed: int  # in nanoseconds: a file that was written to makes another kind of slot

    @property
    def is_linked(self) -> bool:
        """Whether it is too large to be copied: candidates read it where it is."""
        return self.size > MAX_COPIED_BYTES


@dataclass(frozen=True, slots=True)
class Original:
    """A folder of which each candidate gets a clean copy as its working folder.

    It holds files, folders and links that lead to nothing outside of it, alone.
    """

    path: str
    num_files: int  # files, folders and links in it
    megabytes: int  # size of all files
    identity: tuple[int, int]  # device and inode: a replaced folder makes another kind of slot


@dataclass(frozen=True, slots=True)
class SlotKind:
    """What a slot is prepared for; candidates of one kind share slots.

    Attributes:
        layer: Name of the layer that confines the candidates; never AUTO. The classes of layers
            know what a slot is prepared for, so this file does not know them.
        preload: Modules loaded before any candidate starts, or before the first that names them.
        files: Files of an evaluator, which each candidate gets in a clean copy; none of an
            `original` then.
        empty_folders: Places of further folders in that copy.
        is_single_use: Whether each candidate gets an interpreter of its own, started ahead,
            instead of a fork of a loaded one.
        files_mb: Size of the slot's private file system in MiB, where it can have one; 0: none
            unless the layer needs it.
        interpreter: What runs the candidates; None: the interpreter of this process.
        original: What the working folder of each candidate is a copy of; None: it is empty.
        readable: Files and folders beside the system's that candidates may read; programs are
            looked for in the folders, and in a `bin` in them.
        editable: Packages installed in editable mode that candidates may import.
        opened: What the evaluator gets beyond its confinement, without keys; what it starts that
            runs its candidate does not.
    """

    layer: str
    preload: tuple[str, ...]
    files: tuple[CopiedFile, ...] = ()
    empty_folders: tuple[str, ...] = ()
    is_single_use: bool = field(default_factory=lambda: not can_fork())
    files_mb: int = Limits().files_mb
    interpreter: Interpreter | None = None
    original: Original | None = None
    readable: tuple[str, ...] = ()
    editable: tuple[EditablePackage, ...] = ()
    opened: Opened = NOTHING

    @property
    def programs(self) -> list[str]:
        """The folders in which programs are looked for, beside the interpreter's."""
        places = [folder for path in self.readable for folder in (path, os.path.join(path, "bin"))]
        return [path for path in places if os.path.isdir(path)]

    @property
    def room_mb(self) -> int:
        """Size of the file system where copies of the original have room beside the files."""
        return self.files_mb + (self.copied.megabytes if self.copied else 0)

    @property
    def copied(self) -> Original | None:
        """The folder of which each candidate gets a copy; for an evaluator, the server makes it."""
        if not self.files:
            return self.original
        blocks = [1 + file.size // BLOCK_BYTES for file in self.files if not file.is_linked]
        around = {*self.empty_folders, *(os.path.dirname(file.place) for file in self.files)}
        folders = {place for each in around for place in (each, *Path(each).parents)}
        return Original(
            path=ORIGINAL,
            num_files=len(self.files) + len(folders) + NUM_FOLDERS,
            megabytes=ceil(sum(blocks) * BLOCK_BYTES / MEBIBYTE),
            identity=(0, 0),
        )

    @property
    def linked(self) -> tuple[CopiedFile, ...]:
        """The files that are too large to be copied."""
        return tuple(file for file in self.files if file.is_linked)


def _own_places(path: str) -> list[str]:
    """The folders of the sandbox that a path would cover, and of the kernel that it is in."""
    real = Path(path)
    covered = [place for place in OF_SANDBOX if Path(place).is_relative_to(real)]
    return covered + [place for place in OF_KERNEL if real.is_relative_to(place)]


def readable_paths(patterns: Sequence[str]) -> tuple[str, ...]:
    """What absolute paths, and patterns of such, lead to; `~` stands for the home folder.

    A pattern may lead to nothing: a tool chain need not be at the same place on every machine.

    Raises:
        ValueError: If one is relative, leads into the kernel's folders or to one that holds a
            folder of the sandbox, or a path leads to nothing.
    """
    found: list[str] = []
    for pattern in patterns:
        path = os.path.expanduser(pattern)
        there = sorted(glob(path))
        if not os.path.isabs(path) or not (there or has_magic(path)):
            raise ValueError(
                f"readable has {pattern!r}; expected the absolute path of a file or folder that is"
                " there, or a pattern of such"
            )
        real = [os.path.realpath(each) for each in there]
        if own := next((place for path in real for place in _own_places(path)), None):
            raise ValueError(
                f"readable has {pattern!r}, which leads to {own}; expected other files and folders,"
                f" as the sandbox has its own {', '.join(OF_SANDBOX)}"
            )
        found += real
    return tuple(dict.fromkeys(found))
