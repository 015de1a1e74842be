import math

import numpy as np
import pytest
from best_configurations import best_configuration
from hypothesis import given
from hypothesis import strategies as st

from costada.evaluators.benchmarks.circle_packing.evaluator import score, score_packing

GAP = 0.1 * (math.sqrt(2) - 1)
"""Radius of the circle between four circles of radius 0.1 in a square grid."""
GRID_SUM = 25 * 0.1 + GAP


def grid(extra=GAP):
    """Return 25 touching circles of radius 0.1 in rows, and one in the gap at (0.2, 0.2)."""
    steps = np.arange(5) * 0.2 + 0.1
    centers = [[x, y] for x in steps for y in steps] + [[0.2, 0.2]]
    return np.array(centers), np.array([0.1] * 25 + [extra])


def answer(centers, radii):
    return [centers, radii, math.fsum(radii)]


def test_touching_circles_are_valid_and_need_no_flag():
    evaluation = score_packing(answer(*grid()))
    assert evaluation.objective == pytest.approx(GRID_SUM, rel=1e-12)
    assert evaluation.score == pytest.approx(GRID_SUM / 2.635, rel=1e-12)
    assert evaluation.artifacts == {}


def test_the_best_packing_found_reaches_the_reference():
    circles = best_configuration("circle_packing")
    evaluation = score_packing(answer(circles[:, :2], circles[:, 2]))
    assert evaluation.objective == pytest.approx(2.635983, abs=1e-6)
    assert evaluation.artifacts == {}


def test_lists_are_as_good_as_arrays():
    centers, radii = grid()
    evaluation = score_packing(answer(centers.tolist(), radii.tolist()))
    assert evaluation.objective == pytest.approx(GRID_SUM, rel=1e-12)


def test_twenty_six_points_are_a_valid_packing_of_sum_zero():
    assert score_packing(answer(np.full((26, 2), 0.5), np.zeros(26))).objective == 0.0


def test_an_overlap_just_under_the_tolerance_is_credited_with_a_flag():
    evaluation = score_packing(answer(*grid(GAP + 9e-7)))
    assert evaluation.objective == pytest.approx(GRID_SUM + 9e-7, rel=1e-12)
    assert evaluation.artifacts == {
        "tolerance": "the packing is valid only within tolerance: it needs 9e-07"
    }


def test_an_overlap_just_over_the_tolerance_is_refused_with_circles_and_amount():
    with pytest.raises(ValueError, match=r"circles \d+ and 25 overlap by 1\.1\d*e-06 \(distance"):
        score_packing(answer(*grid(GAP + 1.1e-6)))


@pytest.mark.parametrize(
    ("axis", "sign", "side"), [(0, -1, "left"), (0, 1, "right"), (1, -1, "lower"), (1, 1, "upper")]
)
def test_the_border_has_the_same_tolerance_on_every_side(axis, sign, side):
    centers, radii = grid(0.0)
    centers[:, axis] += sign * 9e-7
    evaluation = score_packing(answer(centers, radii))
    assert "it needs 9e-07" in evaluation.artifacts["tolerance"]
    centers[:, axis] += sign * 2e-7
    with pytest.raises(ValueError, match=rf"circle \d+ passes the {side} side by 1\.1\d*e-06"):
        score_packing(answer(centers, radii))


def test_only_the_worst_violations_are_listed():
    with pytest.raises(ValueError, match=r"^invalid packing .* and \d+ more$") as caught:
        score_packing(answer(np.full((26, 2), 0.5), np.full(26, 0.1)))
    assert str(caught.value).count("overlap by") == 5


def change(place, value):
    centers, radii = grid(0.0)
    (centers if isinstance(place, tuple) else radii)[place] = value
    return answer(centers, radii.tolist())


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (None, r"run_packing must return \(centers, radii, sum_radii\)"),
        ([1, 2], r"run_packing must return \(centers, radii, sum_radii\)"),
        (change((3, 1), math.nan), r"centers\[3, 1\] is nan; expected finite numbers"),
        (change((3, 1), math.inf), r"centers\[3, 1\] is inf; expected finite numbers"),
        (change(7, math.nan), r"radii\[7\] is nan; expected finite numbers"),
        (change(7, -1e-12), r"radii must not be negative: radius 7 is -1e-12"),
        (change((0, 0), 1e308), r"circle 0 passes the right side by 1e\+308"),
        (change(0, 1e308), r"circles 0 and 9 overlap by 1e\+308"),
        ([grid()[0][:25], grid()[1], 1.0], r"centers has shape \(25, 2\); expected \(26, 2\)"),
        ([grid()[0], grid()[1][:25], 1.0], r"radii has shape \(25,\); expected \(26,\)"),
        ([grid()[0].T, grid()[1], 1.0], r"centers has shape \(2, 26\); expected \(26, 2\)"),
        ([grid()[0], grid()[1][:, None], 1.0], r"radii has shape \(26, 1\); expected \(26,\)"),
        ([grid()[0], ["0.1"] * 26, 1.0], "radii holds text; expected numbers"),
        ([grid()[0], [None] * 26, 1.0], "radii holds None; expected numbers"),
        ([grid()[0], [[1], [1, 2]], 1.0], "radii is ragged"),
    ],
)
def test_an_answer_of_another_form_is_refused(output, expected):
    with pytest.raises(ValueError, match=expected):
        score_packing(output)


@pytest.mark.parametrize("reported", [10.0, math.nan, 10, "much", None])
def test_a_deviating_reported_sum_is_noted_and_changes_nothing(reported):
    centers, radii = grid()
    evaluation = score_packing([centers, radii, reported])
    assert evaluation.objective == pytest.approx(GRID_SUM, rel=1e-12)
    assert "recomputed: 2.541421356237" in evaluation.artifacts["reported_sum"]


@given(st.permutations(range(26)))
def test_the_order_of_the_circles_does_not_matter(order):
    centers, radii = grid()
    assert score_packing(answer(centers[order], radii[order])) == score_packing(
        answer(centers, radii)
    )


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("is_mirrored", [False, True])
@pytest.mark.parametrize(("extra", "is_valid"), [(GAP, True), (GAP + 2e-6, False)])
def test_turning_and_mirroring_the_square_changes_no_verdict(turns, is_mirrored, extra, is_valid):
    centers, radii = grid(extra)
    if is_mirrored:
        centers[:, 0] = 1 - centers[:, 0]
    for _ in range(turns):
        centers = np.column_stack((1 - centers[:, 1], centers[:, 0]))
    if is_valid:
        assert score_packing(answer(centers, radii)).objective == math.fsum(radii)
    else:
        with pytest.raises(ValueError, match=r"circles 0 and 25 overlap|circles \d+ and 25"):
            score_packing(answer(centers, radii))


def test_a_refused_packing_reports_that_it_is_not_valid():
    evaluation = score(answer(*grid(GAP + 2e-6)))
    assert (evaluation.score, evaluation.objective, evaluation.is_valid) == (0.0, None, False)
    assert "overlap by 2" in evaluation.error
    assert evaluation.metrics == {"sum_radii": 0.0, "target_ratio": 0.0, "validity": 0.0}
