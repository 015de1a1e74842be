"""The trace row of a finished step: what the controller saw, spent and decided."""

from dataclasses import asdict
from typing import TypedDict

from costada.controller.guidance import tactic_uses_left
from costada.controller.intervention import Intervention
from costada.controller.method import Controller, Guided
from costada.controller.step import OUT_OF_MONEY
from costada.nodes.context import RunContext, balance_of
from costada.nodes.state import SearchState, StepRecord
from costada.store.rows import CandidateRow

CUT_SHORT = "cut_short"
"""Event of a step whose generation was ended by the step's cap or by the budget."""


class TraceRow(TypedDict):
    """One iteration as the paper's trace table shows it.

    `frontier` counts from 1. Intensity, costs and gains are as used in the step, evidence as it
    stands at its end. `score` and `objective` are `None` when nothing was evaluated. Costs are
    dollars. `failure` says why the last attempt failed, if it did. `is_cached` tells that the
    candidate's program had been judged before and its verdict was used again.
    """

    iteration: int
    frontier: int
    action: str
    intensity: float
    step_cost: float
    spent: float
    remaining_ratio: float
    score: float | None
    objective: float | None
    best_score: float
    best_objective: float | None
    local_gain: float
    global_gain: float
    cost_divisor: float
    utility: float
    allocation_reward: float
    stagnation: int
    low_yield_cost: float
    consolidation_left: int
    tactic_uses_left: int
    attempts: int
    events: list[str]
    failure: str | None
    candidate_id: str | None
    is_cached: bool


def trace_row(
    state: SearchState,
    controller: Controller,
    decided: Intervention,
    best: CandidateRow,
    context: RunContext,
) -> TraceRow:
    """Return the row of a step from its state, the controller after it and its incumbent."""
    step, evidence = state["step"], controller.record()
    cycle = controller.cycle if isinstance(controller, Guided) else None
    return TraceRow(
        iteration=state["iteration"],
        frontier=step["frontier"] + 1,
        action=step["label"] or step["action"],
        intensity=step["intensity"],
        step_cost=step["cost"],
        spent=state["spent"],
        remaining_ratio=balance_of(state, context).ratio,
        score=step["score"],
        objective=step["objective"],
        best_score=best.score,
        best_objective=best.objective,
        **asdict(state["credit"]),
        stagnation=evidence.stagnation,
        low_yield_cost=evidence.low_yield_cost,
        consolidation_left=evidence.consolidation_left,
        tactic_uses_left=tactic_uses_left(cycle),
        attempts=step["attempt"],
        events=_events(step, decided),
        failure=context.store.text(step["failure"]) or None,
        candidate_id=step["candidate"] or None,
        is_cached=_is_cached(state, context),
    )


def _is_cached(state: SearchState, context: RunContext) -> bool:
    candidate = state["step"]["candidate"]
    return bool(candidate) and context.store.candidates.get(state["run_id"], candidate).is_cached


def _events(step: StepRecord, decided: Intervention) -> list[str]:
    happened = {
        "guide_charged": step["guide_calls"] > 0,
        "consolidation_opened": decided.opened_consolidation,
        "backoff": decided.backed_off,
        f"guide_scheduled:{decided.scheduled}": decided.scheduled is not None,
        OUT_OF_MONEY: step["is_out_of_money"],
        CUT_SHORT: step["is_cut_short"],
    }
    return [*(event for event, is_true in happened.items() if is_true), *decided.notes]
