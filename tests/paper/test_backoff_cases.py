"""Back-off, mode correction and the two money tests, case by case."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from controller_trace import Step, run_step

from costada.controller.allocation import Action, Allocation
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance
from costada.controller.guidance import GuidanceCycle, Mode

CONSTANTS = Constants()
SCORE = 0.5
STALLED = replace(CostAda.start(SCORE, CONSTANTS), stagnation=9, low_yield_cost=0.1)
BALANCE = Balance(1.0, 0.1)
HERE = Allocation(0, Action.BALANCED, 0.3)


def last_use(state: CostAda, mode: Mode) -> CostAda:
    return replace(state, cycle=GuidanceCycle(mode, SCORE, (0, 0, 1)))


def step(state: CostAda, score: float = 0.1) -> Step:
    return run_step(state, BALANCE, 0.001, score, CONSTANTS, Random(0))


def next_guide(state: CostAda) -> Mode | None:
    for _ in range(12):
        state = step(state).state
        if state.pending is not None:
            return state.pending
    return None


def test_a_failed_breakthrough_without_proof_only_clears_the_evidence() -> None:
    after = step(last_use(STALLED, Mode.BREAKTHROUGH))
    assert after.intervention.backed_off
    assert after.intervention.scheduled is None
    assert (after.state.stagnation, after.state.low_yield_cost) == (0, 0.0)
    assert (after.state.mode_override, after.state.cycle) == (None, None)
    assert next_guide(after.state) is Mode.BREAKTHROUGH


def test_a_failed_refinement_after_proof_asks_for_a_breakthrough() -> None:
    proven = replace(STALLED, guidance_proven=True)
    after = step(last_use(proven, Mode.REFINEMENT))
    assert after.state.mode_override is Mode.BREAKTHROUGH
    assert after.intervention.scheduled is None
    assert next_guide(after.state) is Mode.BREAKTHROUGH


def test_a_failed_probe_returns_to_refinement() -> None:
    probing = replace(STALLED, guidance_proven=True, mode_override=Mode.BREAKTHROUGH)
    after = step(last_use(probing, Mode.BREAKTHROUGH))
    assert after.intervention.backed_off
    assert after.state.mode_override is None
    assert next_guide(after.state) is Mode.REFINEMENT


def test_a_successful_probe_returns_to_refinement_with_proof() -> None:
    probing = replace(STALLED, guidance_proven=True, mode_override=Mode.BREAKTHROUGH)
    after = step(last_use(probing, Mode.BREAKTHROUGH), score=0.6)
    assert not after.intervention.backed_off
    assert after.intervention.opened_consolidation
    assert after.state.mode_override is None
    assert after.state.guidance_proven
    assert after.state.consolidation_left == 2
    assert next_guide(after.state) is Mode.REFINEMENT


def test_an_earlier_success_spares_the_cycle_from_backing_off() -> None:
    state = last_use(STALLED, Mode.REFINEMENT)
    assert state.cycle is not None
    after = step(replace(state, cycle=replace(state.cycle, has_succeeded=True)))
    assert not after.intervention.backed_off
    assert after.state.stagnation == 10
    assert after.intervention.scheduled is Mode.BREAKTHROUGH


@pytest.mark.parametrize(("left", "expected"), [(0.0299, None), (0.0301, Mode.BREAKTHROUGH)])
def test_a_guide_and_one_step_must_be_affordable(left: float, expected: Mode | None) -> None:
    _, decision = STALLED.decide(HERE, Balance(1.0, 1.0 - left), CONSTANTS)
    assert decision.scheduled is expected


@pytest.mark.parametrize(("ratio", "expected"), [(0.4999, None), (0.5, Mode.BREAKTHROUGH)])
def test_low_yield_counts_only_with_half_the_budget_left(
    ratio: float, expected: Mode | None
) -> None:
    wasteful = replace(STALLED, stagnation=2)
    _, decision = wasteful.decide(HERE, Balance(1.0, 1.0 - ratio), CONSTANTS)
    assert decision.scheduled is expected


def test_guides_that_keep_failing_are_bought_only_after_new_evidence() -> None:
    state, balance, guides = STALLED, BALANCE, []
    for iteration in range(30):
        after = run_step(state, balance, 0.001, 0.1, CONSTANTS, Random(0), num_tactics=0)
        if after.guide is not None:
            guides.append(iteration)
            assert after.intervention.backed_off
            assert after.intervention.scheduled is None
        state, balance = after.state, after.balance
    gaps = [later - earlier for earlier, later in pairwise(guides)]
    assert gaps
    assert set(gaps) == {5}
