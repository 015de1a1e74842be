import math
from itertools import combinations

import numpy as np
import pytest
from best_configurations import best_configuration
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

from costada.evaluators.benchmarks.heilbronn_convex.evaluator import score as score_convex
from costada.evaluators.benchmarks.heilbronn_triangle.evaluator import score as score_triangle

ROOT = math.sqrt(3)
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, ROOT / 2]])
CENTER = CORNERS.mean(axis=0)
STEPS = np.arange(13) * 0.1


def parabola():
    """The points (i, i^2) for i = 0 .. 12.

    Three of them span (j-i)(k-j)(k-i)/2, at least 1. Under the chord lie 12 * 144 / 2 = 864,
    under the polygon's lower side 650 - 144 / 2 = 578, so that the hull's area is 286.
    """
    steps = np.arange(13.0)
    return np.column_stack((steps, steps**2))


def scaled_parabola(last=(0.7, 0.5)):
    """11 points of it within the triangle, least area 2e-4, the last one replaced."""
    return np.vstack((parabola()[:10] * [0.04, 0.005] + [0.3, 0.0], [last]))


def least_area(points):
    """The least of all determinants."""
    threes = (points[list(three)] for three in combinations(range(len(points)), 3))
    return min(abs(np.linalg.det(np.column_stack((three, np.ones(3))))) / 2 for three in threes)


def test_points_on_a_parabola_have_the_share_computed_by_hand():
    evaluation = score_convex(parabola())
    assert evaluation.objective == 1 / 286
    assert evaluation.score == pytest.approx(1 / 286 / 0.030936889034895654, rel=1e-15)
    assert evaluation.metrics == {"min_area_normalized": 1 / 286}
    evaluation = score_triangle(scaled_parabola())
    assert evaluation.objective == pytest.approx(2e-4 / (ROOT / 4), rel=1e-9)
    assert evaluation.score == pytest.approx(2e-4 / (ROOT / 4) / 0.036529889880030156, rel=1e-9)
    assert evaluation.metrics == {"min_area_normalized": evaluation.objective}
    assert evaluation.artifacts == {}


@pytest.mark.parametrize(
    ("score", "points"),
    [
        (score_convex, np.vstack((parabola()[:12], (parabola()[3:4] + parabola()[5:6]) / 2))),
        (score_triangle, scaled_parabola(last=(0.5, scaled_parabola()[5, 1]))),
    ],
)
def test_three_points_on_a_line_are_valid_and_score_zero(score, points):
    evaluation = score(points)
    assert (evaluation.score, evaluation.objective, evaluation.is_valid) == (0.0, 0.0, True)


def test_points_within_the_hull_count_in_triangles_but_not_in_its_area():
    points = np.vstack((parabola()[:10], [[4.5, 40.0], [4.0, 30.0], [5.5, 44.0]]))
    area = 9 * 81 / 2 - (285 - 81 / 2)
    assert ConvexHull(points).volume == pytest.approx(area, rel=1e-12)
    assert score_convex(points).objective == pytest.approx(least_area(points) / area, rel=1e-12)


@given(st.integers(0, 2**32))
def test_the_objective_agrees_with_determinants_and_qhull(seed):
    random = np.random.default_rng(seed)
    points = random.standard_normal((13, 2))
    share = least_area(points) / ConvexHull(points).volume
    assert score_convex(points).objective == pytest.approx(share, abs=1e-13)
    inside = random.dirichlet(np.ones(3), 11) @ CORNERS
    share = least_area(inside) / (ROOT / 4)
    assert score_triangle(inside).objective == pytest.approx(share, abs=1e-14)


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
def test_points_on_a_line_have_no_hull_even_if_rounding_bends_it(points):
    with pytest.raises(ValueError, match="the points lie on a line, up to rounding; expected a hu"):
        score_convex(points)


def test_thin_points_off_a_line_keep_their_share():
    assert score_convex(parabola() * [1.0, 2.0**-30]) == score_convex(parabola())


@given(st.integers(-900, 900), st.integers(-(2**30), 2**30), st.integers(-(2**30), 2**30))
def test_scale_and_place_do_not_matter_to_a_hull(exponent, across, up):
    moved = np.ldexp(parabola() + np.array([across, up]), exponent)
    assert score_convex(moved) == score_convex(parabola())


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e306])
def test_tiny_and_huge_coordinates_get_their_honest_score(scale):
    points = best_configuration("heilbronn_convex")
    expected = score_convex(points).objective
    assert score_convex(points * scale).objective == pytest.approx(expected, rel=1e-12)


@given(st.floats(0, 2 * math.pi), st.booleans())
def test_turns_and_mirrors_do_not_matter_to_a_hull(angle, is_mirrored):
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    points = parabola() @ turn.T
    if is_mirrored:
        points[:, 0] *= -1
    assert score_convex(points).objective == pytest.approx(1 / 286, rel=1e-9)


def test_the_corners_belong_to_the_triangle():
    points = scaled_parabola()
    points[:3] = CORNERS
    assert score_triangle(points).artifacts == {}


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
    told = "the placement is valid only within tolerance: it needs 9e-07"
    assert score_triangle(scaled_parabola(just)).artifacts == {"tolerance": told}
    with pytest.raises(ValueError, match=r"^invalid placement .*point 10 \(") as caught:
        score_triangle(scaled_parabola(over))
    assert f"misses {side} by 1.1" in str(caught.value)


@pytest.mark.parametrize("x", [-1e308, 1e308])
@pytest.mark.parametrize("y", [-1.7e308, 1.7e308])
def test_points_at_the_end_of_the_numbers_are_outside_of_the_triangle(x, y):
    with pytest.raises(ValueError, match=r"invalid placement .* misses"):
        score_triangle(scaled_parabola((x, y)))


@pytest.mark.parametrize("turns", range(3))
@pytest.mark.parametrize("is_mirrored", [False, True])
def test_the_symmetries_of_the_triangle_change_nothing(turns, is_mirrored):
    points = best_configuration("heilbronn_triangle")
    expected = score_triangle(points).objective
    points = CENTER + (points - CENTER) * (1 - 1e-9)
    if is_mirrored:
        points[:, 0] = 1 - points[:, 0]
    turn = np.array([[-0.5, -ROOT / 2], [ROOT / 2, -0.5]])
    for _ in range(turns):
        points = CENTER + (points - CENTER) @ turn.T
    evaluation = score_triangle(points)
    assert evaluation.objective == pytest.approx(expected, rel=1e-8)
    assert evaluation.artifacts == {}
