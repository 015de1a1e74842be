"""What the verdicts of a problem depend on: as one short text, and in words."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields
from typing import TYPE_CHECKING
from uuid import uuid4

from costada.evaluators.object_hash import ObjectHash

if TYPE_CHECKING:
    from costada.evaluators.problem import Problem

IN_PART = "~"
"""Follows the hash of what is known of an evaluator; after it comes what no other problem has."""

EVALUATOR = ("evaluate", "score", "arguments", "calls", "holdout", "evaluator_source")
"""Fields that make up the evaluator proper."""

FOR_REPORTS = ("human", "seed_objective", "seed_evaluation", "source", "fingerprint")
"""Fields that decide nothing."""

FOR_THE_START = ("allow_invalid_start",)
"""Fields that decide whether a run may begin, and nothing of what it comes to."""

NOT_DECIDING = (*FOR_REPORTS, *FOR_THE_START)

FOR_MODELS = ("task", "initial_program", "timing_metrics")
"""Fields that decide what a model sees or starts from, not how programs are judged."""


def fingerprint(problem: Problem) -> str:
    """Return a text that two problems share only if they judge every program alike.

    It covers the evaluator (its code with all that it carries and refers to, every file of its
    folder), what candidates are called with, their limits, what holds them, and every other field
    that is not known to decide no verdict. An evaluator that can be hashed only in part shares its
    fingerprint with no other problem, in no other process either.
    """
    deciding = _fields(problem, without=(*NOT_DECIDING, *FOR_MODELS))
    hashed = ObjectHash({**deciding, "python": sys.version_info[:2]})
    known = hashed.value.hex()
    return f"{known}{IN_PART}{uuid4().hex}" if hashed.unknown else known


def known_part(fingerprint: str) -> str:
    """Return what of a fingerprint another process comes by as well."""
    return fingerprint.partition(IN_PART)[0]


def problem_facts(problem: Problem) -> dict[str, object]:
    """Return what a problem contributes to the result of a run, in plain values by name.

    The evaluator is represented by its hash; if it can be hashed only in part, by that part.
    """
    known = _fields(problem, without=(*NOT_DECIDING, *EVALUATOR))
    evaluator = {name: getattr(problem, name) for name in EVALUATOR}
    if problem.score is not None:
        del evaluator["evaluate"]
    hashed = ObjectHash({**evaluator, "python": sys.version_info[:2]})
    return {**known, "limits": asdict(problem.limits), "evaluator": hashed.value.hex()[:16]}


def _fields(problem: Problem, without: tuple[str, ...]) -> dict[str, object]:
    """Return the fields of a problem by name; `evaluate` only where it is not made from `score`."""
    made = ("evaluate",) if problem.score is not None else ()
    names = [field.name for field in fields(problem)]
    return {name: getattr(problem, name) for name in names if name not in (*without, *made)}
