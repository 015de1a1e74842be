"""The runs below a folder as rows of an index, kept up to date while they run."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any
from urllib.parse import quote

from costada.reports.page.opening import RUNNING, heading, standing
from costada.reports.progress import remaining_iterations
from costada.reports.run_view import RunSettings, RunView
from costada.reports.summary import crossing_text
from costada.store.address import is_there
from costada.store.candidates import SEED_ID
from costada.store.history import LAST_TICKET, Iterations, RoleUse, RunHistory, Tickets
from costada.store.rows import checking_rows
from costada.values.numbering import START, START_TICKET, Iteration
from costada.values.roles import ROLES

Json = Mapping[str, object]
Point = tuple[float, float | None, float]
"""Dollars spent, best objective and best score."""

ONE_RUN, RUNS, WAITING = "run", "runs", "waiting"
UNREADABLE = "unreadable"
MAX_CURVE = 300
"""Points of a curve; of a longer one, some are left out evenly."""

MAX_TEXT = 300
"""Characters of a name or of an error in a row."""

READING_SECONDS = 0.3
"""How long one refresh reads runs that it does not know; the next one continues."""

SCAN_SHARE = 10
"""The folder is scanned again after so many times what the last scan took."""

FILES = ("", "-wal")
"""Ends of the names of the files that a running run writes."""


class RunIndex:
    """The run at a path, or the runs below it; may be used from several threads.

    The path need not exist yet. Runs have names: their paths relative to it, quoted for a URL. A
    run is read again when its files have changed, and only from where the last reading ended.
    """

    def __init__(self, root: Path, open_run: Callable[[Path], RunView]) -> None:
        """Take the path and what makes a run of a folder.

        Raises:
            ValueError: If the path is not a folder, or holds a run whose settings cannot be read.
        """
        if root.exists() and not root.is_dir():
            raise ValueError(f"{root}: is a file, expected the folder of a run, or of several")
        self.root = root
        self._open_run = open_run
        self._whole = open_run(root)
        self._lock = Lock()
        self._runs: dict[str, IndexedRun] = {}
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

        `unread` counts the runs that the next call will read.
        """
        with self._lock:
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
        deadline, unread, next_revision = monotonic() + READING_SECONDS, 0, self._revision + 1
        for each in self._runs.values():
            if each.is_current():
                continue
            if monotonic() > deadline:
                unread += 1
                continue
            each.read()
            each.revision = self._revision = next_revision
        return unread


