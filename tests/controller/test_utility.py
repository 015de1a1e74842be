from math import log

import pytest

from costada.controller.constants import Constants
from costada.controller.credit import cost_divisor, cost_weight, global_weight, log_cost, utility

CONSTANTS = Constants()


def test_the_global_weight_is_the_spent_part_of_the_budget() -> None:
    assert global_weight(0.75, CONSTANTS) == 0.25


def test_the_global_weight_is_fixed_when_the_budget_is_hidden() -> None:
    hidden = Constants(conditions_on_budget=False, fixed_global_weight=0.25)
    assert {global_weight(ratio, hidden) for ratio in (0.0, 0.5, 1.0)} == {0.25}


def test_the_cost_weight_does_not_fall_below_its_floor() -> None:
    assert [cost_weight(ratio, CONSTANTS) for ratio in (1.0, 0.75, 0.5, 0.0)] == [
        0.25,
        0.25,
        0.5,
        1,
    ]


def test_the_log_cost_of_nothing_is_zero() -> None:
    assert log_cost(0.0) == 0.0
    assert log_cost(1.0) == pytest.approx(log(2))


def test_the_divisor_is_one_plus_the_weighted_log_cost() -> None:
    assert cost_divisor(1.0, 0.5, CONSTANTS) == pytest.approx(1 + 0.5 * log(2))
    assert cost_divisor(0.0, 0.0, CONSTANTS) == 1.0


def test_the_divisor_is_one_without_cost_calibration() -> None:
    assert cost_divisor(3.0, 0.0, Constants(calibrates_cost=False)) == 1.0


def test_utility_mixes_the_gains_and_divides_by_the_divisor() -> None:
    assert utility(0.4, 0.2, 0.25, 2.0) == pytest.approx((0.25 * 0.2 + 0.75 * 0.4) / 2)
