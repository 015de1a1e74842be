"""What the constants of the controller refuse."""

from math import inf, nan
from typing import Any

import pytest
from declared_limits import untested_limits

from costada.controller.constants import Constants

ABOVE_1, BELOW_0 = 1.0000000000000002, -5e-324

COUNTS = (
    "max_attempts",
    "tactics_per_guide",
    "uses_per_tactic",
    "max_guide_calls",
    "migration_interval",
)
NATURALS = ("base_patience", "num_inspirations", "num_migrants")
POSITIVES = ("intensity_stabilizer", "reference_cost", "cost_stabilizer", "progress_threshold")
RATIOS = ("optimism_scale", "guide_cost_ratio")
SHARES = (
    "min_intensity",
    "max_intensity",
    "exploitation_share",
    "utility_smoothing",
    "allocation_smoothing",
    "min_cost_weight",
    "fixed_global_weight",
)

REFUSALS: list[tuple[str, Any, str]] = [
    *((name, 0, "greater than or equal to 1") for name in ("num_frontiers", "max_iterations")),
    ("num_frontiers", 1001, "less than or equal to 1000"),
    ("num_frontiers", 2.0, "an integer"),
    ("num_frontiers", True, "an integer"),
    ("max_iterations", 1_000_001, "less than or equal to 1000000"),
    ("archive_size", 1, "greater than or equal to 2"),
    ("archive_size", 1_000_001, "less than or equal to 1000000"),
    ("archive_size", 10**400, "less than or equal to 1000000"),
    *((name, 0, "greater than or equal to 1") for name in COUNTS),
    *((name, -1, "greater than or equal to 0") for name in NATURALS),
    *((name, 1_000_001, "less than or equal to 1000000") for name in (*COUNTS, *NATURALS)),
    *((name, 0.0, "greater than 0") for name in POSITIVES),
    *((name, BELOW_0, "greater than or equal to 0") for name in (*RATIOS, *SHARES)),
    *((name, ABOVE_1, "less than or equal to 1") for name in SHARES),
    *(
        (name, value, "a finite number")
        for name in (*POSITIVES, *RATIOS, *SHARES)
        for value in (inf, nan)
    ),
    ("reference_cost", 10**400, "a number"),
    ("reference_cost", "0.01", "a number"),
    *(
        (name, 1, "true or false")
        for name in ("calibrates_cost", "conditions_on_budget", "gates_intervention")
    ),
    ("min_intensity", 0.6, "at most max_intensity (0.5)"),
    ("guides", "sometimes", "'paper', 'always', 'never' or 'learned'"),
]


@pytest.mark.parametrize(
    ("field", "value", "expected"), REFUSALS, ids=lambda given: str(given)[:30]
)
def test_a_wrong_constant_is_refused_with_its_value_and_what_was_expected(
    field: str, value: Any, expected: str
) -> None:
    with pytest.raises(ValueError) as refused:
        Constants(**{field: value})
    assert str(refused.value) == f"{field}: got {value!r}, expected {expected}"


def test_each_limit_of_a_constant_has_a_row_just_outside() -> None:
    rows = ({field: value} for field, value, _ in REFUSALS)
    assert untested_limits(Constants, Constants.model_fields, rows) == []


def test_a_constant_may_be_at_its_limits() -> None:
    lowest: dict[str, Any] = {"num_frontiers": 1, "max_iterations": 1, "archive_size": 2}
    lowest |= dict.fromkeys(COUNTS, 1) | dict.fromkeys((*NATURALS, *RATIOS, *SHARES), 0)
    assert Constants(**lowest).model_dump(include={*lowest}) == lowest
    highest: dict[str, Any] = {"num_frontiers": 1000, **dict.fromkeys(SHARES, 1)}
    highest |= dict.fromkeys((*COUNTS, *NATURALS, "max_iterations", "archive_size"), 1_000_000)
    assert Constants(**highest).model_dump(include={*highest}) == highest


def test_an_integer_is_accepted_where_a_number_is_expected() -> None:
    assert Constants(optimism_scale=1).optimism_scale == 1


def test_every_wrong_constant_gets_its_line_and_an_unknown_one_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        Constants(num_frontiers=0, patience=1, archive_size=1)  # type: ignore[call-arg]
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "num_frontiers",
        "archive_size",
        "patience",
    ]


def test_a_rule_for_guides_contradicts_the_ablation_of_the_papers() -> None:
    with pytest.raises(ValueError) as refused:
        Constants(guides="never", gates_intervention=False)
    assert str(refused.value) == (
        "guides: got 'never' without gates_intervention, expected 'paper'"
    )
