"""What a candidate's process has and leaves: its threads, its descendants and its files."""

import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import inf
from pathlib import Path

MEBIBYTE = 1024 * 1024
BLOCK_BYTES = 512
MAX_FILES = 4096
HAS_CHILDREN_FILES = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
DELETED = b" (deleted)\n"


def end(number: int) -> int:
    """Kill a child of this process and all that came from it; return its exit status.

    Negative is the signal that ended it. Orphans become children of this process (Linux), and
    this process has no children of its own besides.
    """
    os.kill(number, signal.SIGKILL)
    statuses: dict[int, int] = {}
    while _reap(statuses):
        for left in descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
    return os.waitstatus_to_exitcode(statuses[number])


def _reap(statuses: dict[int, int]) -> bool:
    """Take the children that have ended, and note how; return whether there are others.

    Never waits: who traces a child gets its end first, and must be killed for that.
    """
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses.setdefault(*ended)
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


def excess(numbers: Iterable[int], scratch: str, max_mb: int) -> int:
    """Return what the files of processes pass: 1 a size, 2 a count; 0 if neither.

    Deleted files that are open or mapped count too. What cannot be looked at is too large.
    """
    total = 0.0
    for count, blocks in enumerate(_blocks(numbers, scratch)):
        total += blocks * BLOCK_BYTES
        if total > max_mb * MEBIBYTE:
            return 1
        if count > MAX_FILES:
            return 2
    return 0


def told_excess(passed: int, max_mb: int) -> str | None:
    """Return what is said of a program whose files pass a size (1) or a count (2)."""
    if passed == 2:
        return f"the program had more than {MAX_FILES} files and folders"
    return f"the program's files took more than {max_mb} MB" if passed else None


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
    deleted: dict[tuple[int, int], float] = {}
    for number in numbers:
        deleted |= dict(_mapped_and_deleted(number, os.path.dirname(scratch))) | deleted
        deleted |= dict(_open_and_deleted(number))
    yield from deleted.values()


def _open_and_deleted(number: int) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield device, number and blocks of the deleted files that a process has open."""
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{number}/fd"):
            with suppress(OSError):
                found = entry.stat()
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                    yield (found.st_dev, found.st_ino), found.st_blocks


def _mapped_and_deleted(number: int, home: str) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield the same of those below a folder that it has mapped; at least what is mapped."""
    with suppress(OSError), open(f"/proc/{number}/maps", "rb") as lines:
        for line in lines:
            if not line.endswith(DELETED) or b" %s/" % os.fsencode(home) not in line:
                continue
            span, _, _, device, inode, _ = line.split(maxsplit=5)
            begin, end = (int(word, 16) for word in span.split(b"-"))
            major, minor = (int(word, 16) for word in device.split(b":"))
            yield (os.makedev(major, minor), int(inode)), (end - begin) / BLOCK_BYTES


def apart(question: Callable[[], int]) -> int:
    """Return the answer to a question, a small number, asked in a fork of this process.

    What it reads, such as the names of a candidate's files, does not stay in our memory, which the
    next candidate inherits. A question that raises counts as answered with 1.
    """
    number = os.fork()
    if number == 0:
        try:
            os._exit(question())
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
