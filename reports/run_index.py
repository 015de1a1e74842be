"""The runs below a folder as rows of an index, kept up to date while they run."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic
from urllib.parse import quote

from costada.reports.alerts import AlertLimits
from costada.reports.indexed_run import NO_LIMITS, IndexedRun, Json, files_of
from costada.reports.run_view import RunView
from costada.store.accounts import Account

ONE_RUN, RUNS, WAITING = "run", "runs", "waiting"
READING_SECONDS = 0.3
"""How long one refresh reads runs; the next continues."""

SCAN_SHARE = 10
"""The folder is scanned again after so many times what the last scan took."""


class RunIndex:
    """The run at a path, or the runs below it; may be used from several threads.

    The path need not exist yet. Runs have names: their paths relative to it, quoted for a URL. A
    run is read again when its files have changed, and only from where the last reading ended.
    """

    def __init__(
        self,
        root: Path,
        open_run: Callable[[Path], RunView],
        limits: AlertLimits = NO_LIMITS,
    ) -> None:
        """Take the path, what makes a run of a folder, and from where on rows have alerts.

        Raises:
            ValueError: If the path is not a folder, or holds a run whose settings cannot be read.
        """
        if root.exists() and not root.is_dir():
            raise ValueError(f"{root}: is a file, expected the folder of a run, or of several")
        self.root = root
        self._limits = limits
        self._open_run = open_run
        self._whole = open_run(root)
        self._whole_row = IndexedRun("", self._whole, lambda _: ())
        self._lock = Lock()
        self._runs: dict[str, IndexedRun] = {}
        self._unchecked: deque[IndexedRun] = deque()
        self._notes: list[str] = []
        self._revision = 0
        self._oldest = 0
        self._next_scan = 0.0
        if self.is_one_run:
            self._whole.load()

    @property
    def is_one_run(self) -> bool:
        """Whether the path is itself the folder of a run."""
        return self._whole.settings.is_file()

    @property
    def title(self) -> str:
        """What a page of the index is called."""
        return self.root.absolute().name

    @property
    def kind(self) -> str:
        """`run` if the path is a run itself, `runs` if there are some below it, else `waiting`."""
        return ONE_RUN if self.is_one_run else RUNS if self.names else WAITING

    @property
    def names(self) -> Sequence[str]:
        """The names of the runs below the path, found again."""
        with self._lock:
            self._scan()
            return list(self._runs)

    def run(self, name: str) -> RunView:
        """The run of a name, the empty one for the run at the path itself.

        Raises:
            LookupError: If there is none.
        """
        if not name and self.is_one_run:
            return self._whole
        with self._lock:
            if name not in self._runs:
                self._scan()
            return self._runs[name].run

    def rows(self, after: int = 0) -> Json:
        """The rows that have changed after a revision, or all if a run has been removed since.

        `unread` counts the runs that the next call will look at first.
        """
        with self._lock:
            if not self._unchecked:
                self._scan()
            unread = self._refresh()
            since = after if self._oldest <= after <= self._revision else 0
            kind = ONE_RUN if self.is_one_run else RUNS if self._runs else WAITING
            rows = [each.row for each in self._runs.values() if each.revision > since]
            return {
                "kind": kind,
                "folder": self.title,
                "after": since,
                "revision": self._revision,
                "rows": [] if kind == ONE_RUN else rows,
                "unread": unread,
                "notes": self._notes,
            }

    def all_rows(self) -> list[Json]:
        """The rows read so far, also that of the run at the path itself; `num_unread` are left."""
        if self.is_one_run:
            with self._lock:
                self._whole_row.name = quote(self.title)
                self._whole_row.read(self._limits)
                return [self._whole_row.row]
        self.rows(self._revision)
        with self._lock:
            return [each.row for each in self._runs.values() if each.row]

    @property
    def num_unread(self) -> int:
        """How many runs the last look has left for the next one."""
        return len(self._unchecked)

    def purses(self) -> list[Account]:
        """The purses that pay for the runs, as far as they are kept in the same place."""
        return []

    def jobs(self) -> Mapping[tuple[str, str], int]:
        """How many jobs of a queue in the same place each team has in each state."""
        return {}

    def _scan(self) -> None:
        """Find new runs and forget removed ones; the caller holds the lock."""
        began = monotonic()
        if self.is_one_run or began < self._next_scan:
            return
        scan = runs_below(self.root, self._whole.settings.name)
        # Names of folders are bytes and need not be UTF-8.
        found = {quote(os.fsencode(path)): path for path in scan.found}
        if self._runs.keys() - found.keys():
            self._revision += 1
            self._oldest = self._revision
        self._runs = {
            name: self._runs.get(name)
            or IndexedRun(name, self._open_run(self.root / path), files_of)
            for name, path in found.items()
        }
        self._notes = scan.notes
        self._next_scan = monotonic() + SCAN_SHARE * (monotonic() - began)

    def _refresh(self) -> int:
        """Bring the rows up to date; returns how many are left for the next time."""
        # The caller holds the lock: a request must not wait until hundreds of runs are read.
        deadline, next_revision = monotonic() + READING_SECONDS, self._revision + 1
        if not self._unchecked:
            runs = self._runs.values()
            # The last to begin first, as the page shows them.
            new = sorted((each for each in runs if not each.row), key=_claimed_at, reverse=True)
            self._unchecked.extend([*new, *(each for each in runs if each.row)])
        while self._unchecked and monotonic() < deadline:
            each = self._unchecked.popleft()
            if self._runs.get(each.name) is each and not each.is_current():
                each.read(self._limits)
                each.revision = self._revision = next_revision
        return len(self._unchecked)


def _claimed_at(indexed: IndexedRun) -> float:
    return indexed.run.claimed_at or 0.0


MAX_RUNS = 5_000
MAX_ENTRIES = 100_000
"""Files and folders that one scan looks at."""

MAX_DEPTH = 8
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
            elif depth + 1 < MAX_DEPTH:
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
