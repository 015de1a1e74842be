import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.evaluators.benchmarks.circle_packing_rect.evaluator import score

REFERENCE = 2.3658321334167627
GAP = 0.125 * (math.sqrt(2) - 1)
"""Radius of the circle between four circles of radius 1/8 in a square grid."""
GRID_SUM = 2.0 + 5 * GAP


def grid(extra=GAP):
    """Return 16 touching circles of radius 1/8 in the unit square, 5 more in gaps between them."""
    steps = np.arange(4) * 0.25 + 0.125
    large = [[x, y, 0.125] for x in steps for y in steps]
    gaps = [(0.25, 0.25), (0.25, 0.75), (0.5, 0.5), (0.75, 0.25), (0.75, 0.75)]
    return np.array(large + [[x, y, extra] for x, y in gaps])


def with_points(circles, place):
    """Return the circles given, filled up to 21 with circles of radius 0."""
    return np.array(circles + [[*place, 0.0]] * (21 - len(circles)))


def test_touching_circles_in_a_square_are_valid_and_need_no_flag():
    evaluation = score(grid())
    assert evaluation.objective == pytest.approx(GRID_SUM, rel=1e-12)
    assert evaluation.score == pytest.approx(GRID_SUM / REFERENCE, rel=1e-12)
    assert evaluation.metrics == {"radii_sum": evaluation.objective}
    assert evaluation.artifacts == {}


@pytest.mark.parametrize("corner", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_one_circle_and_points_in_a_corner_of_its_box_are_valid(corner):
    evaluation = score(with_points([[0.5, 0.5, 0.5]], corner))
    assert (evaluation.objective, evaluation.artifacts) == (0.5, {})


@pytest.mark.parametrize("corner", [(0, 0), (0, 1), (2, 0), (2, 1)])
def test_two_such_circles_side_by_side_are_too_large(corner):
    with pytest.raises(ValueError, match=r"has width 2 [+] height 1, more than 2 by 1$"):
        score(with_points([[0.5, 0.5, 0.5], [1.5, 0.5, 0.5]], corner))


def test_circles_of_radius_zero_count_in_the_bounding_box():
    inside = with_points([[0.5, 0.5, 0.5]], (0.5, 0.0))
    assert score(inside).objective == 0.5
    inside[20, 0] = 1.25
    with pytest.raises(ValueError, match=r"width 1\.25 [+] height 1, more than 2 by 0\.25"):
        score(inside)


def test_an_overlap_is_credited_up_to_the_tolerance_with_a_flag():
    evaluation = score(grid(GAP + 9e-7))
    assert evaluation.objective == pytest.approx(GRID_SUM + 5 * 9e-7, rel=1e-12)
    assert evaluation.artifacts == {
        "tolerance": "the packing is valid only within tolerance: it needs 9e-07"
    }
    with pytest.raises(ValueError, match=r"circles \d+ and \d+ overlap by 1\.1\d*e-06 \(distance"):
        score(grid(GAP + 1.1e-6))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_bounding_box_is_credited_up_to_the_tolerance_with_a_flag(axis):
    circles = grid(0.0)
    last = circles[:, axis] > 0.8
    circles[last, axis] += 9e-7
    assert "it needs 9e-07" in score(circles).artifacts["tolerance"]
    circles[last, axis] += 2e-7
    with pytest.raises(ValueError, match=r"invalid packing .* more than 2 by 1\.1\d*e-06"):
        score(circles)


def test_a_negative_radius_is_refused():
    circles = grid()
    circles[7, 2] = -1e-12
    with pytest.raises(ValueError, match="radii must not be negative: radius 7 is -1e-12"):
        score(circles)


def test_no_width_is_lost_where_the_numbers_are_coarse():
    """From 2^52 on, doubles are 1 apart: x + r and x - r would fall on the same number."""
    far = 2.0**52
    row = [[far + 1, far + 2, 0.5], [far + 2, far + 2, 0.5]]
    with pytest.raises(ValueError, match=r"width 2\.5 [+] height 1, more than 2 by 1\.5"):
        score(with_points(row, (far, far + 2)))


@pytest.mark.parametrize("radius", [1e9, 1e308])
@pytest.mark.parametrize("place", [0.0, 1e300, -1e308])
def test_a_huge_circle_is_refused_wherever_it_is(radius, place):
    with pytest.raises(ValueError, match="the bounding box of all circles has width"):
        score(with_points([[place, place, radius]], (place, place)))


def test_a_box_that_is_wider_than_the_largest_number_is_refused():
    with pytest.raises(ValueError, match=r"has width inf [+] height"):
        score(with_points([[1e308, 0, 1e308], [-1e308, 0, 1e308]], (0, 0)))


shifts = st.integers(-(2**30), 2**30).map(lambda n: n / 64)


@settings(max_examples=30)
@given(shifts, shifts)
def test_the_place_of_the_rectangle_does_not_matter(across, up):
    circles = grid(0.05)
    moved = circles + np.array([across, up, 0.0])
    assert score(moved) == score(circles)


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("is_mirrored", [False, True])
@pytest.mark.parametrize("extra", [GAP, GAP + 2e-6])
def test_turning_and_mirroring_the_rectangle_changes_no_verdict(turns, is_mirrored, extra):
    circles = grid(extra)
    if is_mirrored:
        circles[:, 0] *= -1
    for _ in range(turns):
        circles[:, :2] = np.column_stack((-circles[:, 1], circles[:, 0]))
    if extra == GAP:
        assert score(circles) == score(grid())
    else:
        with pytest.raises(ValueError, match="overlap by 2"):
            score(circles)