class IndexedRun:
    """One run of the index: its row, and what is needed to continue its reading."""

    def __init__(
        self, name: str, run: RunView, signature: Callable[[RunView], tuple[object, ...]]
    ) -> None:
        """Read nothing yet; `signature` changes whenever the row may."""
        self.name = name
        self.run = run
        self._signature = signature
        self.row: Json = {}
        self.revision = 0
        self._seen: tuple[object, ...] = ()
        self._timed: Iteration = START
        self._seconds = 0.0  # of the nodes, up to `_timed`
        self._forget("")

    def is_current(self) -> bool:
        """Whether the row is up to date."""
        return self._seen == self._signature(self.run)

    def read(self) -> None:
        """Make the row again; for an unreadable run it holds the reason."""
        # Before the files are read: what changes meanwhile makes the next look read them again.
        self._seen = self._signature(self.run)
        known = {"id": self.name, "began": self._began()}
        try:
            settings = self.run.load()
            self.row = {**known, **self._facts(settings)}
        except (ValueError, OSError, OverflowError, sqlite3.Error) as error:
            self._forget("")
            self.row = {**known, "state": UNREADABLE, "words": _short(str(error)), "curve": []}

    def _facts(self, settings: RunSettings) -> dict[str, object]:
        if not is_there(self.run.database):
            self._forget("")
            facts = heading(self.run, settings)
            return {**self._heading(facts), **self._standing(settings, facts, [])}
        with RunHistory.of(self.run.database) as history:
            run_id = history.last_run()
            if run_id != self._run_id:
                self._forget(run_id)
            known: Iteration = self._tail[-1]["iteration"] if self._tail else START
            with checking_rows(self.run.database):
                if not self._curve:
                    for each in history.candidates(Tickets(run_id, LAST_TICKET, [START_TICKET])):
                        if each.id == SEED_ID:
                            self._add_best(0.0, each.facts["objective"], each.facts["score"])
                for step in history.steps(Iterations(run_id, known)):
                    self._add(step)
                for iteration, seconds in history.seconds(Iterations(run_id, self._timed)):
                    self._timed = iteration
                    self._seconds += _number(seconds)
                facts = heading(self.run, settings, history, run_id)
                used = history.use_by_role(run_id)
                return {**self._heading(facts), **self._standing(settings, facts, used)}

    def _forget(self, run_id: str) -> None:
        self._run_id = run_id
        self._tail: list[dict[str, Any]] = []  # the last step, and failed ones right before it
        self._curve: list[Point] = []
        self._timed, self._seconds = START, 0.0

    def _add(self, step: dict[str, Any]) -> None:
        spent = _number(step["spent"])
        self._add_best(spent, step["best_objective"], step["best_score"])
        kept = {name: step[name] for name in ("events", "failure", "attempts", "best_score")}
        kept |= {"spent": spent, "iteration": int(step["iteration"])}
        if not kept["failure"]:
            self._tail.clear()
        self._tail.append(kept)

    def _add_best(self, spent: float, objective: object, score: object) -> None:
        best = None if objective is None else _number(objective), _number(score)
        if not self._curve or self._curve[-1][1:] != best:
            self._curve.append((spent, *best))

    def _heading(self, found: Mapping[str, object]) -> dict[str, object]:
        names = ("problem", "method", "model", "seed", "budget", "max_iterations", "direction")
        return {
            name: _short(value) if isinstance(value := found[name], str) else value
            for name in names
        }

    def _standing(
        self, settings: RunSettings, problem: Mapping[str, object], used: Sequence[RoleUse]
    ) -> dict[str, object]:
        start_score = self._curve[0][2] if self._curve else None
        now = standing(self.run, settings, self._tail, problem, start_score)
        last = self._tail[-1] if self._tail else {}
        curve = list(self._curve)
        if len(curve) > MAX_CURVE:
            # Rounded up, so that no more than MAX_CURVE points stay.
            stride = -(-len(curve) // MAX_CURVE)
            curve = [*curve[:-1:stride], curve[-1]]
        spent = last.get("spent", 0.0)
        gained_at = self._curve[-1][0] if curve else 0.0
        if curve:
            # The curve holds changes only; the last value lasts to the dollars spent by now.
            curve.append((spent, *curve[-1][1:]))
        return {
            "state": now["state"],
            "words": _short(now["words"]),
            "spent": spent,
            "iterations": last.get("iteration", 0),
            "best": curve[-1][1] if curve else None,
            "curve": curve,
            "since_gain": spent - gained_at,
            "over": crossing_text(spent - settings.budget, settings.parallel),
            **self._money_and_time(settings, used, is_running=now["state"] == RUNNING),
        }

    def _money_and_time(
        self, settings: RunSettings, used: Sequence[RoleUse], *, is_running: bool
    ) -> dict[str, object]:
        """Dollars by role, seconds at work, dollars an hour, and when a running run ends.

        The seconds reach from the first request to the end of the last one, but are no more than
        its nodes took together: so the pauses of a sequential run do not count.
        """
        dollars = {each.role: _number(each.dollars) for each in used}
        in_order = dict.fromkeys((*ROLES, *dollars))
        by_role = [(role, dollars[role]) for role in in_order if dollars.get(role)]
        began = [_number(each.began) for each in used if each.began is not None]
        ended = [_number(each.ended) for each in used if each.ended is not None]
        if not (self._tail and began and ended):
            return {"roles": by_role, "seconds": None, "hourly": None, "ends": None}
        seconds = max(ended) - min(began)
        if self._seconds:
            seconds = min(seconds, self._seconds)
        last, ends = self._tail[-1], None
        if is_running:
            left = remaining_iterations(
                settings.budget, last["spent"], last["iteration"], settings.max_iterations
            )
            ends = max(ended) + left * seconds / last["iteration"]
        hourly = _number(3600 * last["spent"] / seconds) if seconds > 0 else None
        return {"roles": by_role, "seconds": seconds, "hourly": hourly, "ends": ends}

    def _began(self) -> str:
        """When the settings were written: the run began, or was resumed with others."""
        seconds = self.run.claimed_at
        if seconds is None:
            return ""
        try:
            return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
        except (OSError, ValueError, OverflowError):  # a year beyond 9999
            return ""


def files_of(run: RunView) -> tuple[object, ...]:
    """The state of the files of a run, which changes whenever its row may."""
    files = [run.settings, *(Path(f"{run.database}{end}") for end in FILES)]
    # A run that is killed changes none of its files, only who holds its lock.
    return (*map(_state_of, files), run.is_running)


def _state_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _number(value: object) -> float:
    """A finite number; raises `TypeError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise TypeError(f"got {str(value)[:20]!r}, expected a finite number")
    return float(value)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


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
