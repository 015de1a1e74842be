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
    """Return what the files of processes pass: 1 a size, 2 a count, 3 what can be seen; else 0.

    Deleted files that are open count too. What cannot be looked at is too large.
    """
    total = 0.0
    for count, blocks in enumerate(_blocks(numbers, scratch)):
        total += blocks * BLOCK_BYTES
        if total > max_mb * MEBIBYTE:
            return 1
        if count > MAX_FILES:
            return 2
    return 3 if any(map(_hides_files, numbers)) else 0


def excess_reason(passed: int, max_mb: int) -> str | None:
    """Return the reason for what `excess` returned; None for 0."""
    reasons = {
        1: f"the program's files took more than {max_mb} MB",
        2: f"the program had more than {MAX_FILES} files and folders",
        3: "the program mapped shared memory, or a deleted file that it no longer has open: their"
        " size cannot be checked",
    }
    return reasons.get(passed)


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
        deleted |= {
            (file.st_dev, file.st_ino): file.st_blocks for file in _open_and_deleted(number)
        }
    yield from deleted.values()


def _tasks(number: int) -> list[str]:
    """Return the folder of /proc of each thread of a process.

    A thread can have descriptors of its own, and that which was first can have ended.
    """
    with suppress(OSError):
        return [f"/proc/{number}/task/{name}" for name in os.listdir(f"/proc/{number}/task")]
    return []


def _open_and_deleted(number: int) -> Iterator[os.stat_result]:
    """Yield the deleted files that a process has open."""
    for task in _tasks(number):
        with suppress(OSError):
            for entry in os.scandir(f"{task}/fd"):
                with suppress(OSError):
                    found = entry.stat()
                    if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                        yield found


def _hides_files(number: int) -> bool:
    """Return whether a process keeps files whose size cannot be checked.

    It has mapped deleted files without having them open, or cannot be looked at. It may just have
    let go of a file between two looks, so it must be seen in the same state twice.
    """
    inherited = _mapped_and_deleted(os.getpid())
    hidden = _mapped_and_deleted(number) - inherited
    for _ in range(2):
        if hidden:
            hidden -= {file.st_ino for file in _open_and_deleted(number)}
            hidden &= _mapped_and_deleted(number)
    return bool(hidden) or any(map(_is_closed, _tasks(number)))


def _mapped_and_deleted(number: int) -> set[int]:
    """Return the numbers of the deleted files that a process has mapped.

    Not their devices: some file systems show another one here than elsewhere.
    """
    found: set[int] = set()
    for task in _tasks(number):
        with suppress(OSError), open(f"{task}/maps", "rb") as lines:
            found = {int(line.split()[4]) for line in lines if line.endswith(DELETED)}
        if found:
            break
    return found


def _is_closed(task: str) -> bool:
    """Return whether a thread that has memory, so is not just ending, shows no descriptors."""
    with suppress(FileNotFoundError, ProcessLookupError):
        try:
            os.scandir(f"{task}/fd").close()
        except PermissionError:
            return not Path(f"{task}/statm").read_text().startswith("0 ")
    return False


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
