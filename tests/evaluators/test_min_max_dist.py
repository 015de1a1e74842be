"""What both benchmarks of evenly spread points share: the ratio and its invariances."""

import math
from itertools import combinations

import numpy as np
import pytest
from best_configurations import best_configuration
from hypothesis import given
from hypothesis import strategies as st

from costada.evaluators.benchmarks.min_max_dist_2d.evaluator import score_points, squared_ratio

GRID = np.array([[x, y] for x in range(4) for y in range(4)], dtype=np.float64)
"""Neighbours are 1 apart, opposite corners 3 sqrt(2): (dmax/dmin)^2 = 18."""


def test_a_square_grid_has_the_ratio_computed_by_hand():
    evaluation = score_points(GRID, (16, 2), 9.0)
    assert evaluation.objective == pytest.approx(18.0, rel=1e-14)
    assert evaluation.score == pytest.approx(0.5, rel=1e-14)
    assert evaluation.metrics == {"min_max_ratio": pytest.approx(1 / 18, rel=1e-14)}


@given(st.integers(0, 2**32), st.sampled_from([(16, 2), (14, 3)]))
def test_the_ratio_agrees_with_distances_taken_one_by_one(seed, shape):
    points = np.random.default_rng(seed).standard_normal(shape)
    distances = [math.dist(a, b) for a, b in combinations(points.tolist(), 2)]
    expected = (min(distances) / max(distances)) ** 2
    assert squared_ratio(points) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "points",
    [
        GRID * 5e-324,
        GRID * 1e-310,
        GRID * 1e-200,
        (GRID - 1.5) * 1e300,
        (GRID - 1.5) * 2.0**1023,
        GRID * 2.0**-20 + 2.0**30,
    ],
)
def test_subnormal_huge_and_distant_coordinates_get_their_honest_ratio(points):
    assert squared_ratio(points) == pytest.approx(1 / 18, rel=1e-12)


@given(st.integers(-1060, 1020), st.permutations(range(16)))
def test_scale_and_order_do_not_matter(exponent, order):
    assert squared_ratio(np.ldexp(GRID[order], exponent)) == squared_ratio(GRID)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(0, 2 * math.pi), st.booleans())
def test_place_turn_and_mirror_do_not_matter(across, up, angle, is_mirrored):
    points = best_configuration("min_max_dist_2d")
    expected = squared_ratio(points)
    if is_mirrored:
        points[:, 0] *= -1
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    moved = points @ turn.T + [across, up]
    assert squared_ratio(moved) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("value", [0.0, 1.0, -1e308, 5e-324])
def test_points_in_one_place_are_refused(value):
    with pytest.raises(ValueError, match="points 0 and 1 coincide, or nearly so: their distance"):
        squared_ratio(np.full((16, 2), value))


@pytest.mark.parametrize("gap", [0.0, 1e-200, 5e-324])
def test_a_pair_next_to_nothing_apart_is_refused_by_its_numbers(gap):
    points = np.vstack((GRID[1:], [[0.0, 0.0]]))
    points[3] = (gap, 0.0)
    with pytest.raises(ValueError, match=r"points 3 and 15 coincide.* of the largest; expected"):
        squared_ratio(points)


def test_a_pair_close_together_scores_little_and_stays_valid():
    points = np.vstack((GRID[1:], [[0.0, 0.0]]))
    points[3] = (1e-140, 0.0)
    evaluation = score_points(points, (16, 2), 9.0)
    assert evaluation.is_valid
    assert evaluation.objective == pytest.approx(18e280, rel=1e-12)
    assert evaluation.score == pytest.approx(0.5e-280, rel=1e-12)
