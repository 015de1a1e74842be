import pytest
from hypothesis import given
from hypothesis import strategies as st

from costada.experiments.comparison.metrics import mean_interval

SCORES = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8)


def test_two_values_give_the_interval_between_them():
    """A quarter of all resamples holds only one of them, far more than a tail."""
    interval = mean_interval([[0.2, 0.6]])
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((0.2, 0.6))


def test_many_values_give_the_interval_of_the_normal_distribution():
    values = [float(number % 2) for number in range(400)]
    interval = mean_interval([values])
    assert interval is not None
    assert interval.low == pytest.approx(0.5 - 1.96 * 0.5 / 20, abs=0.005)
    assert interval.high == pytest.approx(0.5 + 1.96 * 0.5 / 20, abs=0.005)


def test_problems_are_resampled_each_by_itself():
    """Means far apart do not widen the interval: no resample mixes problems."""
    interval = mean_interval([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    assert interval is not None
    assert (interval.low, interval.high) == (0.5, 0.5)


def test_problems_weigh_alike_however_many_runs_they_have():
    interval = mean_interval([[0.0, 0.0], [1.0] * 8])
    assert interval is not None
    assert interval.low == interval.high == 0.5


def test_the_draws_of_two_problems_are_independent():
    values = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    one, two = mean_interval([values]), mean_interval([values, values])
    assert one is not None
    assert two is not None
    assert two.high - two.low < one.high - one.low


@pytest.mark.parametrize("strata", [[], [[]], [[0.5]], [[0.1, 0.2], [0.5]]])
def test_fewer_than_two_values_have_no_interval(strata):
    assert mean_interval(strata) is None


@given(SCORES)
def test_the_same_values_have_the_same_interval_around_their_mean(values):
    interval = mean_interval([values])
    assert interval is not None
    assert interval == mean_interval([values])
    mean = sum(values) / len(values)
    assert min(values) - 1e-6 <= interval.low <= mean + 1e-6
    assert mean - 1e-6 <= interval.high <= max(values) + 1e-6
