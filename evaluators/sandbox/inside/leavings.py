"""What a candidate's process has and leaves: its threads, its descendants and its files."""

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from errno import EEXIST, ENOTEMPTY
from pathlib import Path

MEBIBYTE = 1024 * 1024
BLOCK_BYTES = 512
MAX_FILES = 4096
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def end(number: int) -> int:
    """Kill a child of this process and all that came from it; return its exit status.

    Negative is the signal that ended it. Orphans become children of this process (Linux), and
    this process has no children of its own besides.
    """
    os.kill(number, signal.SIGKILL)
    _, status = os.waitpid(number, 0)
    while _reap_one():
        for left in descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _reap_one() -> bool:
    """Return whether there are children left, after taking one that has ended."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def children(number: int) -> list[int]:
    """Return the processes that a process has started and that have not been reaped."""
    path = Path(f"/proc/{number}/task/{number}/children")
    if path.exists():
        return [int(word) for word in path.read_text().split()]
    return [own for own, parent in _parents() if parent == number]


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if entry.isdigit():
                after_name = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2]
                yield int(entry), int(after_name.split()[1])


def descendants(number: int) -> list[int]:
    """Return the processes that came from a process, as far as their parents are alive."""
    found = children(number)
    for one in found:
        with suppress(FileNotFoundError, ProcessLookupError):
            found.extend(children(one))
    return found


def num_threads(number: int) -> int:
    """Return how many threads a process has."""
    after_name = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2]
    return int(after_name.split()[17])


def is_too_large(number: int, scratch: str, max_mb: int) -> bool:
    """Return whether the files of a process pass a size, deleted ones that are open included."""
    total = 0
    for count, blocks in enumerate(_blocks(number, scratch)):
        total += blocks * BLOCK_BYTES
        if total > max_mb * MEBIBYTE or count > MAX_FILES:
            return True
    return False


def _blocks(number: int, scratch: str) -> Iterator[int]:
    folders = [scratch]
    while folders:
        with suppress(OSError):
            for entry in os.scandir(folders.pop()):
                yield entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{number}/fd"):
            with suppress(OSError):
                found = entry.stat()
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                    yield found.st_blocks


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, however deep, and whatever its permissions.

    No link is followed, not even in the folder's own place, and only one folder is open at a time:
    there may be thousands of levels.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            os.unlink(folder)
            return
        os.chmod(folder, stat.S_IRWXU)
        here = os.open(folder, FOLDER_FLAGS)
        way: list[str] = []
        while (name := _emptied_up_to(here)) is not None or way:
            there = os.open(".." if name is None else name, FOLDER_FLAGS, dir_fd=here)
            os.close(here)
            here = there
            if name is None:
                os.rmdir(way.pop(), dir_fd=here)
            else:
                way.append(name)
        os.close(here)
        os.rmdir(folder)


def _emptied_up_to(folder_fd: int) -> str | None:
    """Delete what can be deleted in a folder; return the first subfolder that holds something."""
    with os.scandir(folder_fd) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder_fd)
                continue
            os.chmod(entry.name, stat.S_IRWXU, dir_fd=folder_fd)
            try:
                os.rmdir(entry.name, dir_fd=folder_fd)
            except OSError as error:
                if error.errno not in (ENOTEMPTY, EEXIST):
                    raise
                return entry.name
    return None
