"""What the calls of a run used, why a run ended, and an evaluation in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal

from costada.evaluators.sandbox.layer_choice import described_layer
from costada.evaluators.sandbox.layers import Layer
from costada.store.rows import CallRow
from costada.values.evaluation import MARKS, Evaluation
from costada.values.usage import NO_TOKENS, Usage, total

ROLES = ("generation", "retry", "guide")
REASONS = {
    "budget": "the budget is used up",
    "iterations": "the iteration limit is reached",
    "failures": "too many attempts in a row yielded no usable program",
    "interrupted": "",
}
LOG = "log"
NUM_LINES, NUM_CHARACTERS = 20, 2000
"""Limits of a printed text of an evaluation."""


@dataclass(frozen=True, slots=True)
class RoleSum:
    """What the calls of one role used; `dollars` is exact.

    `in_doubt` counts requests whose bill is unknown: timed out, cancelled, or in flight when their
    process died. They are not part of `dollars`; `in_doubt_dollars` is their upper bound.
    """

    calls: int = 0
    in_doubt: int = 0
    usage: Usage = NO_TOKENS
    dollars: Decimal = Decimal(0)
    in_doubt_dollars: Decimal = Decimal(0)


def sum_by_role(calls: Iterable[CallRow]) -> Mapping[str, RoleSum]:
    """What each role used, `ROLES` included if they made no call."""
    by_role: dict[str, list[CallRow]] = {role: [] for role in ROLES}
    for call in calls:
        by_role.setdefault(call.role, []).append(call)
    return {
        role: RoleSum(
            calls=len(found),
            in_doubt=sum(call.is_in_doubt for call in found),
            usage=total(call.usage for call in found),
            dollars=sum((call.cost for call in found), Decimal(0)),
            in_doubt_dollars=sum((call.bound for call in found), Decimal(0)),
        )
        for role, found in by_role.items()
    }


def evaluation_text(evaluation: Evaluation, sandbox: Layer | None) -> str:
    """An evaluation in lines, with the beginning of each of its texts."""
    objective = "none" if evaluation.objective is None else f"{evaluation.objective:.10g}"
    lines = [
        f"objective  {objective}",
        f"score      {evaluation.score:.10g}",
        f"valid      {'yes' if evaluation.is_valid else 'no'}",
        f"seconds    {evaluation.seconds:.3f}",
        f"sandbox    {described_layer(sandbox) if sandbox else 'up to the problem'}",
        *(f"  {name} = {value:.10g}" for name, value in evaluation.metrics.items()),
    ]
    notes = {k: text for k, text in evaluation.artifacts.items() if k not in (*MARKS, LOG)}
    texts = {"error": evaluation.error, **notes, LOG: evaluation.artifacts.get(LOG)}
    for name, text in texts.items():
        if text:
            shown = _excerpt(text)
            lines.append(f"{name}:\n{shown}" if "\n" in shown else f"{name:<10} {shown}")
    return "\n".join(lines)


def evaluation_json(evaluation: Evaluation, sandbox: Layer | None) -> str:
    """An evaluation with its artifacts as one JSON object."""
    return json.dumps({**asdict(evaluation), "sandbox": sandbox}, indent=2, default=dict)


def _excerpt(text: str) -> str:
    safe = "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)
    lines = safe[:NUM_CHARACTERS].splitlines()[:NUM_LINES]
    shown = "\n".join(line.rstrip() for line in lines)
    is_cut = len(safe) > NUM_CHARACTERS or len(safe.splitlines()) > NUM_LINES
    return f"{shown}\n[the beginning of {len(text)} characters]" if is_cut else shown
