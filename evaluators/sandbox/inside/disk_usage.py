"""How much the files of a candidate's processes take, deleted ones that are still open too."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import inf
from pathlib import Path

MEBIBYTE = 1024 * 1024
BLOCK_BYTES = 512
MAX_FILES = 4096
DELETED = b" (deleted)\n"
TOO_LARGE, TOO_MANY, UNSEEN = 1, 2, 3


def excess(numbers: Iterable[int], scratch: str, max_mb: int) -> int:
    """What the files of processes exceed: TOO_LARGE, TOO_MANY, UNSEEN, or 0.

    What cannot be looked at is too large. A small number, so that `run_in_fork` can return it.
    """
    total = 0.0
    for count, blocks in enumerate(_blocks(numbers, scratch)):
        total += blocks * BLOCK_BYTES
        if total > max_mb * MEBIBYTE:
            return TOO_LARGE
        if count > MAX_FILES:
            return TOO_MANY
    return UNSEEN if any(map(_hides_files, numbers)) else 0


def excess_reason(passed: int, max_mb: int) -> str | None:
    """The reason for what `excess` returned; None for 0."""
    reasons = {
        TOO_LARGE: f"the program's files took more than {max_mb} MB",
        TOO_MANY: f"the program had more than {MAX_FILES} files and folders",
        UNSEEN: "the program mapped shared memory, or a deleted file that it no longer has open:"
        " their size cannot be checked",
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
    closed a file between two looks, so it must be seen in the same state twice.
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
