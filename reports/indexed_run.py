"""One run of an index: its row, continued from where the last reading ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from costada.reports.alerts import UNREADABLE, AlertLimits, alerts_of
from costada.reports.kept_row import MAX_CURVE, MAX_TEXT, Point, file_states, kept_row
from costada.reports.page.opening import RUNNING, name_of, problem_facts, standing
from costada.reports.progress import remaining_iterations
from costada.reports.run_view import RunSettings, RunView
from costada.reports.trace import ticket_of
from costada.store.address import is_there
from costada.store.candidates import SEED_ID
from costada.store.history import Iterations, RunHistory
from costada.store.rows import RunSetup, checking_rows
from costada.values.numbering import START, START_TICKET, Iteration
from costada.values.roles import ROLES

Json = Mapping[str, Any]
NO_LIMITS = AlertLimits()


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

    def read(self, limits: AlertLimits = NO_LIMITS) -> None:
        """Make the row again, with its alerts; for an unreadable run it holds the reason."""
        before = self.row
        # Before the files are read: what changes meanwhile makes the next look read them again.
        self._seen = self._signature(self.run)
        row = self._made(is_running=bool(before.get("is_running")))
        self.row = {**row, "alerts": alerts_of(row, before, limits)}

    def _made(self, *, is_running: bool) -> dict[str, Any]:
        """A row without alerts; it `is_running` as before, if nobody can say."""
        known = {"id": self.name, "began": self._began()}
        held_since: float | None = None
        try:
            held_since = self.run.held_since
            is_running = held_since is not None
            kept = None if is_running or self._run_id else kept_row(self.run)
            facts = kept or self._facts(self.run.load(), is_running)
        except (ValueError, OSError, OverflowError, sqlite3.Error) as error:
            self._forget("")
            facts = {"state": UNREADABLE, "words": _short(str(error)), "curve": []}
        return {**known, **facts, "is_running": is_running, "held_since": held_since}

    def _facts(self, settings: RunSettings, is_running: bool) -> Json:
        if not is_there(self.run.database):
            self._forget("")
            return self._row(settings, None)
        with RunHistory.of(self.run.database, is_idle=not is_running) as history:
            run_id = history.last_run()
            known: Iteration = self._tail[-1]["iteration"] if self._tail else START
            is_older = known and history.last_iteration(run_id) < known  # a copy replaced the file
            with checking_rows(self.run.database):
                if run_id != self._run_id or is_older or self._is_settled(history):
                    self._forget(run_id)
                    known = START
                if not self._curve and (start := history.candidate(run_id, SEED_ID)):
                    self._add_best(0.0, start.facts["objective"], start.facts["score"])
                if steps := history.settled(run_id, history.steps(Iterations(run_id, known))):
                    self._add_use(history, steps)
                for step in steps:
                    self._add(step)
                for iteration, seconds in history.seconds(Iterations(run_id, self._timed)):
                    self._timed = iteration
                    self._seconds += _number(seconds)
                row = self._row(settings, history.setup(run_id), history.sandbox(run_id))
                if is_running:
                    row["in_flight"] = len(history.open_calls(run_id))
                return row

    def _is_settled(self, history: RunHistory) -> bool:
        """Whether a bill has changed the account since the last step was read."""
        last = self._tail[-1:]
        return history.settled(self._run_id, last) != last

    def _forget(self, run_id: str) -> None:
        self._run_id = run_id
        self._tail: list[dict[str, Any]] = []  # the last step, and failed ones right before it
        self._curve: list[Point] = []
        self._timed, self._seconds = START, 0.0
        self._dollars: dict[str, float] = {}
        self._requests: dict[str, int] = {}
        self._evaluation_seconds = 0.0
        self._first_sent: float | None = None
        self._last_ended: float | None = None

    def _add_use(self, history: RunHistory, steps: list[dict[str, Any]]) -> None:
        """Add what the requests of new steps used; those of the start go with the first step."""
        tickets = {ticket_of(step) for step in steps}
        if not self._tail:
            tickets.add(START_TICKET)
        for each in history.use_by_role(self._run_id, min(tickets), max(tickets)):
            if each.ticket not in tickets:  # in flight, or added before
                continue
            self._dollars[each.role] = self._dollars.get(each.role, 0.0) + _number(each.dollars)
            self._requests[each.status] = self._requests.get(each.status, 0) + each.requests
            if each.began is not None and each.ended is not None:
                began, ended = _number(each.began), _number(each.ended)
                self._first_sent = min(began, self._first_sent or began)
                self._last_ended = max(ended, self._last_ended or ended)

        for ticket, spent in history.evaluation_seconds(self._run_id, min(tickets), max(tickets)):
            if ticket in tickets and spent is not None:
                self._evaluation_seconds += _number(spent)

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

    def _row(
        self, settings: RunSettings, setup: RunSetup | None, sandbox: str = ""
    ) -> dict[str, object]:
        problem = problem_facts(settings, setup)
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
            **_setting_facts(settings),
            "problem": _short(str(problem["problem"])),
            "direction": problem["direction"],
            "state": now["state"],
            "words": _short(now["words"]),
            "spent": spent,
            "iterations": last.get("iteration", 0),
            "best": curve[-1][1] if curve else None,
            "curve": curve,
            "since_gain": spent - gained_at,
            "over": now["over"],
            "evaluation_seconds": self._evaluation_seconds,
            "requests": [(_short(each), number) for each, number in self._requests.items()],
            "sandbox": _short(sandbox),
            "purse": _short(setup.purse) if setup else "",
            **self._money_and_time(settings, is_running=now["state"] == RUNNING),
        }

    def _money_and_time(self, settings: RunSettings, *, is_running: bool) -> dict[str, object]:
        """Dollars by role, seconds at work, dollars an hour, and when a running run ends.

        The seconds reach from the first request to the end of the last one, but are no more than
        its nodes took together: so the pauses of a sequential run do not count.
        """
        in_order = dict.fromkeys((*ROLES, *self._dollars))
        by_role = [(role, self._dollars[role]) for role in in_order if self._dollars.get(role)]
        if self._first_sent is None or self._last_ended is None:
            return {"roles": by_role, "seconds": None, "hourly": None, "ends": None}
        seconds = self._last_ended - self._first_sent
        if self._seconds:
            seconds = min(seconds, self._seconds)
        last, ends = self._tail[-1], None
        if is_running:
            left = remaining_iterations(
                settings.budget, last["spent"], last["iteration"], settings.max_iterations
            )
            ends = self._last_ended + left * seconds / last["iteration"]
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


def _setting_facts(settings: RunSettings) -> dict[str, object]:
    return {
        "problem": _short(name_of(settings.problem)),
        "method": _short(settings.method),
        "model": _short(settings.model),
        "seed": settings.seed,
        "budget": settings.budget,
        "max_iterations": settings.max_iterations,
    }


def files_of(run: RunView) -> tuple[object, ...]:
    """The state of the files of a run, which changes whenever its row may."""
    # A run that is killed changes none of its files, only who holds its lock.
    return (*file_states(run), run.is_running)


def _number(value: object) -> float:
    """A finite number; raises `TypeError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise TypeError(f"got {str(value)[:20]!r}, expected a finite number")
    return float(value)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
