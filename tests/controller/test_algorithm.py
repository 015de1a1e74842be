import math
from dataclasses import replace
from random import Random

import pytest

from costada.controller.allocation import Allocation
from costada.controller.constants import Constants
from costada.controller.costada import (
    allocate,
    credit,
    fail_guide,
    intervene,
    open_cycle,
    raise_bests,
    start,
    use_tactic,
)
from costada.controller.guidance import GuidanceCycle, Mode
from costada.controller.intensity import Action
from costada.controller.method import stop_reason

CONSTANTS = Constants()
SEED = start(0.4, 2.0, CONSTANTS)
HERE = Allocation(0, Action.BALANCED, 0.5)


def test_every_frontier_starts_with_the_seed() -> None:
    state = start(0.4, 2.0, Constants(num_frontiers=3))
    assert [frontier.best_score for frontier in state.frontiers] == [0.4, 0.4, 0.4]
    assert (state.budget, state.spent, state.iteration, state.incumbent_score) == (2, 0, 0, 0.4)
    assert (state.cycle, state.pending, state.mode_override) == (None, None, None)
    assert (state.held_frontier, state.consolidation_left) == (None, 0)


@pytest.mark.parametrize(
    ("seed_score", "budget", "message"),
    [
        (math.nan, 1.0, r"seed_score: got nan, expected a finite number"),
        (0.5, 0.0, r"budget: got 0\.0, expected finite dollars above 0"),
        (0.5, math.inf, r"budget: got inf, expected finite dollars above 0"),
    ],
)
def test_a_run_that_cannot_start_is_refused(seed_score: float, budget: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        start(seed_score, budget, CONSTANTS)


def test_the_first_step_explores_frontier_zero_without_a_draw() -> None:
    rng = Random(3)
    before = rng.getstate()
    allocation = allocate(SEED, rng, CONSTANTS)
    assert (allocation.frontier, allocation.action) == (0, Action.EXPLORATION)
    assert allocation.intensity == pytest.approx(0.15 + 0.35 / 1.0001)
    assert rng.getstate() == before


def test_consolidation_exploits_the_held_frontier_at_the_lowest_intensity() -> None:
    held = replace(SEED, consolidation_left=1, held_frontier=1)
    expected = Allocation(1, Action.EXPLOITATION, 0.15)
    assert allocate(held, Random(3), CONSTANTS) == expected


def test_the_ledger_is_set_and_not_added_to() -> None:
    state, _ = credit(SEED, HERE, 0.5, 0.01, CONSTANTS, spent=0.25)
    assert state.spent == 0.25


def test_a_step_is_credited_against_the_bests_before_it() -> None:
    before = raise_bests(SEED, [0.4, 0.6])
    before = replace(before, incumbent_score=0.6)
    state, earned = credit(before, HERE, 0.7, 0.0, CONSTANTS, spent=0.5)
    assert earned.local_gain == pytest.approx(0.3)
    assert earned.global_gain == pytest.approx(0.1)
    assert earned.cost_divisor == 1.0
    assert earned.utility == pytest.approx(0.25 * 0.1 + 0.75 * 0.3)
    assert earned.allocation_reward == pytest.approx(0.1)
    assert state.frontiers[0].best_score == state.incumbent_score == 0.7
    assert state.frontiers[1] is before.frontiers[1]


@pytest.mark.parametrize("score", [None, 0.0])
def test_a_failed_step_earns_nothing_and_still_counts(score: float | None) -> None:
    before = replace(SEED, stagnation=2, low_yield_cost=0.01)
    state, earned = credit(before, HERE, score, 0.02, CONSTANTS, spent=0.02)
    assert earned.utility == earned.allocation_reward == 0.0
    assert (state.stagnation, state.low_yield_cost) == (3, 0.03)
    assert state.frontiers[0].visits == 1
    assert state.incumbent_score == 0.4


@pytest.mark.parametrize(
    ("score", "step_cost", "spent", "message"),
    [
        (math.nan, 0.1, 0.1, r"score: got nan, expected a finite number or None"),
        (0.5, -0.1, 0.1, r"step_cost: got -0\.1, expected at least 0 dollars"),
        (0.5, 0.1, -0.1, r"spent: got -0\.1, expected finite dollars of at least 0\.0"),
    ],
)
def test_a_step_that_cannot_be_is_refused(
    score: float, step_cost: float, spent: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        credit(SEED, HERE, score, step_cost, CONSTANTS, spent)


def test_a_guide_opens_a_cycle_at_the_incumbent_score() -> None:
    state = open_cycle(replace(SEED, pending=Mode.REFINEMENT), 2, CONSTANTS)
    assert state.pending is None
    assert state.cycle == GuidanceCycle(Mode.REFINEMENT, 0.4, (2, 2))


def test_only_a_pending_guide_can_succeed_or_fail() -> None:
    with pytest.raises(ValueError, match="pending: got None, expected a scheduled guide"):
        open_cycle(SEED, 3, CONSTANTS)
    with pytest.raises(ValueError, match="pending: got None, expected a scheduled guide"):
        fail_guide(SEED)


def test_attempts_take_the_tactics_in_turn_and_guide_the_step() -> None:
    state = open_cycle(replace(SEED, pending=Mode.BREAKTHROUGH), 3, CONSTANTS)
    taken = []
    for _ in range(6):
        state, tactic = use_tactic(state)
        taken.append(tactic)
    assert taken == [0, 1, 2, 0, 1, 2]
    assert state.cycle is not None
    assert state.cycle.is_guided
    with pytest.raises(ValueError, match="cycle: no tactic has a use left"):
        use_tactic(state)


def test_an_unused_cycle_stays_open_and_unjudged() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.1, (2, 2))
    state, decision = intervene(replace(SEED, cycle=cycle), HERE, CONSTANTS)
    assert state.cycle == cycle
    assert not decision.opened_consolidation


def test_a_failed_guide_resets_the_evidence_and_leaves_the_mode_alone() -> None:
    stalled = replace(
        SEED,
        pending=Mode.REFINEMENT,
        stagnation=9,
        low_yield_cost=0.5,
        guidance_proven=True,
        mode_override=Mode.BREAKTHROUGH,
    )
    state, decision = intervene(fail_guide(stalled), HERE, CONSTANTS)
    assert (state.stagnation, state.low_yield_cost) == (0, 0.0)
    assert decision.backed_off
    assert decision.scheduled is state.pending is None
    assert (state.mode_override, state.guidance_proven) == (Mode.BREAKTHROUGH, True)
    assert not state.guide_failed


def test_migrants_raise_bests_without_gain_or_visit() -> None:
    state = raise_bests(SEED, [0.3, 0.8])
    assert [frontier.best_score for frontier in state.frontiers] == [0.4, 0.8]
    assert replace(state, frontiers=SEED.frontiers) == SEED
    with pytest.raises(ValueError, match="best_scores: got 1, expected 2 scores"):
        raise_bests(SEED, [0.3])


def test_a_run_stops_at_its_budget_or_its_last_iteration() -> None:
    assert stop_reason(2.0, 1.99, 99, max_iterations=100) is None
    assert stop_reason(2.0, 2.0, 99, max_iterations=100) == "budget"
    assert stop_reason(2.0, 0.0, 100, max_iterations=100) == "iterations"
    assert stop_reason(2.0, 2.5, 100, max_iterations=100) == "budget"
