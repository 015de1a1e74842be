"""Prices, money and the defaults of constants."""

from decimal import Decimal
from typing import Any

import pytest

from costada.controller.constants import Constants
from costada.controller.credit import (
    has_crossed,
    normalized_cost,
    remaining,
    remaining_ratio,
    visible_ratio,
)
from costada.values.usage import Price, Usage, call_cost

PRICE = Price("0.60", "1.92")


def test_a_call_costs_the_sum_of_its_tokens_at_their_prices() -> None:
    assert call_cost(Usage(7634, 4576), PRICE) == Decimal("0.01336632")


def test_reasoning_is_charged_once_as_output() -> None:
    assert call_cost(Usage(10, 100, reasoning_tokens=90), PRICE) == call_cost(Usage(10, 100), PRICE)


def test_cached_input_is_charged_at_its_own_price() -> None:
    price = Price(1, 0, cached_per_million="0.25")
    assert call_cost(Usage(1_000_000, 0, cached_tokens=400_000), price) == Decimal("0.7")


def test_cached_input_costs_as_much_as_other_input_without_a_price_of_its_own() -> None:
    assert PRICE.cached_per_million == Decimal("0.60")
    assert call_cost(Usage(100, 0, cached_tokens=60), PRICE) == call_cost(Usage(100, 0), PRICE)


def test_a_float_price_means_what_it_prints() -> None:
    assert Price(0.1, 0.2) == Price("0.1", Decimal("0.2"))


def test_many_calls_add_up_without_drift() -> None:
    dime_per_million = call_cost(Usage(1, 0), Price(0.1, 0))
    assert sum([dime_per_million] * 1000) == Decimal("0.0001")


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        (-1, r"input_per_million: got -1, expected finite dollars of at least 0"),
        ("inf", r"input_per_million: got 'inf', expected finite dollars of at least 0"),
        ("1e300", r"input_per_million: got '1e300', expected at most 1,000,000,000 dollars"),
        ("free", r"input_per_million: got 'free', expected a number of dollars"),
    ],
)
def test_a_price_that_is_no_amount_is_refused(amount: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Price(amount, 1)


@pytest.mark.parametrize(
    ("usage", "message"),
    [
        ({"input_tokens": -1}, r"input_tokens: got -1, expected an integer of at least 0"),
        ({"output_tokens": 1.5}, r"output_tokens: got 1\.5, expected an integer"),
        ({"cached_tokens": 6}, r"cached_tokens: got 6, expected at most input_tokens \(5\)"),
        ({"reasoning_tokens": 8}, r"reasoning_tokens: got 8, expected at most output_tokens \(7\)"),
    ],
)
def test_a_usage_that_cannot_be_is_refused(usage: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Usage(**{"input_tokens": 5, "output_tokens": 7} | usage)


def test_the_remaining_ratio_falls_to_zero_and_stays_there() -> None:
    assert [remaining_ratio(4.0, spent) for spent in (0.0, 1.0, 4.0, 5.0)] == [1.0, 0.75, 0.0, 0.0]


def test_the_remaining_dollars_turn_negative_after_an_overshoot() -> None:
    assert remaining(4.0, 5.0) == -1.0


def test_the_budget_is_crossed_when_it_is_spent_exactly() -> None:
    assert [has_crossed(1.0, spent) for spent in (0.99, 1.0, 1.01)] == [False, True, True]


def test_a_step_cost_is_counted_in_reference_costs() -> None:
    constants = Constants(reference_cost=0.03, cost_stabilizer=0.01)
    assert normalized_cost(0.02, constants) == 0.5


def test_hiding_the_budget_replaces_the_ratio_by_the_stand_in() -> None:
    assert visible_ratio(0.3, 0.9, Constants()) == 0.3
    assert visible_ratio(0.3, 0.9, Constants(conditions_on_budget=False)) == 0.9


def test_the_defaults_are_the_values_of_the_paper() -> None:
    constants = Constants()
    assert (constants.num_frontiers, constants.max_iterations) == (2, 100)
    assert (constants.min_intensity, constants.max_intensity) == (0.15, 0.5)
    assert (constants.utility_smoothing, constants.allocation_smoothing) == (0.9, 0.9)
    assert (constants.optimism_scale, constants.min_cost_weight) == (0.5, 0.25)
    assert (constants.base_patience, constants.progress_threshold) == (6, 1e-6)
    assert (constants.archive_size, constants.num_inspirations) == (20, 4)
    assert (constants.tactics_per_guide, constants.uses_per_tactic) == (3, 2)
    assert (constants.max_attempts, constants.max_guide_calls) == (3, 2)
    assert (constants.migration_interval, constants.num_migrants) == (15, 5)


def test_the_incumbent_threshold_is_ten_progress_thresholds() -> None:
    assert Constants(progress_threshold=0.002).incumbent_threshold == 0.02


def test_a_guide_is_estimated_at_two_reference_costs() -> None:
    assert Constants(reference_cost=0.1).guide_cost_estimate == 0.2
