"""The three ablations, each against the seventh step of the trace or a bare decision."""

from dataclasses import replace
from random import Random

import pytest
from controller_steps import Step, run_step
from trace_table import read_rows, replay

from costada.controller.allocation import Allocation
from costada.controller.constants import Constants
from costada.controller.costada import allocate, intervene, start
from costada.controller.guidance import Mode
from costada.controller.intensity import Action

FULL = Constants()
NO_CALIBRATION = Constants(calibrates_cost=False)
NO_BUDGET = Constants(conditions_on_budget=False)
NO_GATING = Constants(gates_intervention=False)
HERE = Allocation(0, Action.BALANCED, 0.3)


def seventh_step(constants: Constants) -> Step:
    """Return the seventh step of the trace after six steps of the full method."""
    row = read_rows()[6]
    return run_step(replay(6, FULL)[-1].state, row.cost, row.score, constants, Random(0))


@pytest.mark.parametrize(
    ("constants", "divisor", "earned"),
    [
        (FULL, "1.2565", "0.0557"),
        (NO_CALIBRATION, "1.0000", "0.0700"),
        (NO_BUDGET, "1.5130", "0.0463"),
        (NO_GATING, "1.2565", "0.0557"),
    ],
)
def test_the_reference_step_earns_what_its_variant_states(
    constants: Constants, divisor: str, earned: str
) -> None:
    credit = seventh_step(constants).credit
    assert credit.local_gain == credit.global_gain == pytest.approx(0.07)
    assert f"{credit.cost_divisor:.4f}" == divisor
    assert f"{credit.utility:.4f}" == f"{credit.allocation_reward:.4f}" == earned


def test_hiding_the_budget_holds_intensity_and_bonus_at_a_full_budget() -> None:
    early = start(0.5, 1.0, FULL)
    early = replace(early, frontiers=tuple(replace(f, visits=3) for f in early.frontiers))
    late = replace(early, spent=0.9)
    rng = Random(0)
    assert allocate(late, rng, NO_BUDGET).intensity == allocate(early, rng, FULL).intensity
    assert allocate(late, rng, FULL).intensity < allocate(late, rng, NO_BUDGET).intensity


def test_hiding_the_budget_keeps_the_decision_on_the_ledger() -> None:
    stalled = replace(start(0.5, 1.0, FULL), stagnation=9, spent=0.9701)
    assert intervene(stalled, HERE, NO_BUDGET)[1].scheduled is None
    assert intervene(stalled, HERE, NO_GATING)[1].scheduled is Mode.BREAKTHROUGH


def test_without_calibration_low_yield_still_counts_dollars() -> None:
    wasteful = replace(start(0.5, 1.0, FULL), stagnation=2, low_yield_cost=0.02, spent=0.1)
    assert intervene(wasteful, HERE, NO_CALIBRATION)[1].scheduled is Mode.BREAKTHROUGH


def test_without_gating_low_yield_alone_buys_nothing() -> None:
    wasteful = replace(start(0.5, 1.0, FULL), stagnation=2, low_yield_cost=0.5, spent=0.1)
    assert intervene(wasteful, HERE, FULL)[1].scheduled is Mode.BREAKTHROUGH
    assert intervene(wasteful, HERE, NO_GATING)[1].scheduled is None


def test_without_gating_patience_still_grows_as_the_budget_runs_out() -> None:
    late = replace(start(0.5, 1.0, FULL), stagnation=5, spent=0.99)
    assert intervene(late, HERE, NO_GATING)[1].scheduled is None
    assert intervene(replace(late, stagnation=6), HERE, NO_GATING)[1].scheduled is not None


def test_without_gating_consolidation_and_cycles_still_suppress_guides() -> None:
    ungated = replay(20, NO_GATING)
    assert [step.state.iteration for step in ungated if step.intervention.scheduled] == [6, 12, 19]
