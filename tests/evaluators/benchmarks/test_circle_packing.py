import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from best_configurations import best_configuration
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.evaluators.benchmarks.circle_packing.evaluator import score, score_packing
from costada.evaluators.benchmarks.circle_packing_rect.evaluator import score as score_rect


class Case(NamedTuple):
    """A grid of touching circles of one size, and smaller ones in gaps between four of them."""

    score: Any
    size: float
    places: list[tuple[float, float]]
    reference: float
    as_answer: Any

    @property
    def gap(self):
        return self.size * (math.sqrt(2) - 1)

    def grid(self, extra=None):
        count = round(0.5 / self.size)
        steps = np.arange(count) * 2 * self.size + self.size
        large = [[x, y, self.size] for x in steps for y in steps]
        small = self.gap if extra is None else extra
        return np.array([*large, *([x, y, small] for x, y in self.places)])

    def verdict(self, circles):
        return self.score(self.as_answer(circles))


def answer(circles):
    return [circles[:, :2], circles[:, 2], math.fsum(circles[:, 2])]


SQUARE = Case(score_packing, 0.1, [(0.2, 0.2)], 2.635, answer)
GAPS = [(0.25, 0.25), (0.25, 0.75), (0.5, 0.5), (0.75, 0.25), (0.75, 0.75)]
RECT = Case(score_rect, 0.125, GAPS, 2.3658321334167627, lambda circles: circles)
both = pytest.mark.parametrize("case", [SQUARE, RECT], ids=["square", "rectangle"])


@both
def test_touching_circles_are_valid_and_need_no_flag(case):
    circles = case.grid()
    total = math.fsum(circles[:, 2])
    evaluation = case.verdict(circles)
    assert evaluation.objective == pytest.approx(total, rel=1e-12)
    assert evaluation.score == pytest.approx(total / case.reference, rel=1e-12)
    assert evaluation.artifacts == {}


def test_the_best_packing_found_reaches_the_reference():
    evaluation = SQUARE.verdict(best_configuration("circle_packing"))
    assert evaluation.objective == pytest.approx(2.635983, abs=1e-6)
    assert evaluation.artifacts == {}


@both
def test_an_overlap_is_credited_up_to_the_tolerance_with_a_flag(case):
    evaluation = case.verdict(case.grid(case.gap + 9e-7))
    told = "the packing is valid only within tolerance: it needs 9e-07"
    assert evaluation.artifacts == {"tolerance": told}
    assert evaluation.objective == pytest.approx(
        math.fsum(case.grid()[:, 2]) + len(case.places) * 9e-7, rel=1e-12
    )
    with pytest.raises(ValueError, match=r"circles \d+ and \d+ overlap by 1\.1\d*e-06 \(distance"):
        case.verdict(case.grid(case.gap + 1.1e-6))


@pytest.mark.parametrize(
    ("axis", "sign", "side"), [(0, -1, "left"), (0, 1, "right"), (1, -1, "lower"), (1, 1, "upper")]
)
def test_the_border_has_the_same_tolerance_on_every_side(axis, sign, side):
    circles = SQUARE.grid(0.0)
    circles[:, axis] += sign * 9e-7
    assert "it needs 9e-07" in SQUARE.verdict(circles).artifacts["tolerance"]
    circles[:, axis] += sign * 2e-7
    with pytest.raises(ValueError, match=rf"circle \d+ passes the {side} side by 1\.1\d*e-06"):
        SQUARE.verdict(circles)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_bounding_box_is_credited_up_to_the_tolerance_with_a_flag(axis):
    circles = RECT.grid(0.0)
    last = circles[:, axis] > 0.8
    circles[last, axis] += 9e-7
    assert "it needs 9e-07" in score_rect(circles).artifacts["tolerance"]
    circles[last, axis] += 2e-7
    with pytest.raises(ValueError, match=r"invalid packing .* more than 2 by 1\.1\d*e-06"):
        score_rect(circles)


def test_only_the_worst_violations_are_listed():
    with pytest.raises(ValueError, match=r"^invalid packing .* and \d+ more$") as caught:
        SQUARE.verdict(np.tile([0.5, 0.5, 0.1], (26, 1)))
    assert str(caught.value).count("overlap by") == 5


@both
def test_a_negative_radius_is_refused(case):
    circles = case.grid()
    circles[7, 2] = -1e-12
    with pytest.raises(ValueError, match="radii must not be negative: radius 7 is -1e-12"):
        case.verdict(circles)


def change(place, value):
    circles = SQUARE.grid(0.0)
    circles[place] = value
    centers, radii, total = answer(circles)
    return [centers, radii.tolist(), total]


