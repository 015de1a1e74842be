"""Small finished runs to compare."""

from collections.abc import Sequence
from typing import Any

from costada.experiments.comparison.metrics import Point, RunOutcome


def outcome(steps: Sequence[tuple[float, float]], **changes: Any) -> RunOutcome:
    """Build a run from (C_t, y_t); its objective is ten times its score."""
    points = tuple(
        Point(number, spent, score, 10 * score) for number, (spent, score) in enumerate(steps, 1)
    )
    fields: dict[str, Any] = {
        "problem": "toy",
        "method": "costada",
        "model": "glm-5",
        "seed": 0,
        "budget": 1.0,
        "seed_score": 0.4,
        "seed_objective": 4.0,
        "is_minimized": False,
        "points": points,
        "dollars_by_role": {"generation": 0.8, "guide": 0.2},
    }
    return RunOutcome(**{**fields, **changes})


def runs_of(
    scores: dict[str, Sequence[float]], step: float = 1.1, **changes: Any
) -> list[RunOutcome]:
    """Build, for each method, one run per final score; each has a single step."""
    return [
        outcome([(step, score)], method=method, seed=seed, **changes)
        for method, finals in scores.items()
        for seed, score in enumerate(finals)
    ]
