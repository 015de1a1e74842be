import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costada.evaluators.benchmarks.third_autocorrelation.evaluator import (
    MAX_DIRECT,
    REFERENCE,
    autoconvolution_peak,
    autocorrelation_constant,
    score,
)

CONFIGURATIONS = Path(__file__).with_name("configurations")
WELL_FORMED = st.lists(st.integers(-9, 9), min_size=1, max_size=40).filter(sum)


def answer(values, c3, loss=0.0, n_points=None):
    return [np.asarray(values, dtype=float), c3, loss, n_points or len(values)]


def known(name):
    """The values of a stored function and its constant."""
    stored = json.loads((CONFIGURATIONS / name).read_text())
    return np.array(stored["values"], dtype=float), stored["c3"]


@pytest.mark.parametrize("n", [1, 2, 3, 49, 400, 1000, MAX_DIRECT])
@pytest.mark.parametrize("value", [1.0, -1.0, 3.0, 0.25, 1e200, 1.7e308])
def test_a_constant_function_has_exactly_two(n, value):
    evaluation = score(answer(np.full(n, value), 2.0))
    assert evaluation.objective == pytest.approx(2.0, rel=1e-12)
    if value in (1.0, -1.0, 3.0, 0.25):
        assert evaluation.objective == 2.0
    assert evaluation.score == pytest.approx(1.4556427953745406 / 2, rel=1e-12)
    assert evaluation.artifacts == {}


@pytest.mark.parametrize(
    ("values", "c3"),
    [
        ([5], 2),  # conv 25, sum 5: 2 * 1 * 25 / 25
        ([2, 1], 16 / 9),  # conv 4 4 1, sum 3: 2 * 2 * 4 / 9
        ([3, -1], 9),  # conv 9 -6 1, sum 2: 2 * 2 * 9 / 4
        ([0, 1], 4),  # conv 0 0 1, sum 1
        ([1, 2, 1], 2.25),  # conv 1 4 6 4 1, sum 4: 2 * 3 * 6 / 16
        ([3, -2, 0], 72),  # conv 9 -12 4 0 0, sum 1: the peak is the negative -12
        ([-2, 0, -1], 8 / 3),  # conv 4 0 4 0 1, sum -3: 2 * 3 * 4 / 9
    ],
)
def test_small_functions_agree_with_a_computation_by_hand(values, c3):
    assert score(answer(values, c3)).objective == pytest.approx(c3, rel=1e-12)


def test_a_known_good_function_passes_the_human_value_and_the_reference():
    values, c3 = known("third_autocorrelation.json")
    evaluation = score(answer(values, c3))
    assert evaluation.objective == pytest.approx(c3, rel=1e-12)
    assert evaluation.objective < 1.4556427953745406 < 1.4581
    assert evaluation.score == pytest.approx(REFERENCE / c3, rel=1e-12)


@given(WELL_FORMED, st.sampled_from([-1e9, -3.0, -0.5, 0.1, 2.0, 7e150]))
def test_scaling_the_function_does_not_matter(values, factor):
    plain = np.array(values, dtype=float)
    assert autocorrelation_constant(plain * factor) == pytest.approx(
        autocorrelation_constant(plain), rel=1e-12
    )


@given(WELL_FORMED)
def test_reversing_the_function_does_not_matter(values):
    plain = np.array(values, dtype=float)
    assert autocorrelation_constant(plain[::-1]) == pytest.approx(
        autocorrelation_constant(plain), rel=1e-12
    )


@given(WELL_FORMED)
def test_no_function_is_better_than_one(values):
    assert autocorrelation_constant(np.array(values, dtype=float)) > 1


def test_lists_integers_and_a_missing_number_of_points_are_accepted():
    assert score([[1, 2, 1], 2.25, 2.25, None]).objective == 2.25
    assert score([np.array([1, 2, 1]), 2.25, 2.25, 3.0]).metrics["n_points"] == 3


def test_a_loss_that_is_no_finite_number_counts_as_nothing():
    for loss in (None, math.nan, "low", [1.0]):
        evaluation = score(answer([1.0, 1.0], 2.0, loss=loss))
        assert (evaluation.metrics["loss"], evaluation.is_valid) == (0.0, True)


