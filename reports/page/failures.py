"""What went wrong in a run, sorted by kind."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costada.nodes.trace_row import UNJUDGED
from costada.reports.trace import attempts_made, ticket_of
from costada.store.history import PastCall, PastCandidate, PastFailure
from costada.store.rows import CallStatus, OutcomeKind
from costada.values.evaluation import EVALUATOR_FAULT, SANDBOX_FAULT
from costada.values.numbering import Iteration, TicketNumber

MODEL, ANSWER, PROGRAM = "Model", "Answer", "Program"
"""Where it went wrong: at the provider, in its answer, or in the program it wrote."""

MAX_EXCERPT = 300
MAX_ATTEMPTS = 1_000_000
"""Attempts of all steps of a run."""

REQUEST_KINDS = {
    CallStatus.ERROR: "request failed",
    CallStatus.LOST: "request lost with its process",
    CallStatus.UNCOUNTED: "answer without token counts",
}
# These begin reasons that `evaluators/sandbox/execution.py` and `candidate_results.py` write.
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
"""Names that a kind may carry; a program can call its own exceptions anything."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure; `text` is the beginning of its reason, empty if none is stored."""

    iteration: Iteration
    attempt: int
    place: str
    kind: str
    text: str


def failures_of(
    calls: Sequence[PastCall],
    candidates: Sequence[PastCandidate],
    outcomes: Sequence[PastFailure],
    tactics: Iterable[tuple[Iteration, Mapping[str, Any]]],
    steps: Sequence[Mapping[str, Any]],
    iteration_of: Callable[[TicketNumber], Iteration],
) -> list[Failure]:
    """Every failure of the given iterations, in order; `iteration_of` gives that of a ticket.

    A repeated request counts as often as it failed. An answer without a program counts once its
    iteration is finished; the reason is known only of an iteration's last attempt.
    """
    found = []
    known = set[tuple[TicketNumber, int]]()
    for call in calls:
        if kind := REQUEST_KINDS.get(call.status):
            place = iteration_of(call.ticket), call.attempt
            found.append(Failure(*place, MODEL, kind, _excerpt(call.facts.get("error"))))
            # The failed request is why this attempt has no program: it counts once.
            known.add((call.ticket, call.attempt))
    for outcome in outcomes:
        if (outcome.ticket, outcome.attempt) not in known:
            kind = "request refused" if outcome.kind is OutcomeKind.REFUSAL else "no answer"
            place = iteration_of(outcome.ticket), outcome.attempt
            found.append(Failure(*place, MODEL, kind, _excerpt(outcome.text)))
    known |= {(outcome.ticket, outcome.attempt) for outcome in outcomes}
    evaluated = {candidate.id for candidate in candidates}
    found += _without_program(steps, evaluated, known)
    for iteration, record in tactics:
        if "tactics" in record and not record["tactics"]:
            found.append(Failure(iteration, 0, ANSWER, "no tactic in the guide's answer", ""))
    for candidate in candidates:
        facts = candidate.facts
        if facts["is_valid"] or candidate.migrated_in is not None:
            continue
        error = str(facts.get("error") or "")
        suffix = candidate.id.partition(".")[2]
        number = int(suffix) if suffix.isdecimal() else 0
        kind = kind_of(error, facts.get("artifacts") or ())
        place = iteration_of(candidate.ticket), number
        found.append(Failure(*place, PROGRAM, kind, _excerpt(error)))
    return sorted(found, key=lambda failure: (failure.iteration, failure.attempt))


def _without_program(
    steps: Iterable[Mapping[str, Any]], evaluated: set[str], known: set[tuple[TicketNumber, int]]
) -> Iterator[Failure]:
    """Attempts whose answer held no program, and submitted programs that could not be evaluated.

    Raises:
        ValueError: The steps say that they made more attempts than any run makes.
    """
    made = 0
    for step in steps:
        made += step["attempts"]
        if made > MAX_ATTEMPTS:
            where = f"attempts up to iteration {step['iteration']}"
            raise ValueError(f"{where}: got {made}, expected at most {MAX_ATTEMPTS:,}")
        ticket, attempts, reason = ticket_of(step), step["attempts"], _excerpt(step["failure"])
        is_unjudged = UNJUDGED in step["events"]
        if not attempts and reason and f"{ticket}.1" not in evaluated and not is_unjudged:
            yield Failure(step["iteration"], 0, PROGRAM, "submitted in an invalid form", reason)
        for attempt in range(1, attempts_made(step) + 1):
            if f"{ticket}.{attempt}" not in evaluated and (ticket, attempt) not in known:
                why = reason if attempt == attempts else ""
                yield Failure(step["iteration"], attempt, ANSWER, "no program in the answer", why)


def kind_of(error: str, marks: Iterable[str] = ()) -> str:
    """Why a program failed, in a few words; `marks` are the names of the artifacts beside it."""
    if SANDBOX_FAULT in marks:
        return "the sandbox failed"
    if EVALUATOR_FAULT in marks:
        return "the evaluator failed"
    for sign, kind in SIGNS:
        if sign.search(error):
            return kind
    named = [name for name in RAISED.findall(error) if name in EXCEPTIONS]
    return f"raised {named[-1]}" if named else "refused by the evaluator"


def _excerpt(text: object) -> str:
    return str(text or "")[:MAX_EXCERPT]
