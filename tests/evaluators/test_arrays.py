import math

import numpy as np
import pytest

from costada.evaluators.benchmarks.circle_packing.evaluator import float_array


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2], [3, 4.0]],
        [np.array([1, 2]), [3, 4]],
        np.array([[1, 2], [3, 4]]),
        np.array([[1.0, 2.0], [3.0, 4.0]]),
    ],
)
def test_lists_and_arrays_of_numbers_become_the_same_array(value):
    array = float_array(value, "points", (2, 2))
    assert (array.dtype, array.tolist()) == (np.float64, [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, r"points is None; expected an array of shape \(2, 2\)"),
        ("much", r"points is text; expected an array"),
        (1.5, r"points is 1\.5; expected an array"),
        ({"points": [[1, 2], [3, 4]]}, "points is a dict; expected an array"),
        ([[1, 2], [3, None]], r"points holds None; expected numbers, shape \(2, 2\)"),
        ([[1, 2], [3, True]], "points holds True; expected numbers"),
        ([[1, 2], ["3", 4]], "points holds text; expected numbers"),
        ([[1, 2], [3, {}]], "points holds a dict; expected numbers"),
        ([[1, 2], [3]], "points is ragged"),
        ([[1, 2], 3], "points is ragged"),
        ([[1, 2], [[3], [4, 5]]], "points is ragged"),
        ([[1, 2], np.array([3, 4, 5])], "points is ragged"),
        ([], r"points has shape \(0,\); expected \(2, 2\)"),
        ([[], []], r"points has shape \(2, 0\); expected \(2, 2\)"),
        ([[1, 2]], r"points has shape \(1, 2\); expected \(2, 2\)"),
        (np.zeros((2, 2, 1)), r"points has shape \(2, 2, 1\); expected \(2, 2\)"),
        ([[1, 2], [3, math.nan]], r"points\[1, 1\] is nan; expected finite .* \(1 of 4 are not"),
        ([[-math.inf, 2], [3, math.inf]], r"points\[0, 0\] is -inf; .* \(2 of 4 are not finite\)"),
    ],
)
def test_anything_else_is_refused_with_what_was_expected(value, expected):
    with pytest.raises(ValueError, match=expected):
        float_array(value, "points", (2, 2))


@pytest.mark.parametrize(
    "value",
    [[np.ones(10**6)] * 10**5, ["x" * 10**6] + [""] * 10**5, [[1.0] * 300] * 300],
    ids=["one array many times", "a long text among short ones", "many numbers"],
)
def test_an_answer_that_would_grow_is_refused_before_it_does(value):
    with pytest.raises(ValueError, match="points "):
        float_array(value, "points", (2, 2))
