from math import log, sqrt

import pytest

from costada.controller.allocation import allocation_reward, optimism_bonus, select_frontier
from costada.controller.constants import Constants
from costada.controller.frontier import Frontier

CONSTANTS = Constants()


def test_the_reward_is_the_global_gain_over_the_divisor() -> None:
    assert allocation_reward(0.3, 1.5) == pytest.approx(0.2)


def test_the_bonus_falls_with_visits_and_with_the_budget() -> None:
    assert optimism_bonus(3, 9, 0.5, CONSTANTS) == pytest.approx(0.25 * sqrt(log(10) / 4))
    assert optimism_bonus(3, 9, 0.0, CONSTANTS) == 0.0
    assert optimism_bonus(0, 0, 1.0, CONSTANTS) == 0.0


def test_the_bonus_ignores_the_budget_when_it_is_hidden() -> None:
    hidden = Constants(conditions_on_budget=False)
    assert optimism_bonus(3, 9, 0.0, hidden) == optimism_bonus(3, 9, 1.0, CONSTANTS)


def test_the_lowest_index_wins_a_tie() -> None:
    assert select_frontier((Frontier(0.5),) * 3, 1.0, CONSTANTS) == 0


def test_an_unvisited_frontier_follows_the_first_visit() -> None:
    assert select_frontier((Frontier(0.5, visits=1), Frontier(0.5)), 1.0, CONSTANTS) == 1


def test_the_estimate_decides_when_nothing_is_left_to_spend() -> None:
    frontiers = (Frontier(0.5, visits=1), Frontier(0.5, allocation_estimate=0.01, visits=90))
    assert select_frontier(frontiers, 0.0, CONSTANTS) == 1
    assert select_frontier(frontiers, 1.0, CONSTANTS) == 0
