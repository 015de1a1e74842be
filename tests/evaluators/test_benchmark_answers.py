"""What the benchmarks that take one array of coordinates have in common."""

import math
from time import monotonic

import numpy as np
import pytest
from best_configurations import best_configuration

from costada.evaluators.registry import problem

SHAPES = {
    "circle_packing_rect": (21, 3),
    "heilbronn_triangle": (11, 2),
    "heilbronn_convex": (13, 2),
    "min_max_dist_2d": (16, 2),
    "min_max_dist_3d": (14, 3),
}
every = pytest.mark.parametrize(("name", "shape"), SHAPES.items(), ids=SHAPES)


def score_or_reason(name, points):
    try:
        return problem(name).score(points).score
    except ValueError as error:
        return str(error)


@every
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused_with_its_place(name, shape, value):
    points = best_configuration(name)
    points[4, 1] = value
    with pytest.raises(ValueError, match=rf"\[4, 1\] is {value}; expected finite numbers"):
        problem(name).score(points)


@every
def test_another_shape_is_refused_with_both_shapes(name, shape):
    points = best_configuration(name)
    rows, columns = shape
    for other in (points[1:], np.vstack((points, points[:1])), points.T, points[:, 1:]):
        with pytest.raises(ValueError, match=rf"expected \({rows}, {columns}\)"):
            problem(name).score(other)


@every
@pytest.mark.parametrize("output", [None, 1.0, "points", {}, [], [None] * 13, [[1.0, 2.0], [1.0]]])
def test_an_answer_that_is_no_array_is_refused(name, shape, output):
    with pytest.raises(ValueError, match="expected"):
        problem(name).score(output)


@every
def test_lists_are_as_good_as_arrays(name, shape):
    points = best_configuration(name)
    assert problem(name).score(points.tolist()) == problem(name).score(points)


@every
@pytest.mark.parametrize("scale", [1e308, -1e308, 1e200, 5e-324, 1e-200])
def test_no_scale_brings_the_evaluator_down(name, shape, scale):
    outcome = score_or_reason(name, np.sign(best_configuration(name) - 0.4) * scale)
    assert outcome if isinstance(outcome, str) else 0 <= outcome <= 1


@every
def test_coordinates_of_very_different_size_are_judged_at_once(name, shape):
    points = np.logspace(-320, 308, math.prod(shape)).reshape(shape)
    start = monotonic()
    outcome = score_or_reason(name, points)
    assert monotonic() - start < 1
    assert isinstance(outcome, str) or outcome == pytest.approx(0, abs=1e-6)


@every
def test_model_and_guide_are_told_the_rules(name, shape):
    described = problem(name)
    assert f"`{described.entry_point}()`" in described.task
    assert f"shape {shape}" in described.task
    assert str(described.reference) in described.task
    assert f"REFERENCE = {described.reference}" in described.evaluator_source
    assert "def score(" in described.evaluator_source
    assert described.limits.wall_seconds == 360
    block = described.initial_program.split("# EVOLVE-BLOCK-START")[1]
    assert f"def {described.entry_point}():" in block.split("# EVOLVE-BLOCK-END")[0]
