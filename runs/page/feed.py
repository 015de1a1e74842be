"""What a page shows of a run, in JSON types: its figures at once, its texts step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from costada.models.replies import shown
from costada.runs.folder import RunFolder
from costada.runs.page.averages import Averages
from costada.runs.page.failures import faults
from costada.runs.page.heading import heading, standing
from costada.store.history import PastCall, PastCandidate, RunHistory, Span

Json = Mapping[str, object]
Table = dict[str, object]
"""Column names and rows, for they take less room than a name beside every value."""

STEP = (
    *("iteration", "frontier", "action", "intensity", "step_cost", "spent", "remaining_ratio"),
    *("score", "objective", "best_score", "best_objective", "local_gain", "global_gain"),
    *("cost_divisor", "utility", "allocation_reward", "stagnation", "low_yield_cost"),
    *("consolidation_left", "tactic_uses_left", "attempts", "events", "failure", "candidate_id"),
    *("is_cached", "smoothed_utility", "allocation_estimate"),
)
CALL = ("iteration", "role", "attempt", "status", "cost", "bound")
CALL_FACTS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "seconds")
CANDIDATE = ("id", "iteration")
CANDIDATE_FACTS = (
    *("score", "objective", "is_valid", "parent_id", "generation", "is_copy", "inspirations"),
)
FAULT = ("iteration", "attempt", "place", "kind", "text")
LONGEST_REASON = 300
"""Characters of a failure among the figures; the whole of it is one of the texts."""


class Feed:
    """Reads one run again and again; may be used from several threads.

    Every method raises `ValueError` when the folder holds no run, or its file is damaged, and
    `OSError` when a file cannot be read.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._lock = Lock()
        self._run_id = ""
        self._steps: list[dict[str, Any]] = []
        self._averages: Averages | None = None

    def figures(self, after: int = 0) -> Json:
        """Return the figures of the run beyond an iteration; of the one under way, its calls.

        What came before is told only of the run as a whole. Without a run yet, there is a heading
        and nothing else.
        """
        config = self._folder.load()
        if not self._folder.database.is_file():
            return self._empty(after)
        with self._lock, RunHistory.of(self._folder.database) as history:
            run_id = history.last_run()
            self._follow(history, run_id)
            last = self._steps[-1] if self._steps else None
            return {
                **self._empty(after),
                "run_id": run_id,
                "heading": heading(
                    self._folder,
                    config,
                    history.sandbox(run_id),
                    history.origin(run_id),
                    history.setup(run_id),
                ),
                "standing": standing(self._folder, config, last),
                **_tables(history, Span(run_id, after if after else -1), self._beyond(after)),
            }

    def texts(self, first: int, last: int) -> list[Json]:
        """Return everything that was written in the iterations asked for, in order.

        One entry per iteration: requests with prompt and answer, candidates with their programs,
        the tactics that a guide gave. Iteration 0 has the starting program.
        """
        with RunHistory.of(self._folder.database) as history:
            span = Span(history.last_run(), first - 1, last)
            calls, candidates = history.calls(span), history.candidates(span)
            tactics = dict(history.tactics(span))
            reasons = {row["iteration"]: row["failure"] for row in history.steps(span)}
            found = {each.iteration for each in calls} | {each.iteration for each in candidates}
            return [
                {
                    "iteration": iteration,
                    "failure": reasons.get(iteration),
                    "calls": [_call_texts(each, history) for each in _of(calls, iteration)],
                    "candidates": [
                        _candidate_texts(each, history) for each in _of(candidates, iteration)
                    ],
                    "tactics": tactics.get(iteration, {}).get("tactics") or [],
                    "mode": tactics.get(iteration, {}).get("mode") or "",
                }
                for iteration in sorted(found | set(tactics))
            ]

    def iterations(self) -> list[int]:
        """Return the iterations that anything was written about, in order."""
        with RunHistory.of(self._folder.database) as history:
            return history.iterations(history.last_run())

    def _empty(self, after: int) -> dict[str, object]:
        config = self._folder.load()
        return {
            "run_id": "",
            "after": after,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "heading": heading(self._folder, config),
            "standing": standing(self._folder, config, None),
            "steps": _table(STEP, ()),
            "calls": _table((*CALL, *CALL_FACTS), ()),
            "candidates": _table((*CANDIDATE, *CANDIDATE_FACTS), ()),
            "faults": _table(FAULT, ()),
        }

    def _follow(self, history: RunHistory, run_id: str) -> None:
        """Take in the steps that are new, or all of another run."""
        if run_id != self._run_id or self._averages is None:
            self._run_id, self._steps = run_id, []
            self._averages = Averages(self._folder.load().method)
        known = self._steps[-1]["iteration"] if self._steps else 0
        for step in history.steps(Span(run_id, known)):
            utility, estimate = self._averages.after(step)
            failure = step["failure"] and step["failure"][:LONGEST_REASON]
            kept = {"failure": failure, "smoothed_utility": utility}
            self._steps.append({**step, **kept, "allocation_estimate": estimate})

    def _beyond(self, after: int) -> Sequence[Mapping[str, Any]]:
        return [step for step in self._steps if step["iteration"] > after]


def _tables(history: RunHistory, span: Span, steps: Sequence[Mapping[str, Any]]) -> Table:
    calls, candidates = history.calls(span), history.candidates(span)
    failed = faults(calls, candidates, history.failures(span), history.tactics(span), steps)
    return {
        "steps": _table(STEP, ([step.get(name) for name in STEP] for step in steps)),
        "calls": _table((*CALL, *CALL_FACTS), map(_call_figures, calls)),
        "candidates": _table((*CANDIDATE, *CANDIDATE_FACTS), map(_candidate_figures, candidates)),
        "faults": _table(FAULT, ([getattr(each, name) for name in FAULT] for each in failed)),
    }


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    return {"columns": columns, "rows": list(rows)}


def _call_figures(call: PastCall) -> list[object]:
    money = [float(call.cost), float(call.bound)]
    place = [call.iteration, call.role, call.attempt, call.status]
    return [*place, *money, *(call.facts.get(name) for name in CALL_FACTS)]


def _candidate_figures(candidate: PastCandidate) -> list[object]:
    facts = [candidate.facts.get(name) for name in CANDIDATE_FACTS]
    return [candidate.id, candidate.iteration, *facts]


def _of(found: Sequence[Any], iteration: int) -> list[Any]:
    return [each for each in found if each.iteration == iteration]


def _call_texts(call: PastCall, history: RunHistory) -> Json:
    return {
        **call.facts,
        "role": call.role,
        "attempt": call.attempt,
        "number": call.number,
        "status": call.status,
        "cost": f"{call.cost:f}",
        "bound": f"{call.bound:f}",
        "prompt": history.text(call.prompt),
        "answer": shown(history.text(call.answer)),
    }


def _candidate_texts(candidate: PastCandidate, history: RunHistory) -> Json:
    return {**candidate.facts, "id": candidate.id, "code": history.text(candidate.program)}
