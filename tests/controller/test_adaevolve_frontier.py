import math
from collections import Counter
from random import Random

import pytest

from costada.controller.baselines.adaevolve_frontiers import (
    AdaEvolveFrontier,
    evaluated,
    informed,
    promise,
    relative_improvement,
    select_frontier,
)
from costada.controller.constants import Constants
from costada.controller.intensity import intensity

CONSTANTS = Constants()
STARTED = AdaEvolveFrontier(
    best_score=0.5,
    signal=0.1,
    improvements=1,
    evaluations=1,
    visits=1,
    reward=1.0,
    decayed_visits=1.0,
)


def test_a_tenth_above_the_best_moves_signal_and_intensity_by_hand_computed_amounts() -> None:
    assert relative_improvement(0.55, 0.5, 0.5) == pytest.approx(0.1, abs=1e-8)
    after = evaluated(STARTED, 0.55, global_best=0.5)
    assert after.signal == pytest.approx(0.091, abs=1e-8)
    assert intensity(after.signal, 1.0, CONSTANTS) == pytest.approx(0.41889, abs=1e-5)


def test_a_rise_above_zero_counts_in_full() -> None:
    from_zero = AdaEvolveFrontier(best_score=0.0, signal=0.1)
    assert relative_improvement(0.2, 0.0, 0.0) == 1.0
    after = evaluated(from_zero, 0.2, global_best=0.0)
    assert after.signal == pytest.approx(0.19)
    assert intensity(after.signal, 1.0, CONSTANTS) == pytest.approx(0.39375, abs=1e-5)


def test_four_regressions_leave_signal_and_best_score_as_they_were() -> None:
    after = STARTED
    for score in (0.4, 0.5, 0.1, -3.0):
        after = evaluated(after, score, global_best=0.5)
    assert (after.signal, after.best_score) == (0.1, 0.5)
    assert (after.improvements, after.evaluations, after.visits) == (1, 5, 5)


def test_a_regression_decays_reward_and_visits() -> None:
    after = evaluated(STARTED, 0.4, global_best=0.5)
    assert (after.reward, after.decayed_visits) == (0.9, 1.9)


def test_the_reward_is_the_local_rise_over_the_best_of_all_frontiers() -> None:
    after = evaluated(STARTED, 0.6, global_best=2.0)
    assert after.reward == pytest.approx(0.9 + 0.1 / 2.0)
    assert after.decayed_visits == 1.9
    assert (after.best_score, after.improvements) == (0.6, 2)


@pytest.mark.parametrize(
    ("score", "best_score", "reference", "expected"),
    [
        (0.5, 0.5, 0.5, 0.0),
        (0.4, 0.5, 0.5, 0.0),
        (0.4, -math.inf, -math.inf, 1.0),
        (-9.0, -math.inf, 0.5, 1.0),
        (1.5, 0.5, 0.5, 1.0),
        (-0.9, -1.0, -1.0, 0.1),
        (1e308, -1e308, -1e308, 1.0),
    ],
)
def test_an_improvement_is_between_nothing_and_one(
    score: float, best_score: float, reference: float, expected: float
) -> None:
    found = relative_improvement(score, best_score, reference)
    assert found == pytest.approx(expected, abs=1e-7)


def test_a_copy_from_elsewhere_raises_best_score_and_signal_alone() -> None:
    after = informed(STARTED, 0.75)
    assert after.best_score == 0.75
    assert after.signal == pytest.approx(0.9 * 0.1 + 0.1 * 0.25, abs=1e-8)
    assert (after.improvements, after.evaluations, after.visits) == (1, 1, 1)
    assert (after.reward, after.decayed_visits) == (1.0, 1.0)


@pytest.mark.parametrize("score", [0.5, 0.1])
def test_a_copy_that_is_not_better_changes_nothing(score: float) -> None:
    assert informed(STARTED, score) is STARTED


def test_the_first_score_of_an_empty_frontier_counts_in_full_whatever_it_is() -> None:
    after = evaluated(AdaEvolveFrontier(), -4.0, global_best=0.5)
    assert after.signal == pytest.approx(0.1)
    assert (after.best_score, after.improvements, after.reward) == (-4.0, 1, 1.0)


def test_the_promise_is_mean_reward_plus_bonus_by_hand() -> None:
    first = AdaEvolveFrontier(visits=4, reward=0.06, decayed_visits=3.0)
    second = AdaEvolveFrontier(visits=3, reward=0.0, decayed_visits=2.71)
    assert promise(first, 7) == pytest.approx(1.0366, abs=1e-4)
    assert promise(second, 7) == pytest.approx(1.1739, abs=1e-4)
    assert select_frontier((first, second), 7, Random(1)) == 1


def test_a_large_reward_outweighs_the_bonus() -> None:
    rewarded = AdaEvolveFrontier(visits=4, reward=3.0, decayed_visits=3.0)
    idle = AdaEvolveFrontier(visits=3, reward=0.0, decayed_visits=2.71)
    assert select_frontier((idle, rewarded), 7, Random(1)) == 1


def test_the_lowest_frontier_wins_a_tie_without_a_draw() -> None:
    same = AdaEvolveFrontier(visits=3, reward=0.5, decayed_visits=2.71)
    rng = Random(1)
    before = rng.getstate()
    assert select_frontier((same, same, same), 9, rng) == 0
    assert rng.getstate() == before


def test_frontiers_below_three_visits_are_drawn_evenly_before_all_others() -> None:
    busy = AdaEvolveFrontier(visits=9, reward=9.0, decayed_visits=5.0)
    twice = AdaEvolveFrontier(visits=2, reward=9.0, decayed_visits=1.9)
    rng = Random(3)
    drawn = Counter(
        select_frontier((busy, twice, busy, AdaEvolveFrontier()), 20, rng) for _ in range(2000)
    )
    assert set(drawn) == {1, 3}
    assert drawn[1] / 2000 == pytest.approx(0.5, abs=0.04)
