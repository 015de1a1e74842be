"""The folder of a slot: how much candidates keep in it, and its removal without following links.

A candidate may own the folder and all around it, so no path of it is trusted. Everything is reached
by descriptors from the folder that was opened before the first candidate, and never through a link.
"""

import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from errno import EEXIST, ENOTEMPTY
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path

from costada.evaluators.sandbox.inside import kernel
from costada.evaluators.sandbox.inside.process_tree import run_in_fork

FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
MNT_DETACH = 2
MEBIBYTE = 1024 * 1024
BLOCK_BYTES = 512
MAX_FILES = 4096
DELETED = b" (deleted)\n"
TOO_LARGE, TOO_MANY, UNSEEN = 1, 2, 3
MAX_INODES = 2 * MAX_FILES
"""Above the number that the watch over files allows, so that the watch reports it first."""

Identity = tuple[int, int]
"""Device and inode of a folder."""


class SlotFolder:
    """The folder of a slot, which holds the scratch folder of one candidate after the other.

    Its methods raise OSError if something cannot be done, or a folder is moved at the same time.
    """

    def __init__(self, path: str) -> None:
        """Open it."""
        parent, self._name = os.path.split(path)
        self._parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._fd = os.open(self._name, FOLDER_FLAGS, dir_fd=self._parent_fd)
        except OSError:
            os.close(self._parent_fd)
            raise
        self._identity = _identity(self._fd)

    @property
    def is_in_place(self) -> bool:
        """Whether the folder is still at the path where it was opened."""
        with suppress(FileNotFoundError):
            found = os.stat(self._name, dir_fd=self._parent_fd, follow_symlinks=False)
            return (found.st_dev, found.st_ino) == self._identity
        return False

    @property
    def descriptor_path(self) -> str:
        """A path that leads to it wherever it is (Linux only)."""
        return f"/proc/self/fd/{self._fd}"

    def make(self, name: str) -> int:
        """Make a private folder in it; its descriptor."""
        os.fchmod(self._fd, stat.S_IRWXU)
        os.mkdir(name, stat.S_IRWXU, dir_fd=self._fd)
        return os.open(name, FOLDER_FLAGS, dir_fd=self._fd)

    def rename(self, name: str, new: str) -> None:
        """Rename something in it."""
        os.rename(name, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def clear(self, usual: str, spared: Collection[str] = ()) -> None:
        """Empty it except for `spared`; mostly it holds one folder with one file, `usual`.

        Names of other files are read only in a fork of this process.
        """
        folder, file = os.path.split(usual)
        # The usual case needs no look at names, and no fork, which takes longer than all else here.
        with suppress(OSError):
            inner_fd = os.open(folder, FOLDER_FLAGS, dir_fd=self._fd)
            try:
                os.unlink(file, dir_fd=inner_fd)
            finally:
                os.close(inner_fd)
            os.rmdir(folder, dir_fd=self._fd)
        with os.scandir(self._fd) as entries:
            is_empty = all(entry.name in spared for entry in islice(entries, len(spared) + 1))
        if not is_empty and run_in_fork(partial(self.empty, spared)):
            raise OSError(f"{usual} and its neighbours cannot be removed")

    def empty(self, spared: Collection[str] = ()) -> int:
        """Delete all that is in it, however deep, and whatever its permissions; 0.

        The folders `spared` stay.
        """
        os.fchmod(self._fd, stat.S_IRWXU)

        def enter(folder_fd: int) -> list[str]:
            is_top = _identity(folder_fd) == self._identity
            return _emptied(folder_fd, spared if is_top else ())

        _walk(os.dup(self._fd), enter, lambda name, above_fd: os.rmdir(name, dir_fd=above_fd))
        return 0

    def remove(self) -> None:
        """Remove it with all that is in it, wherever it is now, and a link in its place."""
        self.empty()
        if self.is_in_place:
            os.rmdir(self._name, dir_fd=self._parent_fd)
            return
        with suppress(FileNotFoundError):
            found = os.stat(self._name, dir_fd=self._parent_fd, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                os.unlink(self._name, dir_fd=self._parent_fd)
        with suppress(OSError):
            os.rmdir(os.readlink(self.descriptor_path))

    def close(self) -> None:
        """Close its descriptors."""
        os.close(self._fd)
        os.close(self._parent_fd)


class PrivateFiles:
    """The folder of a slot, with a tmpfs in it where the system lets this user mount one.

    Only the slot's processes see the tmpfs: its size bounds all files of a program, and other
    processes find none of them. Where it cannot be mounted, as in most containers, only the watch
    bounds the files.

    Attributes:
        folder: The folder that holds the scratch folder.
        is_mounted: Whether it has a file system of its own.
    """

    def __init__(self, path: str, megabytes: int, num_copied: int = 0) -> None:
        """Mount the file system, seen by this process and its children; none of size 0.

        `num_copied` files and folders have room in it beside those of a candidate.
        """
        self._below = self.folder = SlotFolder(path)
        self.is_mounted = False
        options = f"size={megabytes}m,nr_inodes={MAX_INODES + num_copied},mode=700"
        mount = partial(kernel.mount_tmpfs, path, options)
        if megabytes > 0 and kernel.IS_LINUX and run_in_fork(mount) == 0:
            with suppress(OSError):  # where this process, but not its fork, has several threads
                mount()
                self.is_mounted = True
        if self.is_mounted:
            self.folder = SlotFolder(path)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        if self.is_mounted:
            with kernel.with_capability(kernel.CAP_SYS_ADMIN):
                mount = os.fsencode(self.folder.descriptor_path)
                kernel.LIBC.umount2(mount, MNT_DETACH)
            self.folder.close()
        self._below.remove()


def _identity(folder_fd: int) -> Identity:
    found = os.fstat(folder_fd)
    return found.st_dev, found.st_ino


def _walk(
    folder_fd: int, enter: Callable[[int], list[str]], leave: Callable[[str, int], None]
) -> None:
    """Go through an open folder and those below, and close it.

    Only one folder is open at a time, as there may be thousands, side by side or in each other.
    Each one on the way up must be the one that was left on the way down.

    Args:
        folder_fd: The folder.
        enter: Is given each folder; the names of those in it to go on with.
        leave: Is given the name of each folder below the first when it is done, and the one above.
    """
    here = folder_fd
    way: list[tuple[str, Identity, list[str]]] = []
    try:
        left = enter(here)
        while left or way:
            if left:
                name = left.pop()
                way.append((name, _identity(here), left))
                there = open_permitted(name, here)
                os.close(here)
                here = there
                left = enter(here)
            else:
                name, above, left = way.pop()
                there = os.open("..", FOLDER_FLAGS, dir_fd=here)
                os.close(here)
                here = there
                if _identity(here) != above:
                    raise OSError(f"the folder {name} was moved while it was looked through")
                leave(name, here)
    finally:
        os.close(here)


def _emptied(folder_fd: int, spared: Collection[str]) -> list[str]:
    """Delete files and empty folders in a folder but `spared`; the names of its other folders."""
    left = []
    with os.scandir(folder_fd) as entries:
        for entry in entries:
            if entry.name in spared:
                continue
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder_fd)
                continue
            try:
                os.rmdir(entry.name, dir_fd=folder_fd)
            except OSError as error:
                if error.errno not in (ENOTEMPTY, EEXIST):
                    raise
                left.append(entry.name)
    return left


def open_permitted(name: str, folder_fd: int) -> int:
    """Open a folder below an open one, after giving its owner all permissions."""
    try:
        inner_fd = os.open(name, FOLDER_FLAGS, dir_fd=folder_fd)
    except PermissionError:
        _permit(name, folder_fd)
        inner_fd = os.open(name, FOLDER_FLAGS, dir_fd=folder_fd)
    try:
        os.fchmod(inner_fd, stat.S_IRWXU)
    except OSError:
        os.close(inner_fd)
        raise
    return inner_fd


def _permit(name: str, folder_fd: int) -> None:
    """Give the owner of a folder all permissions, though it cannot be opened for reading."""
    if not sys.platform.startswith("linux"):
        os.chmod(name, stat.S_IRWXU, dir_fd=folder_fd, follow_symlinks=False)
        return
    path_fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_fd)
    try:
        os.chmod(f"/proc/self/fd/{path_fd}", stat.S_IRWXU)
    finally:
        os.close(path_fd)


