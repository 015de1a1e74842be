import math
from typing import Any

import pytest

from costada.controller.constants import Constants


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


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_frontiers", 0, r"num_frontiers: got 0, expected at least 1"),
        ("num_frontiers", 2.0, r"num_frontiers: got 2\.0, expected a whole number"),
        ("num_frontiers", True, r"num_frontiers: got True, expected a whole number"),
        ("archive_size", 1, r"archive_size: got 1, expected at least 2"),
        ("utility_smoothing", 1.5, r"utility_smoothing: got 1\.5, expected between 0 and 1"),
        ("min_cost_weight", -0.1, r"min_cost_weight: got -0\.1, expected between 0 and 1"),
        ("reference_cost", 0.0, r"reference_cost: got 0\.0, expected a finite number above 0"),
        ("reference_cost", math.inf, r"reference_cost: got inf, expected a finite number above 0"),
        ("reference_cost", "0.01", r"reference_cost: got '0\.01', expected a number"),
        ("optimism_scale", math.nan, r"optimism_scale: got nan, expected at least 0"),
        ("calibrates_cost", 1, r"calibrates_cost: got 1, expected true or false"),
        ("min_intensity", 0.6, r"min_intensity: got 0\.6, expected at most max_intensity \(0\.5\)"),
    ],
)
def test_a_bad_value_is_refused_with_its_field_and_expectation(
    field: str, value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Constants(**{field: value})


def test_a_whole_number_is_accepted_where_a_real_one_is_meant() -> None:
    assert Constants(optimism_scale=1).optimism_scale == 1
