import math
from itertools import combinations

import numpy as np
import pytest
from best_configurations import best_configuration
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.evaluators.benchmarks.heilbronn_triangle.evaluator import score

REFERENCE = 0.036529889880030156
ROOT = math.sqrt(3)
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, ROOT / 2]])
CENTER = CORNERS.mean(axis=0)


def parabola():
    """Return 11 points on a parabola.

    Of the points (i, i^2), any three span (j-i)(k-j)(k-i)/2, at least 1; scaling makes it 2e-4.
    """
    steps = np.arange(11)
    return np.column_stack((0.3 + 0.04 * steps, 0.005 * steps**2))


def with_point(x, y):
    points = parabola()
    points[10] = (x, y)
    return points


def test_points_on_a_parabola_have_the_area_computed_by_hand():
    evaluation = score(parabola())
    assert evaluation.objective == pytest.approx(2e-4 / (ROOT / 4), rel=1e-9)
    assert evaluation.score == pytest.approx(2e-4 / (ROOT / 4) / REFERENCE, rel=1e-9)
    assert evaluation.metrics == {"min_area_normalized": evaluation.objective}
    assert evaluation.artifacts == {}


def test_three_points_on_a_line_are_valid_and_score_zero():
    evaluation = score(with_point(0.5, parabola()[5, 1]))
    assert (evaluation.score, evaluation.is_valid) == (0.0, True)


def test_the_corners_belong_to_the_triangle():
    points = parabola()
    points[:3] = CORNERS
    assert score(points).artifacts == {}


def test_a_point_below_the_base_is_credited_up_to_the_tolerance():
    with pytest.raises(ValueError, match=r"point 10 \(0\.5, -2e-06\) misses y >= 0 by 2e-06$"):
        score(with_point(0.5, -2e-6))
    assert score(with_point(0.5, -5e-7)).artifacts == {
        "tolerance": "the placement is valid only within tolerance: it needs 5e-07"
    }


@pytest.mark.parametrize(
    ("x", "y", "step", "side"),
    [
        (0.5, 0.0, (0, -1), "y >= 0"),
        (0.25, ROOT / 4, (0, 1), "y <= sqrt(3) x"),
        (0.75, ROOT / 4, (0, 1), "sqrt(3) x + y <= sqrt(3)"),
    ],
)
def test_every_side_has_the_same_tolerance(x, y, step, side):
    just, over = (np.array([x, y]) + amount * np.array(step) for amount in (9e-7, 1.1e-6))
    assert "it needs 9e-07" in score(with_point(*just)).artifacts["tolerance"]
    with pytest.raises(ValueError) as caught:
        score(with_point(*over))
    assert f"misses {side} by 1.1" in str(caught.value)


@pytest.mark.parametrize("x", [-1e308, 1e308])
@pytest.mark.parametrize("y", [-1.7e308, 1.7e308])
def test_points_at_the_end_of_the_numbers_are_refused(x, y):
    with pytest.raises(ValueError, match=r"invalid placement .* misses"):
        score(with_point(x, y))


weights = st.lists(
    st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=11, max_size=11
).map(lambda rows: np.array(rows) / np.sum(rows, axis=1, keepdims=True))


@settings(max_examples=30)
@given(weights)
def test_the_objective_is_the_least_of_all_determinants(weights):
    points = weights @ CORNERS
    areas = [
        abs(np.linalg.det(np.column_stack((points[list(three)], np.ones(3))))) / 2
        for three in combinations(range(11), 3)
    ]
    assert score(points).objective == pytest.approx(min(areas) / (ROOT / 4), abs=1e-14)


@pytest.mark.parametrize("turns", range(3))
@pytest.mark.parametrize("is_mirrored", [False, True])
def test_the_symmetries_of_the_triangle_change_nothing(turns, is_mirrored):
    points = best_configuration("heilbronn_triangle")
    expected = score(points).objective
    points = CENTER + (points - CENTER) * (1 - 1e-9)
    if is_mirrored:
        points[:, 0] = 1 - points[:, 0]
    turn = np.array([[-0.5, -ROOT / 2], [ROOT / 2, -0.5]])
    for _ in range(turns):
        points = CENTER + (points - CENTER) @ turn.T
    evaluation = score(points)
    assert evaluation.objective == pytest.approx(expected, rel=1e-8)
    assert evaluation.artifacts == {}
