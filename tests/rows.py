"""Rows of a ledger, a trace and a population: defaults that say nothing, changed by keyword."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from costada.store.rows import CallRow
from costada.values.candidate import Candidate, LandedCandidate, Program
from costada.values.usage import Usage


def call_row(**changes: Any) -> CallRow:
    fields: dict[str, Any] = {
        "ticket": 1,
        "role": "generation",
        "attempt": 1,
        "model": "stand-in",
        "usage": Usage(1000, 500, 300, 200),
        "cost": Decimal("0.002"),
        "price_in": "1",
        "price_out": "2",
        "price_source": "given",
        "provider": "openai",
        "provider_id": "answer-1",
        "finish_reason": "stop",
        "ended_at": 1000.5,
        "seconds": 2.25,
        "prompt": "a secret prompt",
        "answer": "a secret answer",
        "error": None,
    }
    return CallRow(**{**fields, **changes})


def trace_row(**changes: Any) -> dict[str, Any]:
    fields = {
        "iteration": 1,
        "frontier": 1,
        "action": "exploration",
        "intensity": 0.5,
        "step_cost": 0.015,
        "spent": 0.015,
        "remaining_ratio": 0.985,
        "score": 0.4,
        "objective": 4.0,
        "best_score": 0.499,
        "best_objective": 4.99,
        "local_gain": 0.0,
        "global_gain": 0.0,
        "cost_divisor": 1.2,
        "utility": 0.0,
        "allocation_reward": 0.0,
        "stagnation": 1,
        "low_yield_cost": 0.015,
        "consolidation_left": 0,
        "tactic_uses_left": 0,
        "attempts": 1,
        "events": [],
        "failure": None,
        "candidate_id": "1.1",
        "is_cached": False,
    }
    of_some = {"ticket", "models", "router", "measurements", "confirmation", "objectives", "front"}
    of_some |= {"steered", "examples", "validation", "is_result"}
    assert set(changes) <= {*fields, *of_some}, set(changes) - set(fields)
    return {"ticket": changes.get("iteration", 1), **fields, **changes}


def population_row(
    id: str,
    iteration: int,
    score: float,
    parent_id: str | None = None,
    label: str = "",
    inspirations: Iterable[str] = (),
) -> LandedCandidate:
    """A candidate of which only its descent matters."""
    found = Candidate(
        id=id,
        ticket=iteration,
        program=Program.of(""),
        score=score,
        parent_id=parent_id,
        label=label,
        inspirations=tuple(inspirations),
    )
    return LandedCandidate(found, iteration)
