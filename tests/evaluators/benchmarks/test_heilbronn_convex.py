import math
from itertools import combinations

import numpy as np
import pytest
from best_configurations import best_configuration
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from costada.evaluators.benchmarks.heilbronn_convex.evaluator import score

REFERENCE = 0.030936889034895654


def parabola():
    """Return the points (i, i^2) for i = 0 .. 12.

    Three of them span (j-i)(k-j)(k-i)/2, at least 1. Under the chord lie 12 * 144 / 2 = 864,
    under the polygon's lower side 650 - 144 / 2 = 578, so that the hull's area is 286.
    """
    steps = np.arange(13.0)
    return np.column_stack((steps, steps**2))


def test_points_on_a_parabola_have_the_share_computed_by_hand():
    evaluation = score(parabola())
    assert evaluation.objective == 1 / 286
    assert evaluation.score == pytest.approx(1 / 286 / REFERENCE, rel=1e-15)
    assert evaluation.metrics == {"min_area_normalized": 1 / 286}


def test_points_within_the_hull_count_in_triangles_but_not_in_its_area():
    ten = parabola()[:10]
    points = np.vstack((ten, [[4.5, 40.0], [4.0, 30.0], [5.5, 44.0]]))
    assert ConvexHull(points).volume == pytest.approx(9 * 81 / 2 - (285 - 81 / 2), rel=1e-12)
    assert score(points).objective == pytest.approx(by_determinants(points), rel=1e-12)


def by_determinants(points):
    areas = [
        abs(np.linalg.det(np.column_stack((points[list(three)], np.ones(3))))) / 2
        for three in combinations(range(13), 3)
    ]
    return min(areas) / ConvexHull(points).volume


@given(st.integers(0, 2**32))
def test_the_objective_agrees_with_determinants_and_qhull(seed):
    points = np.random.default_rng(seed).standard_normal((13, 2))
    assert score(points).objective == pytest.approx(by_determinants(points), abs=1e-13)


def test_three_points_on_a_line_are_valid_and_score_zero():
    points = parabola()
    points[4] = (points[3] + points[5]) / 2
    evaluation = score(points)
    assert (evaluation.score, evaluation.objective, evaluation.is_valid) == (0.0, 0.0, True)


STEPS = np.arange(13) * 0.1


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((13, 2)),
        np.full((13, 2), 1e308),
        np.column_stack((STEPS, np.zeros(13))),
        np.column_stack((STEPS, 3 * STEPS)),
        np.column_stack((STEPS + 1e6, STEPS / 7)),
        np.column_stack((STEPS, STEPS)) * 1e-300,
        np.column_stack((STEPS - 0.6, 0.3 - STEPS)) * 1e308,
    ],
)
def test_points_on_a_line_are_refused_even_if_rounding_bends_it(points):
    with pytest.raises(
        ValueError, match="the points lie on a line, up to rounding; expected a hull"
    ):
        score(points)


def test_thin_points_off_a_line_keep_their_share():
    assert score(parabola() * [1.0, 2.0**-30]) == score(parabola())


@given(st.integers(-900, 900), st.integers(-(2**30), 2**30), st.integers(-(2**30), 2**30))
def test_scale_and_place_do_not_matter(exponent, across, up):
    moved = np.ldexp(parabola() + np.array([across, up]), exponent)
    assert score(moved) == score(parabola())


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e306])
def test_tiny_and_huge_coordinates_get_their_honest_score(scale):
    points = best_configuration("heilbronn_convex")
    expected = score(points).objective
    assert score(points * scale).objective == pytest.approx(expected, rel=1e-12)


@given(st.floats(0, 2 * math.pi), st.booleans())
def test_turns_and_mirrors_do_not_matter(angle, is_mirrored):
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    points = parabola() @ turn.T
    if is_mirrored:
        points[:, 0] *= -1
    assert score(points).objective == pytest.approx(1 / 286, rel=1e-9)
