"""What the verdicts of a problem depend on, in one short text."""

from __future__ import annotations

import sys
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import uuid4

from costada.evaluators.object_hash import ObjectHash
from costada.evaluators.sandbox.wire import encode

if TYPE_CHECKING:
    from costada.evaluators.problem import Problem

IN_PART = "~"
"""Follows the hash of what is known of an evaluator; after it comes what no other problem has."""


def fingerprint(problem: Problem) -> str:
    """Return a text that two problems share only if they judge every program alike.

    It covers the evaluator (its code with all that it carries and refers to, every file of its
    folder), the second look, what candidates are called with, their limits and what holds them;
    not the task and not the initial program. An evaluator that can be hashed only in part shares
    its fingerprint with no other problem, in no other process either.
    """
    score = problem.evaluate if problem.score is None else problem.score
    judged_by = ObjectHash((score, problem.holdout))
    facts = {
        "name": problem.name,
        "python": list(sys.version_info[:2]),
        "entry_point": problem.entry_point,
        "evaluator": judged_by.value.hex(),
        "evaluator_source": problem.evaluator_source,
        "arguments": dict(problem.arguments),
        "calls": None if problem.calls is None else [dict(call) for call in problem.calls],
        "limits": asdict(problem.limits),
        "sandbox": str(problem.sandbox),
        "preload": list(problem.preload),
        "direction": str(problem.direction),
        "reference": problem.reference,
    }
    known = sha256(encode(facts)).hexdigest()
    return f"{known}{IN_PART}{uuid4().hex}" if judged_by.unknown else known


def known_part(fingerprint: str) -> str:
    """Return what of a fingerprint another process comes by as well."""
    return fingerprint.partition(IN_PART)[0]
