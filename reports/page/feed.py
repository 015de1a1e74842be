"""What a page shows of a run, in JSON types: its figures at once, its texts step by step."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.frontier import Frontier, visited
from costada.controller.methods import METHODS
from costada.evaluators.folders import SETTINGS_FILE, read_settings
from costada.evaluators.registry import is_built_in
from costada.evaluators.registry import problem as problem_named
from costada.models.replies import visible_text
from costada.reports.summary import REASONS
from costada.reports.trace_rows import end_after
from costada.runs.config import OBJECT_MARK, RunConfig
from costada.runs.folder import RunFolder
from costada.runs.lease import is_held
from costada.store.history import PastCall, PastCandidate, PastFailure, RunHistory, Span
from costada.store.rows import CallStatus, Origin, OutcomeKind
from costada.store.setup import RunSetup
from costada.values.evaluation import EVALUATOR_FAULT, SANDBOX_FAULT


class Averages:
    """Follows the frontiers of a run through its steps."""

    def __init__(self, method: str) -> None:
        """Begin before the first step; methods with averages of their own kind have none here."""
        self._is_known = METHODS[method].kind is CostAda
        self._constants = METHODS[method].adjusted(Constants())
        self._frontiers: dict[int, Frontier] = {}

    def after(self, step: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Return both averages of a step's frontier at its end (H and R, Sec. 4.2 and 4.3).

        To be called with each step once, in order. Both are ratios, at least 0, or `None` for a
        method that does not go by them.
        """
        if not self._is_known:
            return None, None
        number = step["frontier"]
        now = visited(
            self._frontiers.get(number, Frontier(best_score=0.0)),
            step["score"],
            step["utility"],
            step["allocation_reward"],
            self._constants,
        )
        self._frontiers[number] = now
        return now.smoothed_utility, now.allocation_estimate


MODEL, ANSWER, PROGRAM = "Model", "Answer", "Program"
"""Where something went wrong: at the provider, in what it answered, in the program it wrote."""

LONGEST_EXCERPT = 300
SIGNS = (
    (re.compile(r"\Atimeout:"), "ran out of time"),
    (re.compile(r"\A(the program held more than|MemoryError)"), "ran out of memory"),
    (re.compile(r"\Athe program was killed by"), "was killed"),
    (re.compile(r"\Athe program ended its process"), "ended its process"),
    (re.compile(r"\A(malformed answer:|the program failed, and its error)"), "gave no answer"),
)
RAISED = re.compile(r"^(\w+)(?::|$)", re.MULTILINE)
EXCEPTIONS = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
"""Names that a kind may carry; a program can call its own exceptions whatever it likes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that went wrong; `text` is the beginning of the reason, empty if none is kept."""

    iteration: int
    attempt: int
    place: str
    kind: str
    text: str


def faults(
    calls: Sequence[PastCall],
    candidates: Sequence[PastCandidate],
    failures: Sequence[PastFailure],
    tactics: Iterable[tuple[int, Mapping[str, Any]]],
    steps: Sequence[Mapping[str, Any]],
) -> list[Fault]:
    """Return everything that went wrong in the iterations given, in their order.

    A request that was repeated counts as often as it failed. An answer without a program counts
    once its iteration is finished; the reason is known only of an iteration's last attempt.
    """
    requests = [fault for call in calls if (fault := _of_request(call))]
    told = {(fault.iteration, fault.attempt) for fault in requests}
    outcomes = [
        _of_outcome(each) for each in failures if (each.iteration, each.attempt) not in told
    ]
    lost = told | {(fault.iteration, fault.attempt) for fault in outcomes}
    found = [*requests, *outcomes, *_of_answers(steps, candidates, lost), *_of_guides(tactics)]
    found += [_of_candidate(each) for each in candidates if _has_failed(each)]
    return sorted(found, key=lambda fault: (fault.iteration, fault.attempt))


def kind_of(error: str, marks: Iterable[str] = ()) -> str:
    """Return in a few words why a program failed.

    Args:
        error: The evaluator's reason.
        marks: Names of the artifacts beside it.
    """
    if SANDBOX_FAULT in marks:
        return "the sandbox broke down"
    if EVALUATOR_FAULT in marks:
        return "the evaluator failed"
    for sign, kind in SIGNS:
        if sign.search(error):
            return kind
    named = [name for name in RAISED.findall(error) if name in EXCEPTIONS]
    return f"raised {named[-1]}" if named else "refused by the evaluator"


def _of_request(call: PastCall) -> Fault | None:
    kinds = {
        CallStatus.ERROR: "request failed",
        CallStatus.LOST: "request lost with its process",
    }
    if call.status not in kinds:
        return None
    reason = _excerpt(call.facts.get("error"))
    return Fault(call.iteration, call.attempt, MODEL, kinds[call.status], reason)