def permit_executing(scratch: str) -> int:
    """Let the owner of the files in a folder execute them, links left out; 0."""
    num_left = MAX_FILES

    def permit(folder_fd: int) -> list[str]:
        nonlocal num_left
        folders = []
        for entry in os.scandir(folder_fd):
            num_left -= 1
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                file_fd = os.open(entry.name, FILE_FLAGS, dir_fd=folder_fd)
                if os.fstat(file_fd).st_nlink == 1:
                    os.fchmod(file_fd, stat.S_IRWXU)
                os.close(file_fd)
        return folders if num_left >= 0 else []

    _walk(os.open(scratch, FOLDER_FLAGS), permit, lambda *_: None)
    return 0


def excess(numbers: Iterable[int], scratch: str, max_mb: int, max_files: int = MAX_FILES) -> int:
    """What the files of processes exceed: TOO_LARGE, TOO_MANY, UNSEEN, or 0.

    What cannot be looked at is too large. A small number, so that `run_in_fork` can return it.
    """
    total = 0.0
    for count, blocks in enumerate(_blocks(numbers, scratch)):
        total += blocks * BLOCK_BYTES
        if total > max_mb * MEBIBYTE:
            return TOO_LARGE
        if count > max_files:
            return TOO_MANY
    return UNSEEN if any(map(_hides_files, numbers)) else 0


