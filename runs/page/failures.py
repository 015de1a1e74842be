"""What went wrong in a run, sorted by kind."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costada.store.history import PastCall, PastCandidate, PastFailure
from costada.store.rows import CallStatus, OutcomeKind
from costada.values.evaluation import EVALUATOR_FAULT, SANDBOX_FAULT

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