def _of_outcome(failure: PastFailure) -> Fault:
    is_refusal = failure.kind is OutcomeKind.REFUSAL
    kind = "request refused" if is_refusal else "no answer"
    return Fault(failure.iteration, failure.attempt, MODEL, kind, _excerpt(failure.text))


def _of_answers(
    steps: Sequence[Mapping[str, Any]],
    candidates: Sequence[PastCandidate],
    lost: set[tuple[int, int]],
) -> Iterator[Fault]:
    judged = {candidate.id for candidate in candidates}
    for step in steps:
        iteration, attempts = step["iteration"], step["attempts"]
        for attempt in range(1, attempts + 1):
            if f"{iteration}.{attempt}" in judged or (iteration, attempt) in lost:
                continue
            reason = _excerpt(step["failure"]) if attempt == attempts else ""
            yield Fault(iteration, attempt, ANSWER, "no program in the answer", reason)


def _of_guides(tactics: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Fault]:
    for iteration, record in tactics:
        if "tactics" in record and not record["tactics"]:
            yield Fault(iteration, 0, ANSWER, "no tactic in the guide's answer", "")


def _has_failed(candidate: PastCandidate) -> bool:
    return not candidate.facts["is_valid"] and not candidate.facts.get("is_copy")


def _of_candidate(candidate: PastCandidate) -> Fault:
    error = str(candidate.facts.get("error") or "")
    kind = kind_of(error, candidate.facts.get("artifacts") or ())
    attempt = candidate.id.partition(".")[2]
    number = int(attempt) if attempt.isdecimal() else 0
    return Fault(candidate.iteration, number, PROGRAM, kind, _excerpt(error))


def _excerpt(text: object) -> str:
    return str(text or "")[:LONGEST_EXCERPT]


WAITING, RUNNING, FINISHED, STOPPED = "waiting", "running", "finished", "stopped"


def heading(
    folder: RunFolder,
    config: RunConfig,
    sandbox: str = "",
    origin: Origin | None = None,
    setup: RunSetup | None = None,
) -> dict[str, object]:
    """Return what a run was asked to do, in JSON types.

    Money and limits are the settings'; name, `reference` and `direction` the problem's as they were
    when the run began. Before that they are looked up, `None` where the problem cannot be found. No
    code of the problem is run. Only the names of folders are shown.
    """
    came_from = f"{Path(origin.folder).name} after iteration {origin.iteration}" if origin else ""
    said = ("method", "model", "guide_model", "seed", "budget", "budget_policy", "max_iterations")
    return {
        "problem": setup.problem["name"] if setup else _name(config),
        "folder": folder.path.resolve().name,
        "sandbox": sandbox,
        "origin": came_from,
        **{name: getattr(config, name) for name in said},
        **(_stored_objective(setup) if setup else _objective(config.problem)),
    }


def standing(
    folder: RunFolder, config: RunConfig, last: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return where a run stands: `state` in one word, `words` for a person.

    Args:
        folder: The run's files.
        config: Its settings.
        last: The trace row of its last finished iteration, if there is one.
    """
    reason = None if last is None else end_after(last, config)
    if is_held(folder.path):
        return {"state": RUNNING, "words": "Running"}
    if reason:
        return {"state": FINISHED, "words": f"Finished: {REASONS[reason]}"}
    if last is None:
        return {"state": WAITING, "words": "No iteration is finished yet"}
    return {"state": STOPPED, "words": f"Stopped; go on with {folder.resume_command}"}


def _name(config: RunConfig) -> str:
    return Path(config.problem).name.removeprefix(OBJECT_MARK)


def _stored_objective(setup: RunSetup) -> dict[str, object]:
    reference = setup.problem.get("reference")
    return {
        "reference": None if reference is None else float(reference),
        "direction": setup.problem["direction"],
    }


@lru_cache(maxsize=8)
def _objective(name: str) -> dict[str, object]:
    """Return reference and direction of a problem, as far as they can be known."""
    try:
        if is_built_in(name):
            known = problem_named(name)
            return {"reference": known.reference, "direction": known.direction}
        if Path(name).is_dir():
            said = read_settings(Path(name) / SETTINGS_FILE)
            return {"reference": said.reference, "direction": said.direction}
    except (ValueError, OSError):
        pass
    return {"reference": None, "direction": None}


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
        "answer": visible_text(history.text(call.answer)),
    }


def _candidate_texts(candidate: PastCandidate, history: RunHistory) -> Json:
    return {**candidate.facts, "id": candidate.id, "code": history.text(candidate.program)}
