"""What the verdicts of a problem depend on, in one short text."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING

from costada.evaluators.sandbox.wire import encode

if TYPE_CHECKING:
    from costada.evaluators.problem import Problem


def fingerprint(problem: Problem) -> str:
    """Return a hash that two problems share only if they judge every program alike.

    It covers the rules of the score as `evaluator_source` tells them, what candidates are called
    with, their limits and what holds them; not the task and not the initial program.
    """
    facts = {
        "name": problem.name,
        "entry_point": problem.entry_point,
        "evaluator_source": problem.evaluator_source,
        "arguments": dict(problem.arguments),
        "calls": None if problem.calls is None else [dict(call) for call in problem.calls],
        "limits": asdict(problem.limits),
        "sandbox": str(problem.sandbox),
        "preload": list(problem.preload),
        "direction": str(problem.direction),
        "reference": problem.reference,
    }
    return sha256(encode(facts)).hexdigest()