CENTERS, RADII = SQUARE.grid()[:, :2], SQUARE.grid()[:, 2]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (None, r"run_packing must return \(centers, radii, sum_radii\)"),
        ([1, 2], r"run_packing must return \(centers, radii, sum_radii\)"),
        (change((3, 1), math.nan), r"centers\[3, 1\] is nan; expected finite numbers"),
        (change((3, 1), math.inf), r"centers\[3, 1\] is inf; expected finite numbers"),
        (change((7, 2), math.nan), r"radii\[7\] is nan; expected finite numbers"),
        (change((0, 0), 1e308), r"circle 0 passes the right side by 1e\+308"),
        (change((0, 2), 1e308), r"circles 0 and 9 overlap by 1e\+308"),
        ([CENTERS[:25], RADII, 1.0], r"centers has shape \(25, 2\); expected \(26, 2\)"),
        ([CENTERS, RADII[:25], 1.0], r"radii has shape \(25,\); expected \(26,\)"),
        ([CENTERS.T, RADII, 1.0], r"centers has shape \(2, 26\); expected \(26, 2\)"),
        ([CENTERS, RADII[:, None], 1.0], r"radii has shape \(26, 1\); expected \(26,\)"),
        ([CENTERS, ["0.1"] * 26, 1.0], "radii holds text; expected numbers"),
    ],
)
def test_an_answer_of_another_form_is_refused(output, expected):
    with pytest.raises(ValueError, match=expected):
        score_packing(output)


@pytest.mark.parametrize("reported", [10.0, math.nan, 10, "much", None])
def test_a_deviating_reported_sum_is_noted_and_changes_nothing(reported):
    evaluation = score_packing([CENTERS, RADII, reported])
    assert evaluation.objective == pytest.approx(2.541421356237, rel=1e-12)
    assert "recomputed: 2.541421356237" in evaluation.artifacts["reported_sum"]


def test_a_refused_packing_reports_that_it_is_not_valid():
    evaluation = score(answer(SQUARE.grid(SQUARE.gap + 2e-6)))
    assert (evaluation.score, evaluation.objective, evaluation.is_valid) == (0.0, None, False)
    assert "overlap by 2" in evaluation.error
    assert evaluation.metrics == {"sum_radii": 0.0, "target_ratio": 0.0, "validity": 0.0}


@given(st.permutations(range(26)))
def test_the_order_of_the_circles_does_not_matter(order):
    assert SQUARE.verdict(SQUARE.grid()[order]) == SQUARE.verdict(SQUARE.grid())


@both
@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("is_mirrored", [False, True])
def test_turning_and_mirroring_changes_no_verdict(case, turns, is_mirrored):
    for extra in (0.0, 2e-6):
        circles = case.grid(case.gap + extra)
        if is_mirrored:
            circles[:, 0] = 1 - circles[:, 0]
        for _ in range(turns):
            circles[:, :2] = np.column_stack((1 - circles[:, 1], circles[:, 0]))
        if extra:
            with pytest.raises(ValueError, match="overlap by 2"):
                case.verdict(circles)
        else:
            assert case.verdict(circles).objective == math.fsum(circles[:, 2])


def test_twenty_six_points_are_a_valid_packing_of_sum_zero():
    assert SQUARE.verdict(np.tile([0.5, 0.5, 0.0], (26, 1))).objective == 0.0


def with_points(circles, place):
    """The circles given, filled up to 21 with circles of radius 0."""
    return np.array(circles + [[*place, 0.0]] * (21 - len(circles)))


@pytest.mark.parametrize("corner", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_one_circle_and_points_in_a_corner_of_its_box_are_valid(corner):
    evaluation = score_rect(with_points([[0.5, 0.5, 0.5]], corner))
    assert (evaluation.objective, evaluation.artifacts) == (0.5, {})


FAR = 2.0**52
"""From here on, doubles are 1 apart: x + r and x - r would fall on the same number."""


@pytest.mark.parametrize(
    ("circles", "point", "expected"),
    [
        *(
            ([[0.5, 0.5, 0.5], [1.5, 0.5, 0.5]], corner, r"width 2 [+] height 1, more than 2 by 1$")
            for corner in ((0, 0), (0, 1), (2, 0), (2, 1))
        ),
        ([[0.5, 0.5, 0.5]], (1.25, 0.5), r"width 1\.25 [+] height 1, more than 2 by 0\.25"),
        (
            [[FAR + 1, FAR + 2, 0.5], [FAR + 2, FAR + 2, 0.5]],
            (FAR, FAR + 2),
            r"width 2\.5 [+] height 1, more than 2 by 1\.5",
        ),
        ([[1e308, 0, 1e308], [-1e308, 0, 1e308]], (0, 0), r"has width inf [+] height"),
        *(
            ([[place, place, radius]], (place, place), "the bounding box of all circles has width")
            for place in (0.0, 1e300, -1e308)
            for radius in (1e9, 1e308)
        ),
    ],
)
def test_a_bounding_box_is_refused_that_is_too_large_by_circle_or_point(circles, point, expected):
    with pytest.raises(ValueError, match=expected):
        score_rect(with_points(circles, point))


shifts = st.integers(-(2**30), 2**30).map(lambda n: n / 64)


@settings(max_examples=30)
@given(shifts, shifts)
def test_the_place_of_the_rectangle_does_not_matter(across, up):
    circles = RECT.grid(0.05)
    assert score_rect(circles + np.array([across, up, 0.0])) == score_rect(circles)
