import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

from costada.evaluators.benchmarks.signal_processing.evaluator import (
    DELAY,
    Measures,
    Signal,
    composite,
    make_signals,
    measure,
    slope_changes,
)

SEED_MEASURES = [
    (0.552480, 34, 0.501689, 0.488413, 34, 0.931211, 0.0),
    (0.418928, 145, 0.529342, 0.405895, 135, 0.856314, 0.0),
    (0.422120, 138, 0.259944, 0.585020, 133, 0.553713, 0.0),
    (0.431700, 375, 0.210795, 0.371328, 375, 0.952100, 0.846206),
    (0.433822, 425, 0.043614, 0.481837, 200, 0.917070, 0.827516),
]
"""Composite, S, L_recent, L_avg, R, correlation and noise reduction of the seed, per signal."""


def after_the_delay(clean, noisy):
    """Return a signal of which a filter gives only the values shown here."""
    start = np.zeros(DELAY)
    return Signal(np.append(start, clean), np.append(start, noisy))


def weighted_average(noisy):
    """Return the seed's filter, written out window by window."""
    weights = np.exp(np.linspace(-2, 0, 20))
    weights /= weights.sum()
    return np.array([weights @ noisy[k : k + 20] for k in range(len(noisy) - 19)])


def test_the_signals_are_the_published_ones():
    signals = make_signals()
    assert [len(s.clean) for s in signals] == [500, 600, 700, 800, 900]
    assert [s.noisy.sum() for s in signals] == pytest.approx(
        [250.683799, 6.382931, 24.161156, 920.605337, 262.861032], abs=1e-6
    )
    assert [s.clean.sum() for s in signals] == pytest.approx(
        [250, 0, 17.741138, 932, 244.981100], abs=1e-6
    )


def test_the_signals_do_not_touch_the_global_generator():
    state = np.random.get_state()[1].copy()
    make_signals()
    assert np.array_equal(np.random.get_state()[1], state)


@pytest.mark.parametrize("i", range(5))
def test_the_seed_filter_has_the_published_measures(i):
    signal = make_signals()[i]
    found = measure(weighted_average(signal.noisy), signal)
    assert found == Measures(*(pytest.approx(value, abs=1e-6) for value in SEED_MEASURES[i]))


def test_the_clean_signals_have_the_published_composites():
    found = [measure(s.clean[DELAY:], s) for s in make_signals()]
    assert [m.composite_score for m in found] == pytest.approx(
        [0.8722, 0.7123, 0.6732, 0.8719, 0.5880], abs=5e-5
    )
    assert [m.false_reversals for m in found] == [0] * 5
    assert [m.correlation for m in found] == pytest.approx([1] * 5)
    assert [m.noise_reduction for m in found] == [1] * 5


def test_a_centred_gaussian_has_the_published_composite():
    found = [measure(gaussian_filter1d(s.noisy, 8)[DELAY:], s) for s in make_signals()]
    assert np.mean([m.composite_score for m in found]) == pytest.approx(0.6784, abs=5e-5)


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ([0, 1, 0, 1], [True, True]),  # slopes 1 -1 1
        ([0, 1, 1, 2], [True, False]),  # slopes 1 0 1: into the flat is a change, out is none
        ([0, 0, 1, 0], [False, True]),  # slopes 0 1 -1
        ([3, 2, 1, 0], [False, False]),
        ([0, 1], []),
        ([0], []),
    ],
)
def test_slope_changes_are_counted_as_by_hand(values, changes):
    assert slope_changes(np.array(values, dtype=float)).tolist() == changes


@pytest.mark.parametrize(
    ("clean", "reversals"),
    [
        ([0, 1, 0, -1], 1),  # turns at the first place only
        ([0, 1, 0, 1], 0),
        ([0, 0, 0, 0], 2),
        ([0, 1, 2, 1], 1),  # turns at the second place only
    ],
)
def test_a_reversal_is_false_where_the_clean_signal_goes_on(clean, reversals):
    filtered = np.array([0.0, 1.0, 0.0, 1.0])
    assert measure(filtered, after_the_delay(clean, clean + filtered)).false_reversals == reversals


def test_a_tiny_signal_is_measured_as_by_hand():
    signal = after_the_delay([0, 1, 0, -1], [0, 2, 0, 3])
    found = measure(np.array([0.0, 1.0, 0.0, 1.0]), signal)
    assert found == Measures(
        composite_score=pytest.approx(1 / (1 + 0.3 * 2 / 50 + 0.2 * 2 + 0.2 * 0.75 + 0.3 / 25)),
        slope_changes=2,
        lag_error=2.0,  # |1 - 3|
        avg_error=0.75,  # (0 + 1 + 0 + 2) / 4
        false_reversals=1,
        correlation=pytest.approx(0.0, abs=1e-15),
        # variances of (0, 0, 0, 2) and (0, 1, 0, 4)
        noise_reduction=pytest.approx(1 - 0.75 / 2.6875),
    )


def test_each_penalty_ends_at_twice_its_scale():
    assert composite(0, 0, 0, 0) == 1
    assert composite(100, 0, 0, 0) == composite(1e9, 0, 0, 0) == pytest.approx(1 / 1.6)
    assert composite(0, 2, 0, 0) == composite(0, 1e300, 0, 0) == pytest.approx(1 / 1.4)
    assert composite(0, 0, 2, 0) == composite(0, 0, np.inf, 0) == pytest.approx(1 / 1.4)
    assert composite(0, 0, 0, 50) == composite(0, 0, 0, 51) == pytest.approx(1 / 1.6)
    assert composite(25, 0.5, 0, 0) == pytest.approx(1 / 1.25)


def test_more_noise_than_before_is_no_reduction():
    signal = after_the_delay([0, 0, 0, 0], [1, -1, 1, -1])
    assert measure(np.array([2.0, -2.0, 2.0, -2.0]), signal).noise_reduction == 0


def test_a_constant_output_correlates_with_nothing():
    signal = make_signals()[0]
    found = measure(np.full(481, 7.0), signal)
    assert (found.correlation, found.slope_changes) == (0, 0)


@pytest.mark.parametrize("size", [1e200, 1.7e308])
def test_huge_values_are_worst_measures_without_a_warning(size):
    signal = make_signals()[0]
    found = measure(np.where(np.arange(481) % 2, size, -size), signal)
    assert found.composite_score == pytest.approx(1 / (1 + 0.6 + 0.4 + 0.4 + 0.6))
    assert (found.correlation, found.noise_reduction) == (0, 0)