def excess_reason(code: int, max_mb: int) -> str | None:
    """The reason for what `excess` returned; None for 0."""
    reasons = {
        TOO_LARGE: f"the program's files took more than {max_mb} MB",
        TOO_MANY: f"the program had more than {MAX_FILES} files and folders",
        UNSEEN: "the program mapped shared memory, or a deleted file that it no longer has open:"
        " their size cannot be checked",
    }
    return reasons.get(code)


def _blocks(numbers: Iterable[int], scratch: str) -> Iterator[float]:
    folders = [scratch]
    while folders:
        try:
            for entry in os.scandir(folders.pop()):
                yield entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            yield inf
    deleted = [file for number in numbers for file in _open_and_deleted(number)]
    yield from {(file.st_dev, file.st_ino): file.st_blocks for file in deleted}.values()


def _tasks(number: int) -> list[str]:
    """The folder in /proc of each thread of a process.

    A thread can have descriptors of its own, and the first one can have ended.
    """
    with suppress(OSError):
        return [f"/proc/{number}/task/{name}" for name in os.listdir(f"/proc/{number}/task")]
    return []


def _open_and_deleted(number: int) -> Iterator[os.stat_result]:
    """The deleted files that a process has open."""
    for task in _tasks(number):
        with suppress(OSError):
            for entry in os.scandir(f"{task}/fd"):
                with suppress(OSError):
                    found = entry.stat()
                    if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                        yield found


def _hides_files(number: int) -> bool:
    """Whether a process keeps files whose size cannot be checked.

    It has mapped deleted files without having them open, or cannot be looked at. It may just have
    closed a file between two checks, so it must be seen in the same state twice.
    """
    hidden = _mapped_and_deleted(number) - _mapped_and_deleted(os.getpid())
    for _ in range(2):
        if hidden:
            hidden -= {file.st_ino for file in _open_and_deleted(number)}
            hidden &= _mapped_and_deleted(number)
    return bool(hidden) or any(map(_hides_descriptors, _tasks(number)))


def _mapped_and_deleted(number: int) -> set[int]:
    """The inodes of the deleted files that a process has mapped.

    Not their devices: some file systems show another one here than elsewhere.
    """
    found: set[int] = set()
    for task in _tasks(number):
        with suppress(OSError), open(f"{task}/maps", "rb") as lines:
            found = {int(line.split()[4]) for line in lines if line.endswith(DELETED)}
        if found:
            break
    return found


def _hides_descriptors(task: str) -> bool:
    """Whether a thread that has memory, so is not just ending, shows no descriptors."""
    with suppress(FileNotFoundError, ProcessLookupError):
        try:
            os.scandir(f"{task}/fd").close()
        except PermissionError:
            return not Path(f"{task}/statm").read_text().startswith("0 ")
    return False
