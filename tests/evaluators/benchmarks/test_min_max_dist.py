import math
from itertools import combinations, product

import numpy as np
import pytest
from best_configurations import best_configuration
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from costada.evaluators.benchmarks.min_max_dist_2d import evaluator as plane
from costada.evaluators.benchmarks.min_max_dist_3d import evaluator as space
from costada.evaluators.registry import problem

GRID = np.array([[x, y] for x in range(4) for y in range(4)], dtype=np.float64)
"""Neighbours are 1 apart, opposite corners 3 sqrt(2): (dmax/dmin)^2 = 18."""

CUBE = np.array([*product((0, 2), repeat=3), *((1, 1, k) for k in (0, 2))], dtype=np.float64)
CUBE = np.vstack([CUBE, np.roll(CUBE[8:], 1, axis=1), np.roll(CUBE[8:], 2, axis=1)])
"""Corners and face centers: neighbours sqrt(2) apart, opposite corners 2 sqrt(3)."""

HEXAGONAL = np.array(
    [
        [k - (count - 1) / 2, row * math.sqrt(3) / 2]
        for row, count in enumerate((3, 4, 5, 4))
        for k in range(count)
    ]
)
"""Rows of 3, 4, 5 and 4 points at distance 1: the ends of the longest row are 4 apart."""

CLOSE = np.vstack((GRID[1:], [[0.0, 0.0]]))
every = pytest.mark.parametrize("evaluator", [plane, space])


@pytest.mark.parametrize(
    ("evaluator", "points", "objective"),
    [(plane, GRID, 18.0), (plane, HEXAGONAL, 16.0), (space, CUBE, 6.0)],
    ids=["square grid", "hexagonal patch", "face-centered cube"],
)
def test_regular_points_have_the_ratio_computed_by_hand(evaluator, points, objective):
    evaluation = evaluator.score(points)
    assert evaluation.objective == pytest.approx(objective, rel=1e-12)
    assert evaluation.score == pytest.approx(evaluator.REFERENCE / objective, rel=1e-12)
    assert evaluation.metrics == {"min_max_ratio": pytest.approx(1 / objective, rel=1e-12)}


@pytest.mark.parametrize(("name", "digits"), [("min_max_dist_2d", 4), ("min_max_dist_3d", 5)])
def test_the_task_says_that_the_score_squares_the_ratio(name, digits):
    described = problem(name)
    assert f"(dmin/dmax)^2 times {described.reference}" in described.task
    assert f"about {1 / math.sqrt(described.reference):.{digits}f}" in described.task


@every
@given(seed=st.integers(0, 2**32))
def test_the_ratio_agrees_with_distances_taken_one_by_one(evaluator, seed):
    points = np.random.default_rng(seed).standard_normal(evaluator.SHAPE)
    distances = [math.dist(a, b) for a, b in combinations(points.tolist(), 2)]
    expected = (min(distances) / max(distances)) ** 2
    assert evaluator.squared_ratio(points) == pytest.approx(expected, rel=1e-12)


@every
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
def test_subnormal_huge_and_distant_coordinates_get_their_honest_ratio(evaluator, points):
    assert evaluator.squared_ratio(points) == pytest.approx(1 / 18, rel=1e-12)


@every
@given(exponent=st.integers(-1060, 1020), order=st.permutations(range(16)))
def test_scale_and_order_do_not_matter(evaluator, exponent, order):
    moved = np.ldexp(GRID[order], exponent)
    assert evaluator.squared_ratio(moved) == evaluator.squared_ratio(GRID)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(0, 2 * math.pi), st.booleans())
def test_place_turn_and_mirror_do_not_matter(across, up, angle, is_mirrored):
    points = best_configuration("min_max_dist_2d")
    expected = plane.squared_ratio(points)
    if is_mirrored:
        points[:, 0] *= -1
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    moved = points @ turn.T + [across, up]
    assert plane.squared_ratio(moved) == pytest.approx(expected, rel=1e-11)


@given(st.integers(0, 2**32))
def test_turning_the_points_in_space_does_not_matter(seed):
    turned = Rotation.from_rotvec(np.random.default_rng(seed).normal(size=3)).apply(CUBE)
    assert space.score(turned).objective == pytest.approx(6.0, rel=1e-12)


@every
@pytest.mark.parametrize("value", [0.0, 1.0, -1e308, 5e-324])
def test_points_in_one_place_are_refused(evaluator, value):
    with pytest.raises(ValueError, match="points 0 and 1 coincide, or nearly so: their distance"):
        evaluator.score(np.full(evaluator.SHAPE, value))


@every
@pytest.mark.parametrize("gap", [0.0, 1e-200, 5e-324])
def test_a_pair_next_to_nothing_apart_is_refused_by_its_numbers(evaluator, gap):
    points = CLOSE.copy()
    points[3] = (gap, 0.0)
    with pytest.raises(ValueError, match=r"points 3 and 15 coincide.* of the largest; expected"):
        evaluator.squared_ratio(points)


def test_a_pair_close_together_scores_little_and_stays_valid():
    points = CLOSE.copy()
    points[3] = (1e-140, 0.0)
    evaluation = plane.score(points)
    assert evaluation.is_valid
    assert evaluation.objective == pytest.approx(18e280, rel=1e-12)
    assert evaluation.score == pytest.approx(plane.REFERENCE / 18e280, rel=1e-12)
