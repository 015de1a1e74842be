"""What a comparison needs of one finished run: how far it had come after each dollar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Point:
    """The run after one iteration.

    Attributes:
        iteration: Iterations completed (t).
        spent: Dollars the ledger shows (C_t).
        best_score: Best normalised score so far (y_t).
        best_objective: Objective of the candidate with that score, in the benchmark's units.
    """

    iteration: int
    spent: float
    best_score: float
    best_objective: float | None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One finished run.

    Attributes:
        problem: Name of the problem.
        method: Name of the method.
        model: Model id.
        seed: Where its randomness started; runs of different methods are paired by it.
        budget: Dollars it might spend (B).
        seed_score: Score of the initial program (y_0).
        seed_objective: Its objective; None if it has none.
        is_minimized: Whether a smaller objective is better.
        points: One per iteration, in order.
        dollars_by_role: Dollars of its calls, by role.
        has_given_up: Whether too many attempts in a row without a usable program ended it.
        problem_facts: What distinguishes problems of the same name, as texts by name.
        settings: What else decided its result, likewise.
        place: Where it was found.
    """

    problem: str
    method: str
    model: str
    seed: int
    budget: float
    seed_score: float
    seed_objective: float | None
    is_minimized: bool
    points: tuple[Point, ...]
    dollars_by_role: Mapping[str, float] = field(default_factory=dict)
    has_given_up: bool = False
    problem_facts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    place: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Hash of all that decided the result: runs that share it are the same run."""
        apart = (self.problem, self.model, self.method, self.seed, self.budget)
        return digest([*apart, dict(self.problem_facts), dict(self.settings)])


def digest(facts: object) -> str:
    """Return the hash of plain values."""
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
