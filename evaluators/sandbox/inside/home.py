"""The folder of a slot, held open: emptied and removed without following any link.

A candidate may own the folder and all around it, so no path of it is trusted. Everything is reached
by descriptors from the folder that was opened before the first candidate, and never through a link.
"""

import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from errno import EEXIST, ENOTEMPTY

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
MAX_OPEN_FOLDERS = 8

Identity = tuple[int, int]
"""Device and number of a folder."""


class Home:
    """The folder of a slot, which holds the scratch folder of one candidate after the other."""

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            OSError: If it is no folder, or a link to one.
        """
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
        """Whether the folder still lies where it was opened."""
        with suppress(FileNotFoundError):
            found = os.stat(self._name, dir_fd=self._parent_fd, follow_symlinks=False)
            return (found.st_dev, found.st_ino) == self._identity
        return False

    @property
    def descriptor_path(self) -> str:
        """A path that leads to it wherever it lies (Linux only)."""
        return f"/proc/self/fd/{self._fd}"

    def make(self, name: str) -> None:
        """Make a private folder in it."""
        os.fchmod(self._fd, stat.S_IRWXU)
        os.mkdir(name, stat.S_IRWXU, dir_fd=self._fd)

    def enter(self, name: str) -> None:
        """Make a folder in it the working folder of this process."""
        there = os.open(name, FOLDER_FLAGS, dir_fd=self._fd)
        os.fchdir(there)
        os.close(there)

    def rename(self, name: str, new: str) -> None:
        """Give something in it another name."""
        os.rename(name, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def clear(self, usual: str, ask: Callable[[Callable[[], int]], int]) -> None:
        """Empty it, which mostly holds one folder with one file.

        Args:
            usual: The path of that file.
            ask: Asks a question in another process; names of other files are read only there.

        Raises:
            OSError: If something cannot be removed.
        """
        folder, file = os.path.split(usual)
        with suppress(OSError):
            there = os.open(folder, FOLDER_FLAGS, dir_fd=self._fd)
            try:
                os.unlink(file, dir_fd=there)
            finally:
                os.close(there)
            os.rmdir(folder, dir_fd=self._fd)
        with os.scandir(self._fd) as entries:
            is_empty = next(entries, None) is None
        if not is_empty and ask(self._is_left):
            raise OSError(f"{usual} and what lies beside it cannot be removed")

    def _is_left(self) -> bool:
        """Return whether anything is left after all was removed: never."""
        self.empty()
        return False

    def empty(self) -> None:
        """Delete all that is in it, however deep, and whatever its permissions.

        Raises:
            OSError: If something cannot be deleted, or a folder is moved at the same time.
        """
        os.fchmod(self._fd, stat.S_IRWXU)
        _empty(os.dup(self._fd))

    def remove(self) -> None:
        """Remove it with all that is in it, wherever it is now, and a link in its place.

        Raises:
            OSError: If something cannot be deleted, or a folder is moved at the same time.
        """
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
        """Let go of it."""
        os.close(self._fd)
        os.close(self._parent_fd)


def _identity(folder_fd: int) -> Identity:
    found = os.fstat(folder_fd)
    return found.st_dev, found.st_ino


def _empty(folder_fd: int) -> None:
    """Delete what is in an open folder, and close that.

    Few folders are open at a time, as there may be thousands of levels. Each folder on the way back
    must be the one that was left on the way down.
    """
    here = folder_fd
    way: list[tuple[str, Identity]] = []
    try:
        while (more := _emptied_up_to(here, MAX_OPEN_FOLDERS)) or way:
            for name in more:
                way.append((name, _identity(here)))
                there = _opened(name, here)
                os.close(here)
                here = there
            if not more:
                name, above = way.pop()
                there = os.open("..", FOLDER_FLAGS, dir_fd=here)
                os.close(here)
                here = there
                if _identity(here) != above:
                    raise OSError(f"the folder {name} was moved while it was emptied")
                os.rmdir(name, dir_fd=here)
    finally:
        os.close(here)


def _emptied_up_to(folder_fd: int, levels: int) -> list[str]:
    """Delete what can be deleted in a folder, and so many levels of folders in it.

    Returns the way to the first folder further down that holds something; nothing if none does.
    """
    with os.scandir(folder_fd) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder_fd)
            elif more := _removed_up_to(folder_fd, entry.name, levels):
                return more
    return []


def _removed_up_to(folder_fd: int, name: str, levels: int) -> list[str]:
    """Remove a folder in an open one; if it is too deep, return the way as above."""
    if _is_removed(folder_fd, name):
        return []
    if levels == 0:
        return [name]
    there = _opened(name, folder_fd)
    try:
        more = _emptied_up_to(there, levels - 1)
    finally:
        os.close(there)
    if more:
        return [name, *more]
    os.rmdir(name, dir_fd=folder_fd)
    return []


def _is_removed(folder_fd: int, name: str) -> bool:
    """Remove a folder if it is empty; return whether it was."""
    try:
        os.rmdir(name, dir_fd=folder_fd)
    except OSError as error:
        if error.errno not in (ENOTEMPTY, EEXIST):
            raise
        return False
    return True


def _opened(name: str, folder_fd: int) -> int:
    """Open a folder in an open one, with all permissions for its owner."""
    try:
        there = os.open(name, FOLDER_FLAGS, dir_fd=folder_fd)
    except PermissionError:
        _permit(name, folder_fd)
        there = os.open(name, FOLDER_FLAGS, dir_fd=folder_fd)
    try:
        os.fchmod(there, stat.S_IRWXU)
    except OSError:
        os.close(there)
        raise
    return there


def _permit(name: str, folder_fd: int) -> None:
    """Give the owner of a folder all permissions, though it cannot be opened for reading."""
    if not sys.platform.startswith("linux"):
        os.chmod(name, stat.S_IRWXU, dir_fd=folder_fd, follow_symlinks=False)
        return
    there = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_fd)
    try:
        os.chmod(f"/proc/self/fd/{there}", stat.S_IRWXU)
    finally:
        os.close(there)
