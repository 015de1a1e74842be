"""Who came from a process, and how much memory they hold."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress

from costada.evaluators.sandbox.inside import leavings
from costada.evaluators.sandbox.inside.walls import LIBC

HAS_PROC = os.path.exists("/proc/self/statm")
RESIDENT = ("RssAnon:", "RssShmem:")
PROPORTIONAL = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
SYS_KCMP = {"x86_64": 312, "aarch64": 272}
KCMP_VM = 1
PAGE_KILOBYTES = os.sysconf("SC_PAGE_SIZE") // 1024
LISTING = ("/bin/ps", "-A", "-o", "pid=,ppid=,rss=")


def family(number: int) -> dict[int, int]:
    """Return the kilobytes of memory that a process and each that came from it holds.

    Those whose parents have ended count only where orphans come to the process asked about.
    Where there is no /proc, as on macOS, one run of `ps` tells.
    """
    if HAS_PROC:
        return _held([number, *leavings.descendants(number)])
    with subprocess.Popen(LISTING, stdout=subprocess.PIPE, text=True) as asked:
        text, _ = asked.communicate()
    return listed_family(text, number, asked.pid)


def num_threads(number: int) -> int:
    """Return how many threads a process has; 1 where the system does not tell."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return leavings.num_threads(number)
    return 1


def _held(numbers: list[int]) -> dict[int, int]:
    held = {}
    for number in numbers:
        try:
            with open(f"/proc/{number}/statm") as file:
                held[number] = int(file.read().split()[1]) * PAGE_KILOBYTES
        except (FileNotFoundError, ProcessLookupError):
            continue
    return held


def memory_of(numbers: Iterable[int], enough: int) -> int:
    """Return the kilobytes of memory, other than of files, that processes hold together.

    What several of them share counts once. That takes time to find out, so where the sum is below
    `enough` even if nothing is shared, that sum, which may be too large, is returned. Linux only.
    """
    known: list[int] = []
    total = 0
    for number in numbers:
        total += _kilobytes(f"/proc/{number}/status", RESIDENT)
    if total <= enough:
        return total
    total = 0
    for number in numbers:
        if any(_have_one_memory(number, other) for other in known):
            continue
        known.append(number)
        try:
            total += _kilobytes(f"/proc/{number}/smaps_rollup", PROPORTIONAL)
        except PermissionError:
            total += _kilobytes(f"/proc/{number}/status", RESIDENT)
    return total


def _kilobytes(path: str, fields: tuple[str, ...]) -> int:
    """Return the sum of fields of a process's file; 0 if the process is gone."""
    total = 0
    with suppress(FileNotFoundError, ProcessLookupError), open(path) as lines:
        for line in lines:
            if line.startswith(fields):
                total += int(line.split()[1])
    return total


def _have_one_memory(number: int, other: int) -> bool:
    """Return whether two processes are one in memory: one waits until the other starts a program.

    Where the system cannot say, they count as two.
    """
    call = SYS_KCMP.get(os.uname().machine)
    return call is not None and LIBC.syscall(call, number, other, KCMP_VM, 0, 0) == 0


def listed_family(listing: str, number: int, without: int) -> dict[int, int]:
    """Return the same from lines of process, parent and kilobytes; one process does not count."""
    rows = [[int(word) for word in line.split()] for line in listing.splitlines()]
    held = {own: kilobytes for own, _, kilobytes in rows if own != without}
    parents = {own: parent for own, parent, _ in rows}
    return {own: kilobytes for own, kilobytes in held.items() if _comes_from(own, number, parents)}


def _comes_from(own: int, number: int, parents: Mapping[int, int]) -> bool:
    seen = set()
    while own != number and own in parents and own not in seen:
        seen.add(own)
        own = parents[own]
    return own == number
