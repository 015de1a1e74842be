"""The printed controller trace: every row and column, and the state it ends in."""

import pytest
from controller_trace import Row, Step, read_rows, replay

from costada.controller.allocation import Action
from costada.controller.constants import Constants
from costada.controller.guidance import Mode, tactic_uses_left

STEPS = replay(20, Constants())
ROWS = read_rows()
PRESCRIBED = {"exploration", "balanced", "exploitation"}


def printed(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}".removeprefix("0")


def happened(step: Step) -> set[str]:
    events = set()
    if step.guide is not None:
        events.add(f"guide:{step.guide}")
    if step.intervention.scheduled is not None:
        events.add(f"schedule:{step.intervention.scheduled}")
    if step.intervention.opened_consolidation:
        events.add("consolidation")
    if step.intervention.backed_off:
        events.add("backoff")
    return events


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"t={row.iteration}")
def test_a_step_of_the_trace_is_reproduced_in_every_column(row: Row) -> None:
    step = STEPS[row.iteration - 1]
    state = step.state
    assert state.iteration == row.iteration
    assert step.allocation.frontier + 1 == row.frontier
    assert printed(step.allocation.intensity, 3) == row.intensity
    assert printed(step.balance.ratio, 4) == row.ratio
    assert printed(step.credit.utility, 4) == row.utility
    assert printed(step.credit.allocation_reward, 4) == row.reward
    assert state.stagnation == row.stagnation
    assert printed(state.low_yield_cost, 4) == row.low_yield_cost
    assert state.consolidation_left == row.consolidation_left
    assert tactic_uses_left(state.cycle) == row.uses_left
    assert happened(step) == row.events - PRESCRIBED


def test_first_visits_and_consolidation_prescribe_the_action() -> None:
    prescribed = {
        step.state.iteration: step.allocation.action
        for row, step in zip(ROWS, STEPS, strict=True)
        if row.events & PRESCRIBED
    }
    held = dict.fromkeys([8, 9, 16, 17], Action.EXPLOITATION)
    assert prescribed == {1: Action.EXPLORATION, 2: Action.BALANCED} | held


def test_the_gain_of_the_fourth_and_tenth_step_is_local_only() -> None:
    for iteration, gain in ((4, 0.0115), (10, 0.0692)):
        earned = STEPS[iteration - 1].credit
        assert earned.global_gain == 0.0
        assert earned.local_gain == pytest.approx(gain)


def test_the_trace_ends_in_the_stated_statistics() -> None:
    first, second = STEPS[-1].state.frontiers
    assert printed(first.smoothed_utility, 5) == ".00923"
    assert printed(second.smoothed_utility, 5) == ".00764"
    assert printed(first.allocation_estimate, 5) == ".00620"
    assert printed(second.allocation_estimate, 5) == ".00764"
    assert (first.visits, second.visits) == (10, 10)
    assert f"{STEPS[-1].credit.cost_divisor:.4f}" == "1.3229"


def test_the_trace_ends_with_proven_guidance_holding_the_first_frontier() -> None:
    state = STEPS[-1].state
    assert state.guidance_proven
    assert state.mode_override is None
    assert state.held_frontier == 0
    assert state.incumbent_score == 0.7357
    assert state.cycle is not None
    assert (state.cycle.mode, state.cycle.baseline_score) == (Mode.REFINEMENT, 0.7357)


def test_the_sixth_divisor_is_the_one_the_text_quotes() -> None:
    assert f"{STEPS[5].credit.cost_divisor:.2f}" == "1.14"


def test_the_seventeenth_guide_is_bought_for_low_yield_alone() -> None:
    impatient = replay(17, Constants(guide_cost_ratio=2.8))
    assert STEPS[16].intervention.scheduled is Mode.REFINEMENT
    assert impatient[16].intervention.scheduled is None
