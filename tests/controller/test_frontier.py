import pytest

from costada.controller.constants import Constants
from costada.controller.frontier import (
    Frontier,
    higher_score,
    moving_average,
    raised,
    total_visits,
    visited,
    with_frontier,
)


def test_the_moving_average_keeps_the_smoothing_share_of_the_old_value() -> None:
    assert moving_average(1.0, 3.0, 0.75) == 1.5


def test_a_visit_updates_all_four_statistics() -> None:
    constants = Constants(utility_smoothing=0.5, allocation_smoothing=0.75)
    before = Frontier(0.5, smoothed_utility=0.2, allocation_estimate=0.4, visits=3)
    after = visited(before, 0.6, 0.4, 0.0, constants)
    assert after.best_score == 0.6
    assert after.smoothed_utility == pytest.approx(0.3)
    assert after.allocation_estimate == pytest.approx(0.3)
    assert after.visits == 4


def test_a_visit_that_evaluated_nothing_still_counts_and_decays() -> None:
    after = visited(Frontier(0.5, 0.2, 0.4, 3), None, 0.0, 0.0, Constants())
    assert (after.best_score, after.visits) == (0.5, 4)
    assert after.smoothed_utility == pytest.approx(0.18)
    assert after.allocation_estimate == pytest.approx(0.36)


def test_migrants_raise_the_best_score_and_nothing_else() -> None:
    before = Frontier(0.5, 0.2, 0.4, 3)
    assert raised(before, 0.7) == Frontier(0.7, 0.2, 0.4, 3)
    assert raised(before, 0.3) == before


def test_the_best_score_never_falls() -> None:
    assert [higher_score(0.5, score) for score in (0.6, 0.4, None)] == [0.6, 0.5, 0.5]


def test_visits_add_up_over_frontiers() -> None:
    assert total_visits((Frontier(0, visits=2), Frontier(0, visits=5))) == 7


def test_replacing_one_frontier_keeps_the_others() -> None:
    first, second, third, fresh = (Frontier(float(score)) for score in range(4))
    assert with_frontier((first, second, third), 1, fresh) == (first, fresh, third)
