import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costada.evaluators.contract import normalize
from costada.values.evaluation import Direction

positive = st.floats(min_value=1e-6, max_value=1e6)


def test_a_maximised_objective_is_its_share_of_the_reference():
    assert normalize(1.0, 2.0, Direction.MAXIMIZE) == 0.5


def test_a_minimised_objective_is_turned_over():
    assert normalize(4.0, 2.0, Direction.MINIMIZE) == 0.5


def test_without_a_reference_the_objective_is_the_score():
    assert normalize(3.5, None, Direction.MAXIMIZE) == 3.5


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("objective", [math.nan, math.inf, -math.inf])
def test_an_objective_that_is_not_finite_scores_zero(objective, direction):
    assert normalize(objective, 2.0, direction) == 0.0


@pytest.mark.parametrize("objective", [0.0, -1.0, 5e-324])
def test_a_minimised_objective_without_a_finite_share_scores_zero(objective):
    assert normalize(objective, 2.0, Direction.MINIMIZE) == 0.0


def test_minimising_without_a_reference_is_refused():
    with pytest.raises(ValueError, match="reference is None"):
        normalize(1.0, None, Direction.MINIMIZE)


@given(positive, positive, positive)
def test_a_better_objective_never_scores_less(first, second, reference):
    low, high = sorted((first, second))
    assert normalize(low, reference, Direction.MAXIMIZE) <= normalize(
        high, reference, Direction.MAXIMIZE
    )
    assert normalize(low, reference, Direction.MINIMIZE) >= normalize(
        high, reference, Direction.MINIMIZE
    )


@given(positive)
def test_the_reference_scores_one(reference):
    assert normalize(reference, reference, Direction.MAXIMIZE) == 1.0
    assert normalize(reference, reference, Direction.MINIMIZE) == 1.0
