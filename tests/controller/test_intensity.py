from collections import Counter
from random import Random

import pytest

from costada.controller.constants import Constants
from costada.controller.intensity import Action, bootstrap_action, intensity, sample_action

CONSTANTS = Constants()


def test_intensity_is_highest_for_an_idle_frontier_with_all_its_budget() -> None:
    assert intensity(0.0, 1.0, CONSTANTS) == pytest.approx(0.15 + 0.35 / 1.0001)


def test_intensity_is_lowest_when_the_budget_is_gone() -> None:
    assert intensity(0.3, 0.0, CONSTANTS) == 0.15


def test_intensity_falls_with_utility() -> None:
    assert intensity(1.0, 0.5, CONSTANTS) == pytest.approx(0.15 + 0.35 * 0.5 / 2)


def test_intensity_ignores_the_budget_when_it_is_hidden() -> None:
    hidden = Constants(conditions_on_budget=False)
    assert intensity(0.2, 0.1, hidden) == intensity(0.2, 1.0, CONSTANTS)


def test_the_first_step_explores_and_first_visits_are_balanced() -> None:
    assert bootstrap_action(0, 0) is Action.EXPLORATION
    assert bootstrap_action(0, 1) is Action.BALANCED
    assert bootstrap_action(1, 1) is None


def test_actions_are_drawn_with_the_stated_probabilities() -> None:
    rng = Random(7)
    draws = Counter(sample_action(0.4, rng, CONSTANTS) for _ in range(20_000))
    assert draws[Action.EXPLORATION] / 20_000 == pytest.approx(0.40, abs=0.015)
    assert draws[Action.EXPLOITATION] / 20_000 == pytest.approx(0.42, abs=0.015)
    assert draws[Action.BALANCED] / 20_000 == pytest.approx(0.18, abs=0.015)
