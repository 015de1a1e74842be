"""Who came from a process, and how much memory they hold."""

import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress

from costada.evaluators.sandbox.inside import leavings

HAS_PROC = os.path.exists("/proc/self/statm")
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