@pytest.mark.parametrize("deviation", [9.9e-4, -9.9e-4])
def test_a_reported_constant_just_within_the_tolerance_is_replaced_by_the_true_one(deviation):
    evaluation = score(answer(np.ones(400), 2.0 + deviation))
    assert evaluation.objective == 2.0
    assert evaluation.score == REFERENCE / 2
    assert evaluation.artifacts == {
        "tolerance": "the reported c3 is valid only within tolerance: it needs 0.00099"
    }


@pytest.mark.parametrize("deviation", [1.01e-3, -1.01e-3, -2.0, 1e300])
def test_a_reported_constant_just_outside_the_tolerance_is_refused(deviation):
    with pytest.raises(ValueError, match=r"invalid reported c3 .*, recomputed 2; they differ by"):
        score(answer(np.ones(400), 2.0 + deviation))


def test_the_squared_integral_is_refused_only_below_its_least_value():
    assert score(answer(np.full(400, 6.4e-5), 2.0)).objective == pytest.approx(2.0, rel=1e-12)
    with pytest.raises(ValueError, match=r"the integral of f is 3.15e-05, its square below 1e-09"):
        score(answer(np.full(400, 6.3e-5), 2.0))


def test_an_integral_just_off_zero_is_accepted_between_large_values():
    # sum 2e-4, dx 0.25, squared integral 2.5e-9; the peak is 2 * 0.9998: c3 = 4 * 1.9996 / 4e-8
    values = [1.0, -1.0 + 2e-4]
    c3 = autocorrelation_constant(np.array(values))
    assert c3 == pytest.approx(1.9996e8, rel=1e-9)
    assert score(answer(values, c3)).is_valid
    with pytest.raises(ValueError, match=r"the integral of f is 2.5e-05"):
        score(answer([1.0, -1.0 + 1e-4], 8e8))


@pytest.mark.parametrize(
    "values",
    [
        [0.0, 0.0],
        [1.0, -1.0],
        [1e-200, 1e-200],
        [5e-324],
        [1e308, -1e308, 1.0],
        [1e20, 1e-9, -1e20],
    ],
)
def test_an_integral_that_vanishes_is_refused(values):
    with pytest.raises(ValueError, match=r"the integral of f is .* further from 0"):
        score(answer(values, 2.0))


def test_functions_of_many_points_are_as_exact():
    values = np.random.RandomState(0).standard_normal(MAX_DIRECT + 1) + 1
    peak = np.max(np.abs(np.convolve(values, values)))
    assert autoconvolution_peak(values) == pytest.approx(peak, rel=1e-12)
    assert score(answer(np.ones(1_000_000), 2.0)).objective == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (None, r"run must return \(f_values, c3, loss, n_points\)"),
        ([[1.0], 2.0], r"run must return \(f_values, c3, loss, n_points\)"),
        (answer([1.0, math.nan], 0.001), r"f_values\[1\] is nan; expected finite numbers"),
        (answer([-math.inf, 1.0], 2.0), r"f_values\[0\] is -inf; expected finite numbers"),
        ([1.0, 2.0, 2.0, 1], r"f_values holds no values; expected an array of shape \(n_points,\)"),
        ([[], 2.0, 2.0, 0], "f_values holds no values"),
        ([np.ones((3, 1)), 2.0, 2.0, 3], r"f_values has shape \(3, 1\); expected \(3,\)"),
        ([np.ones((2, 3)), 2.0, 2.0, 6], r"f_values has shape \(2, 3\); expected \(2,\)"),
        ([["1", "2"], 2.0, 2.0, 2], "f_values holds text"),
        (answer([1.0, 1.0], 2.0, n_points=3), "n_points is 3; f_values has 2 values"),
        (answer([1.0, 1.0], 2.0, n_points="two"), "n_points is a str; expected a finite number"),
        (answer([1.0, 1.0], math.nan), "c3 is nan; expected a finite number"),
        (answer([1.0, 1.0], None), "c3 is a NoneType; expected a finite number"),
        (answer([1.0, 1.0], True), "c3 is a bool; expected a finite number"),
        (answer([1.0, 1.0], [2.0]), "c3 is a list; expected a finite number"),
    ],
)
def test_an_answer_of_another_form_is_refused(output, expected):
    with pytest.raises(ValueError, match=expected):
        score(output)
