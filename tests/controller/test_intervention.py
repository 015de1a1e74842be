from itertools import product

import pytest

from costada.controller.constants import Constants
from costada.controller.guidance import GuidanceCycle, Mode
from costada.controller.intervention import (
    can_afford_guide,
    has_low_yield,
    is_free_for_guide,
    is_stagnant,
    required_patience,
    should_intervene,
)

CONSTANTS = Constants()
CHOICE = (False, True)


@pytest.mark.parametrize(
    ("ratio", "patience"),
    [(1.0, 4), (0.9, 4), (1 / 3 + 1e-6, 4), (0.32, 5), (0.16, 6), (0.0, 6)],
)
def test_patience_grows_as_the_budget_runs_out(ratio: float, patience: int) -> None:
    assert required_patience(ratio, 2, CONSTANTS) == patience


def test_rounding_does_not_lift_a_whole_patience() -> None:
    assert 20 * (1 - 0.7) > 6
    assert required_patience(0.7, 1, Constants(base_patience=20)) == 6


def test_patience_is_at_least_two_visits_per_frontier() -> None:
    assert required_patience(1.0, 5, CONSTANTS) == 10


def test_stagnation_must_reach_the_patience() -> None:
    assert not is_stagnant(3, 0.9, 2, CONSTANTS)
    assert is_stagnant(4, 0.9, 2, CONSTANTS)


@pytest.mark.parametrize(
    ("stagnation", "cost", "ratio", "expected"),
    [
        (2, 0.02, 0.5, True),
        (1, 0.02, 0.5, False),
        (2, 0.0199, 0.5, False),
        (2, 0.02, 0.4999, False),
    ],
)
def test_low_yield_needs_half_the_budget_a_visit_each_and_a_guide_of_dollars(
    stagnation: int, cost: float, ratio: float, expected: bool
) -> None:
    assert has_low_yield(stagnation, cost, ratio, 2, CONSTANTS) is expected


def test_a_guide_is_affordable_with_one_step_after_it() -> None:
    assert not can_afford_guide(1.0, 1.0 - 0.0299, CONSTANTS)
    assert can_afford_guide(1.0, 1.0 - 0.0301, CONSTANTS)


def test_consolidation_cycle_and_backoff_each_stand_in_the_way() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (1,))
    assert is_free_for_guide(0, None, backed_off=False)
    assert not is_free_for_guide(1, None, backed_off=False)
    assert not is_free_for_guide(0, cycle, backed_off=False)
    assert not is_free_for_guide(0, None, backed_off=True)


def test_a_guide_is_bought_when_free_affordable_and_either_evidence_holds() -> None:
    bought = {
        case
        for case in product(CHOICE, CHOICE, CHOICE, CHOICE)
        if should_intervene(*case, constants=CONSTANTS)
    }
    free = afford = stagnant = low_yield = True
    assert bought == {
        (free, afford, stagnant, False),
        (free, afford, False, low_yield),
        (free, afford, stagnant, low_yield),
    }


def test_without_gating_stagnation_alone_decides() -> None:
    ungated = Constants(gates_intervention=False)
    for free, afford, stagnant, low_yield in product(CHOICE, CHOICE, CHOICE, CHOICE):
        decision = should_intervene(free, afford, stagnant, low_yield, ungated)
        assert decision is (free and stagnant)
