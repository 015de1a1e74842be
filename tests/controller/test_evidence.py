import pytest

from costada.controller.constants import Constants
from costada.controller.credit import (
    is_low_yield,
    low_yield_cost,
    made_incumbent_progress,
    made_progress,
    stagnation,
)

CONSTANTS = Constants(progress_threshold=0.01)


def test_progress_must_exceed_its_threshold() -> None:
    assert not made_progress(0.01, CONSTANTS)
    assert made_progress(0.011, CONSTANTS)


def test_incumbent_progress_must_exceed_ten_thresholds() -> None:
    assert not made_incumbent_progress(0.1, CONSTANTS)
    assert made_incumbent_progress(0.101, CONSTANTS)


def test_stagnation_counts_steps_and_restarts_at_progress() -> None:
    assert stagnation(4, 0.0, CONSTANTS) == 5
    assert stagnation(4, 0.02, CONSTANTS) == 0


@pytest.mark.parametrize(
    ("utility", "reward", "expected"),
    [(0.01, 0.01, True), (0.02, 0.0, False), (0.0, 0.02, False), (0.0, 0.0, True)],
)
def test_a_step_is_low_yield_when_it_earns_neither_credit(
    utility: float, reward: float, expected: bool
) -> None:
    assert is_low_yield(utility, reward, CONSTANTS) is expected


def test_low_yield_cost_adds_up_and_restarts_at_a_yield() -> None:
    assert low_yield_cost(0.25, 0.5, is_low_yield=True) == 0.75
    assert low_yield_cost(0.25, 0.5, is_low_yield=False) == 0.0
