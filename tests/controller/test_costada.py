from dataclasses import replace
from math import inf, nan
from random import Random

import pytest
from controller_samples import CONSTANTS, archive, candidate

from costada.controller.allocation import Action, Allocation, Frontier
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance, Credit
from costada.controller.guidance import GuidanceCycle, Intervention, Mode
from costada.controller.method import PaidStep
from costada.controller.step import stop_reason

SEED = CostAda.start(0.4, CONSTANTS)
HERE = Allocation(0, Action.BALANCED, 0.5)
FULL = Balance(2.0)


def paid(state: CostAda, score: float | None, cost: float, spent: float) -> tuple[CostAda, Credit]:
    return state.tell(HERE, PaidStep(score, True, cost), Balance(2.0, spent), CONSTANTS)


def decided(state: CostAda) -> tuple[CostAda, Intervention]:
    return state.decide(HERE, FULL, CONSTANTS)


def test_every_frontier_starts_with_the_seed() -> None:
    state = CostAda.start(0.4, Constants(num_frontiers=3))
    assert state == CostAda(0, (Frontier(0.4),) * 3, 0.4)


def test_the_first_step_explores_frontier_zero_without_a_draw() -> None:
    rng = Random(3)
    before = rng.getstate()
    allocation = SEED.ask(FULL, rng, CONSTANTS)
    assert (allocation.frontier, allocation.action) == (0, Action.EXPLORATION)
    assert allocation.intensity == pytest.approx(0.15 + 0.35 / 1.0001)
    assert rng.getstate() == before


def test_consolidation_exploits_the_held_frontier_at_the_lowest_intensity() -> None:
    held = replace(SEED, consolidation_left=1, held_frontier=1)
    assert held.ask(FULL, Random(3), CONSTANTS) == Allocation(1, Action.EXPLOITATION, 0.15)


def test_a_step_is_credited_against_the_bests_before_it() -> None:
    before = replace(SEED, frontiers=(Frontier(0.4), Frontier(0.6)), incumbent_score=0.6)
    state, earned = paid(before, 0.7, 0.0, spent=0.5)
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
    state, earned = paid(before, score, 0.02, spent=0.02)
    assert earned.utility == earned.allocation_reward == 0.0
    assert (state.stagnation, state.low_yield_cost) == (3, 0.03)
    assert state.frontiers[0].visits == 1
    assert state.incumbent_score == 0.4


@pytest.mark.parametrize(
    ("score", "cost", "spent", "message"),
    [
        (nan, 0.1, 0.1, r"score: got nan, expected a finite number or None"),
        (0.5, -0.1, 0.1, r"cost: got -0\.1, expected finite dollars of at least 0"),
        (0.5, 0.1, -0.1, r"spent: got -0\.1, expected finite dollars of at least 0"),
        (0.5, 0.1, 0.05, r"spent: got 0\.05, expected at least 0\.1"),
    ],
)
def test_a_step_that_cannot_be_is_refused(
    score: float, cost: float, spent: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        paid(SEED, score, cost, spent)


@pytest.mark.parametrize("budget", [0.0, inf])
def test_a_budget_that_cannot_be_is_refused(budget: float) -> None:
    with pytest.raises(ValueError, match=rf"budget: got {budget}, expected finite dollars above 0"):
        Balance(budget)


def test_a_guide_opens_a_cycle_at_the_incumbent_score() -> None:
    state = replace(SEED, pending=Mode.REFINEMENT).open_cycle(2, CONSTANTS)
    assert state.pending is None
    assert state.cycle == GuidanceCycle(Mode.REFINEMENT, 0.4, (2, 2))


def test_only_a_pending_guide_can_succeed_or_fail() -> None:
    with pytest.raises(ValueError, match="pending: got None, expected a scheduled guide"):
        SEED.open_cycle(3, CONSTANTS)
    with pytest.raises(ValueError, match="pending: got None, expected a scheduled guide"):
        SEED.fail_guide()


def test_attempts_take_the_tactics_in_turn_and_guide_the_step() -> None:
    state = replace(SEED, pending=Mode.BREAKTHROUGH).open_cycle(3, CONSTANTS)
    taken = []
    for _ in range(6):
        state, tactic = state.use_tactic(is_first=not taken)
        taken.append(tactic)
    assert taken == [0, 1, 2, 0, 1, 2]
    assert state.cycle is not None
    assert state.cycle.guided_in_flight == 1
    with pytest.raises(ValueError, match="cycle: no tactic has a use left"):
        state.use_tactic(is_first=True)


def test_an_unused_cycle_stays_open_and_unjudged() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.1, (2, 2))
    state, decision = decided(replace(SEED, cycle=cycle))
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
    state, decision = decided(stalled.fail_guide())
    assert (state.stagnation, state.low_yield_cost) == (0, 0.0)
    assert decision.backed_off
    assert decision.scheduled is state.pending is None
    assert (state.mode_override, state.guidance_proven) == (Mode.BREAKTHROUGH, True)
    assert not state.guide_failed


def test_migrants_raise_bests_without_gain_or_visit() -> None:
    archives = (archive(candidate("a", 0.3)), archive(candidate("b", 0.8)))
    state, same = SEED.maintain(archives, Random(1), CONSTANTS)
    assert [frontier.best_score for frontier in state.frontiers] == [0.4, 0.8]
    assert replace(state, frontiers=SEED.frontiers) == SEED
    assert same is archives


def test_a_run_stops_at_its_budget_or_its_last_iteration() -> None:
    assert stop_reason(2.0, 1.99, 99, max_iterations=100) is None
    assert stop_reason(2.0, 2.0, 99, max_iterations=100) == "budget"
    assert stop_reason(2.0, 0.0, 100, max_iterations=100) == "iterations"
    assert stop_reason(2.0, 2.5, 100, max_iterations=100) == "budget"
