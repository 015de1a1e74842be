"""Gains, utility, evidence and the averages of a frontier."""

from math import log

import pytest

from costada.controller.allocation import (
    Frontier,
    after_visit,
    higher_score,
    moving_average,
    visits_in_flight,
    with_best,
    with_frontier,
)
from costada.controller.constants import Constants
from costada.controller.credit import (
    cost_divisor,
    cost_weight,
    global_weight,
    is_low_yield,
    log_cost,
    low_yield_cost,
    made_incumbent_progress,
    made_progress,
    normalized_gain,
    stagnation,
    utility,
)


@pytest.mark.parametrize(
    ("score", "reference", "gain"),
    [
        (0.7, 0.5, 0.2),
        (0.5, 0.7, 0.0),
        (0.5, 0.5, 0.0),
        (4.0, 3.0, 0.25),
        (1.0, -3.0, 4 / 3),
        (None, 0.5, 0.0),
    ],
)
def test_a_gain_is_the_rise_over_the_larger_magnitude_or_one(
    score: float | None, reference: float, gain: float
) -> None:
    assert normalized_gain(score, reference) == pytest.approx(gain, abs=1e-15)


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


COARSE = Constants(progress_threshold=0.01)


def test_progress_must_exceed_its_threshold() -> None:
    assert not made_progress(0.01, COARSE)
    assert made_progress(0.011, COARSE)


def test_incumbent_progress_must_exceed_ten_thresholds() -> None:
    assert not made_incumbent_progress(0.1, COARSE)
    assert made_incumbent_progress(0.101, COARSE)


def test_stagnation_counts_steps_and_restarts_at_progress() -> None:
    assert stagnation(4, 0.0, COARSE) == 5
    assert stagnation(4, 0.02, COARSE) == 0


@pytest.mark.parametrize(
    ("utility", "reward", "expected"),
    [(0.01, 0.01, True), (0.02, 0.0, False), (0.0, 0.02, False), (0.0, 0.0, True)],
)
def test_a_step_is_low_yield_when_it_earns_neither_credit(
    utility: float, reward: float, expected: bool
) -> None:
    assert is_low_yield(utility, reward, COARSE) is expected


def test_low_yield_cost_adds_up_and_restarts_at_a_yield() -> None:
    assert low_yield_cost(0.25, 0.5, is_low_yield=True) == 0.75
    assert low_yield_cost(0.25, 0.5, is_low_yield=False) == 0.0


def test_the_moving_average_keeps_the_smoothing_share_of_the_old_value() -> None:
    assert moving_average(1.0, 3.0, 0.75) == 1.5


def test_a_visit_updates_all_four_statistics() -> None:
    constants = Constants(utility_smoothing=0.5, allocation_smoothing=0.75)
    before = Frontier(0.5, smoothed_utility=0.2, allocation_estimate=0.4, visits=3)
    after = after_visit(before, 0.6, 0.4, 0.0, constants)
    assert after.best_score == 0.6
    assert after.smoothed_utility == pytest.approx(0.3)
    assert after.allocation_estimate == pytest.approx(0.3)
    assert after.visits == 4


def test_a_visit_that_evaluated_nothing_still_counts_and_decays() -> None:
    after = after_visit(Frontier(0.5, 0.2, 0.4, 3), None, 0.0, 0.0, Constants())
    assert (after.best_score, after.visits) == (0.5, 4)
    assert after.smoothed_utility == pytest.approx(0.18)
    assert after.allocation_estimate == pytest.approx(0.36)


def test_migrants_raise_the_best_score_and_nothing_else() -> None:
    before = Frontier(0.5, 0.2, 0.4, 3)
    assert with_best(before, 0.7) == Frontier(0.7, 0.2, 0.4, 3)
    assert with_best(before, 0.3) == before


def test_the_best_score_never_falls() -> None:
    assert [higher_score(0.5, score) for score in (0.6, 0.4, None)] == [0.6, 0.5, 0.5]


def test_steps_in_flight_count_as_visits_of_their_frontier() -> None:
    frontiers = (Frontier(0, visits=2), Frontier(0, visits=5))
    assert visits_in_flight(frontiers, ()) == [2, 5]
    assert visits_in_flight(frontiers, (1, 0, 1)) == [3, 7]


def test_replacing_one_frontier_keeps_the_others() -> None:
    first, second, third, fresh = (Frontier(float(score)) for score in range(4))
    assert with_frontier((first, second, third), 1, fresh) == (first, fresh, third)
