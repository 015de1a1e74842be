"""The run folders below a folder, found without following links and within limits."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_RUNS = 5_000
MAX_ENTRIES = 100_000
"""Files and folders that one scan looks at."""

DEEPEST = 8
"""Levels below the folder at which a run is still found."""

SHOWN_OBSTACLES = 3


@dataclass(slots=True)
class Scan:
    """Paths of run folders relative to the scanned folder, and what could not be looked at."""

    found: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def runs_below(root: Path, settings: str) -> Scan:
    """The folders that hold an ordinary file of the settings' name, in the order of their paths.

    Nothing inside a run folder is looked at, no link is followed, and hidden folders are left out.
    A missing root holds nothing. The notes say which limit was reached and which folders cannot
    be read.
    """
    scan, entries = Scan(), 0
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            below = list(_folders_in(folder, MAX_ENTRIES - entries))
        except FileNotFoundError:
            continue
        except OSError as error:
            if len(scan.notes) < SHOWN_OBSTACLES:
                scan.notes.append(f"{folder.relative_to(root)}: {error.strerror}")
            continue
        entries += len(below)
        for each in below:
            if each is None:
                continue
            if _is_file(each / settings):
                scan.found.append(each.relative_to(root))
            elif depth + 1 < DEEPEST:
                waiting.append((each, depth + 1))
        if len(scan.found) >= MAX_RUNS or entries >= MAX_ENTRIES:
            scan.notes.append(
                f"more than {MAX_RUNS:,} runs or {MAX_ENTRIES:,} files: not all are listed"
            )
            break
    scan.found = sorted(scan.found)[:MAX_RUNS]
    return scan


def _folders_in(folder: Path, most: int) -> Iterator[Path | None]:
    """Each entry of a folder: its path if it is a folder to look into, `None` otherwise."""
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= most:
                return
            is_wanted = not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            yield Path(entry.path) if is_wanted else None


def _is_file(path: Path) -> bool:
    """Whether a path is an ordinary file itself, not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
