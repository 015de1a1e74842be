"""What a candidate's process has and leaves: its threads, its descendants and its files."""

import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from errno import EEXIST, ENOTEMPTY
from math import inf
from pathlib import Path

MEBIBYTE = 1024 * 1024
BLOCK_BYTES = 512
MAX_FILES = 4096
HAS_CHILDREN_FILES = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def end(number: int) -> int:
    """Kill a child of this process and all that came from it; return its exit status.

    Negative is the signal that ended it. Orphans become children of this process (Linux), and
    this process has no children of its own besides.
    """
    os.kill(number, signal.SIGKILL)
    _, status = os.waitpid(number, 0)
    while _reap():
        for left in descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _reap() -> bool:
    """Take the children that have ended; return whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def children(number: int) -> list[int]:
    """Return the unreaped processes that a process has started; none if it is gone."""
    if not HAS_CHILDREN_FILES:
        return [own for own, parent in _parents() if parent == number]
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{number}/task"):
            with suppress(FileNotFoundError, ProcessLookupError):
                text = Path(f"/proc/{number}/task/{thread}/children").read_text()
                found += [int(word) for word in text.split()]
    return found


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
    return os.stat(f"/proc/{number}/task").st_nlink - 2


def is_too_large(numbers: Iterable[int], scratch: str, max_mb: int) -> bool:
    """Return whether the files of processes pass a size, deleted ones that are open included.

    What cannot be looked at counts as too large.
    """
    total = 0.0
    for count, blocks in enumerate(_blocks(numbers, scratch)):
        total += blocks * BLOCK_BYTES
        if total > max_mb * MEBIBYTE or count > MAX_FILES:
            return True
    return False


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
    for number in numbers:
        yield from _blocks_of_deleted(number)


def _blocks_of_deleted(number: int) -> Iterator[int]:
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{number}/fd"):
            with suppress(OSError):
                found = entry.stat()
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                    yield found.st_blocks


def apart(question: Callable[[], bool]) -> bool:
    """Return the answer to a question, asked in a fork of this process.

    What it reads, such as the names of a candidate's files, does not stay in our memory, which the
    next candidate inherits. A question that raises counts as answered with yes.
    """
    number = os.fork()
    if number == 0:
        try:
            os._exit(int(question()))
        finally:
            os._exit(1)
    return os.waitpid(number, 0)[1] != 0


def clear(folder: str, usual: str) -> None:
    """Remove a folder that mostly holds one file; names of others are read only in a fork.

    Raises:
        OSError: If something cannot be removed.
    """
    with suppress(OSError):
        os.unlink(os.path.join(folder, usual))
        os.rmdir(folder)
        return
    if apart(lambda: _is_left(folder)):
        raise OSError(f"{folder} cannot be removed")


def empty(home: str) -> None:
    """Remove all that is in a folder; candidates can leave things beside their scratch folder."""
    with os.scandir(home) as entries:
        for entry in entries:
            remove(entry.path)


def _is_left(folder: str) -> bool:
    """Return whether a folder is still there after it was removed: never."""
    remove(folder)
    return False


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
