"""The three ablations, each against the seventh step of the trace or a bare decision."""

from dataclasses import replace
from random import Random

import pytest
from controller_trace import Step, read_rows, replay, run_step

from costada.controller.allocation import Action, Allocation
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance
from costada.controller.guidance import Mode

FULL = Constants()
NO_CALIBRATION = Constants(calibrates_cost=False)
NO_BUDGET = Constants(conditions_on_budget=False)
NO_GATING = Constants(gates_intervention=False)
HERE = Allocation(0, Action.BALANCED, 0.3)
START = CostAda.start(0.5, FULL)


def scheduled(constants: Constants, spent: float, stagnation: int, **more: float) -> Mode | None:
    stalled = replace(START, stagnation=stagnation, **more)
    return stalled.decide(HERE, Balance(1.0, spent), constants)[1].scheduled


def seventh_step(constants: Constants) -> Step:
    row, before = read_rows()[6], replay(6, FULL)[-1]
    return run_step(before.state, before.balance, row.cost, row.score, constants, Random(0))


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
    visited = replace(START, frontiers=tuple(replace(f, visits=3) for f in START.frontiers))

    def strength(spent: float, constants: Constants) -> float:
        return visited.ask(Balance(1.0, spent), Random(0), constants).intensity

    assert strength(0.9, NO_BUDGET) == strength(0.0, FULL)
    assert strength(0.9, FULL) < strength(0.9, NO_BUDGET)


@pytest.mark.parametrize(
    ("constants", "spent", "stagnation", "low_yield_cost", "expected"),
    [
        pytest.param(NO_BUDGET, 0.9701, 9, 0.0, None, id="a hidden budget still pays"),
        pytest.param(NO_GATING, 0.9701, 9, 0.0, Mode.BREAKTHROUGH, id="ungated, unaffordable"),
        pytest.param(NO_CALIBRATION, 0.1, 2, 0.02, Mode.BREAKTHROUGH, id="low yield in dollars"),
        pytest.param(FULL, 0.1, 2, 0.5, Mode.BREAKTHROUGH, id="low yield"),
        pytest.param(NO_GATING, 0.1, 2, 0.5, None, id="ungated, low yield alone"),
        pytest.param(NO_GATING, 0.99, 5, 0.0, None, id="ungated, patience not used up"),
        pytest.param(NO_GATING, 0.99, 6, 0.0, Mode.BREAKTHROUGH, id="ungated, patience used up"),
    ],
)
def test_an_ablation_changes_its_own_condition_for_a_guide(
    constants: Constants,
    spent: float,
    stagnation: int,
    low_yield_cost: float,
    expected: Mode | None,
) -> None:
    assert scheduled(constants, spent, stagnation, low_yield_cost=low_yield_cost) is expected


def test_without_gating_consolidation_and_cycles_still_suppress_guides() -> None:
    ungated = replay(20, NO_GATING)
    assert [step.state.iteration for step in ungated if step.intervention.scheduled] == [6, 12, 19]
