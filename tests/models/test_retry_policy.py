"""What a run's waits for its providers refuse."""

from math import inf, nan
from typing import Any

import pytest
from declared_limits import untested_limits
from pydantic import ValidationError

from costada.models.providers import RetryPolicy
from costada.values.setting import refusals

WAITS = ("call_timeout", "retry_wait", "longest_wait", "longest_pause")
YEAR, ABOVE_A_YEAR = 31_622_400.0, 31_622_400.000000004

REFUSALS: list[tuple[dict[str, Any], str]] = [
    *(
        ({name: value}, f"{name}: got {value}, expected {expected}")
        for name in WAITS
        for value, expected in (
            (0, "greater than 0"),
            (-1, "greater than 0"),
            (ABOVE_A_YEAR, "less than or equal to 31622400"),
            (1e12, "less than or equal to 31622400"),
            (nan, "a finite number"),
            (inf, "a finite number"),
        )
    ),
    ({"retry_wait": "soon"}, "retry_wait: got 'soon', expected a number"),
    (
        {"retry_wait": 300.5},
        "retry_wait: got 300.5, expected at most longest_wait, which is 300",
    ),
    (
        {"longest_wait": 4.5},
        "retry_wait: got 5, expected at most longest_wait, which is 4.5",
    ),
    ({"retry_waits": 1}, "retry_waits: got 1, Extra inputs are not permitted"),
]


@pytest.mark.parametrize(("given", "message"), REFUSALS)
def test_a_wrong_wait_is_refused_with_its_value_and_what_was_expected(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        RetryPolicy(**given)
    assert refusals(refused.value) == message


def test_each_limit_of_a_wait_has_a_row_just_outside() -> None:
    rows = (given for given, _ in REFUSALS)
    assert untested_limits(RetryPolicy, RetryPolicy.model_fields, rows) == []


def test_a_wait_may_be_at_its_limits() -> None:
    longest = dict.fromkeys(WAITS, YEAR)
    shortest = dict.fromkeys(WAITS, 5e-324)
    for waits in (longest, shortest):
        assert RetryPolicy(**waits).model_dump() == waits
