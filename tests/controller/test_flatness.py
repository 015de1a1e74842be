"""The chance of another gain, against the integral that its model describes."""

from math import exp, gamma, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from costada.controller.constants import Constants
from costada.controller.credit import Balance
from costada.controller.step import chance_of_gain, is_flat, max_in_flight, spent_at_gain

CONSTANTS = Constants()
LONG = Constants(max_iterations=10**6)

dollars = st.floats(0.01, 100.0)
shares = st.floats(0.0, 1.0)


def chance(budget, spent, gained_at, iterations, constants=LONG):
    return chance_of_gain(Balance(budget, spent), gained_at, iterations, constants)


def test_the_chance_is_computed_by_hand():
    """Ten steps for $0.10, the last gain at $0.08: s = 2 x 0.01 + 0.08 / 2 = 0.06, w = 0.02."""
    assert chance(0.5, 0.1, 0.08, 10) == pytest.approx(1 - (0.08 / (0.08 + 0.4)) ** 2)


@given(dollars, shares, dollars, st.integers(1, 200))
def test_the_chance_is_the_mean_over_the_posterior_of_the_rate(spent, share, left, iterations):
    """A rate misses within `left` dollars with probability exp(-rate x left)."""
    gained_at, step_cost = share * spent, spent / iterations
    rate_parameter = 2 * step_cost + gained_at / 2 + spent - gained_at

    def weighted(scaled):
        """Density of rate x rate_parameter, which is Gamma(2, 1), times the chance to miss."""
        return scaled * exp(-scaled) / gamma(2) * exp(-scaled * left / rate_parameter)

    missed, _ = quad(weighted, 0, inf)
    found = chance(spent + left, spent, gained_at, iterations)
    assert found == pytest.approx(1 - missed, abs=1e-6)


@given(dollars, shares, dollars, st.integers(1, 200), st.floats(0.01, 100.0))
def test_the_chance_is_in_bounds_and_does_not_depend_on_the_currency(
    spent, share, left, iterations, rate
):
    found = chance(spent + left, spent, share * spent, iterations)
    assert 0.0 <= found <= 1.0
    again = chance(rate * (spent + left), rate * spent, rate * share * spent, iterations)
    assert again == pytest.approx(found, abs=1e-6)


@given(dollars, shares, shares, dollars, dollars, st.integers(1, 200))
def test_the_chance_rises_with_money_left_and_falls_with_money_that_brought_nothing(
    spent, one, other, left, more, iterations
):
    earlier, later = sorted((one * spent, other * spent))
    chances = [chance(spent + left, spent, at, iterations) for at in (earlier, later)]
    assert chances[0] <= chances[1] + 1e-12
    assert chance(spent + left + more, spent, earlier, iterations) >= chances[0] - 1e-12


def test_iterations_that_are_left_limit_what_money_can_buy():
    """At 98 of 100 iterations of $0.01 two more steps can be made, whatever the budget."""
    few, payable = Constants(max_iterations=100), 0.02
    rate_parameter = 2 * 0.01 + 0.5 / 2 + 0.48
    expected = 1 - (rate_parameter / (rate_parameter + payable)) ** 2
    assert chance(50.0, 0.98, 0.5, 98, few) == pytest.approx(expected)
    assert chance(50.0, 1.0, 0.5, 100, few) == 0.0


def test_a_run_is_flat_below_the_threshold_and_never_without_one_or_without_money():
    balance, gained_at = Balance(1.0, 0.9), 0.3
    found = chance_of_gain(balance, gained_at, 60, CONSTANTS)
    assert is_flat(found + 1e-9, balance, gained_at, 60, CONSTANTS)
    assert not is_flat(found, balance, gained_at, 60, CONSTANTS)
    assert not is_flat(None, balance, gained_at, 60, CONSTANTS)
    assert not is_flat(0.5, Balance(1.0, 1.2), gained_at, 60, CONSTANTS)
    assert not is_flat(0.5, Balance(1.0, 0.0), 0.0, 0, CONSTANTS)


def test_only_a_gain_above_the_threshold_of_progress_counts():
    assert spent_at_gain(0.1, 0.4, 2 * CONSTANTS.progress_threshold, CONSTANTS) == 0.4
    assert spent_at_gain(0.1, 0.4, CONSTANTS.progress_threshold, CONSTANTS) == 0.1


@pytest.mark.parametrize(
    ("spent", "gained_at", "iterations", "steps"),
    [
        (0.0, 0.0, 0, 1),  # nothing is known
        (1.0, 0.0, 1, 1),  # s + w = 2 + 1, so a rate of 2/3 a dollar: one and a half
        (4.0, 0.0, 4, 3),  # 2 + 4: a third, three steps
        (4.0, 4.0, 4, 2),  # a gain just now: 2 + 2 + 0, a half
        (10.0, 4.0, 10, 5),  # 2 + 2 + 6: a fifth
        (40.0, 4.0, 40, 8),  # no more than K
        (20.0, 8.0, 10, 5),  # twice the price: 4 + 4 + 12, a tenth a dollar, a fifth a step
    ],
)
def test_so_many_steps_are_in_flight_as_are_expected_to_bring_a_gain(
    spent, gained_at, iterations, steps
):
    balance = Balance(100.0, spent)
    assert max_in_flight(8, 1.0, balance, gained_at, iterations) == steps
    assert max_in_flight(8, None, balance, gained_at, iterations) == 8
    assert max_in_flight(1, 1.0, balance, gained_at, iterations) == 1
