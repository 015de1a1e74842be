"""What all benchmarks have in common, and the facts about each in one table."""

import math
from importlib import import_module
from inspect import getsource
from time import thread_time
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from best_configurations import best_configuration
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.evaluators.registry import problem, problem_names


class Facts(NamedTuple):
    entry_point: str
    direction: str
    reference: float | None
    human: float | None
    seconds: float
    seed_objective: float
    seed_score: float
    metrics: set[str]
    shape: tuple[int, ...] | None = None
    best: tuple[float, float] = (0.0, 0.0)
    """Objective of the best configuration found, and how far it may be from that."""


MAX, MIN = "maximize", "minimize"
SIGNAL_METRICS = {
    *("composite_score", "slope_changes", "lag_error", "avg_error", "false_reversals"),
    *("correlation", "noise_reduction", "smoothness_score", "responsiveness_score"),
    *("accuracy_score", "efficiency_score", "execution_time", "success_rate"),
}
AREA, RATIO = {"min_area_normalized"}, {"min_max_ratio"}
RECT, TRIANGLE = 2.3658321334167627, 0.036529889880030156
FACTS = {
    "circle_packing": Facts(
        *("run_packing", MAX, 2.635, 2.634, 360, 0.9597642169962064, 0.36423689449571406),
        {"sum_radii", "target_ratio", "validity"},
    ),
    "circle_packing_rect": Facts(
        *("circle_packing21", MAX, RECT, 2.364, 360, 0.0, 0.0, {"radii_sum"}, (21, 3)),
        (RECT, 1e-6),
    ),
    "heilbronn_convex": Facts(
        *("heilbronn_convex13", MAX, 0.030936889034895654, 0.0306, 360, 0.00032245840426786953),
        *(0.010423103755007445, AREA, (13, 2), (0.0308, 2e-4)),
    ),
    "heilbronn_triangle": Facts(
        *("heilbronn_triangle11", MAX, TRIANGLE, 0.036, 360, 0.0, 0.0, AREA, (11, 2)),
        (TRIANGLE, 1e-9),
    ),
    "min_max_dist_2d": Facts(
        *("min_max_dist_dim2_16", MIN, 12.889266112, 12.89, 360, 651.2649919520604),
        *(0.0015354732902234823 * 12.889266112, RATIO, (16, 2), (12.889266112, 1e-4)),
    ),
    "min_max_dist_3d": Facts(
        *("min_max_dist_dim3_14", MIN, 4.165849767, 4.17, 360, 231.5478254118123),
        *(0.004318762217790128 * 4.165849767, RATIO, (14, 3), (4.165849767, 1e-4)),
    ),
    "signal_processing": Facts(
        *("run_signal_processing", MAX, None, None, 360, 0.4518100150842093),
        *(0.49904861783269006, SIGNAL_METRICS),
    ),
    "third_autocorrelation": Facts(
        *("run", MIN, 1.4556427953745406, 1.4581, 600, 2.5141706823812604, 0.5789753279581836),
        {"c3", "loss", "n_points"},
    ),
}
SHAPES = {name: facts.shape for name, facts in FACTS.items() if facts.shape}
every = pytest.mark.parametrize(("name", "facts"), FACTS.items(), ids=FACTS)
every_array = pytest.mark.parametrize(("name", "shape"), SHAPES.items(), ids=SHAPES)
every_name = pytest.mark.parametrize("name", FACTS)


def evaluator(name: str) -> ModuleType:
    return import_module(f"costada.evaluators.benchmarks.{name}.evaluator")


def score_or_reason(name, points):
    try:
        return evaluator(name).score(points).score
    except ValueError as error:
        return str(error)


def test_the_table_holds_every_benchmark():
    assert tuple(FACTS) == problem_names()


@pytest.mark.process
@every
def test_the_seed_program_scores_as_published(name, facts):
    # Rounding moves the end of the descent of third_autocorrelation by 1e-13.
    close = 1e-6 if name == "third_autocorrelation" else 1e-12
    described = problem(name)
    evaluation = described.evaluate(described.initial_program)
    assert evaluation.is_valid
    assert evaluation.objective == pytest.approx(facts.seed_objective, rel=close)
    assert described.seed_objective == facts.seed_objective
    assert evaluation.score == pytest.approx(facts.seed_score, rel=close)
    assert set(evaluation.metrics) == facts.metrics | {"combined_score", "eval_time"}
    assert evaluation.metrics["combined_score"] == evaluation.score
    both_looks = evaluation.seconds
    assert 0 < evaluation.metrics["eval_time"] <= both_looks
    assert described.holdout or evaluation.metrics["eval_time"] == both_looks
    assert evaluation.artifacts == {}


@every
def test_the_settings_say_what_the_paper_says(name, facts):
    described = problem(name)
    assert (described.entry_point, described.direction) == (facts.entry_point, facts.direction)
    assert (described.reference, described.human) == (facts.reference, facts.human)
    assert described.limits.wall_seconds == facts.seconds


@every
def test_model_and_guide_read_the_rules(name, facts):
    described = problem(name)
    assert f"`{facts.entry_point}(" in described.task
    if facts.shape:
        assert f"shape {facts.shape}" in described.task
    if facts.reference:
        assert str(facts.reference) in described.task
        assert f"REFERENCE = {facts.reference}\n" in described.evaluator_source
    head, block, fixed = (
        part
        for half in described.initial_program.split("# EVOLVE-BLOCK-START")
        for part in half.split("# EVOLVE-BLOCK-END")
    )
    assert (head.startswith('"""'), f"def {facts.entry_point}(" in block + fixed) == (True, True)
    assert described.evaluator_source.startswith("# A check that fails raises; the score is then 0")
    assert "\ndef score" in described.evaluator_source
    shared = getattr(evaluator(name), "GUIDE_READS", ())
    assert described.evaluator_source.endswith("".join(map(getsource, shared[-1:])))
    assert bool(shared) == (name != "third_autocorrelation")


@every_array
def test_the_best_configuration_found_reaches_what_is_known(name, shape):
    evaluation = evaluator(name).score(best_configuration(name))
    objective, deviation = FACTS[name].best
    assert evaluation.objective == pytest.approx(objective, abs=deviation)
    assert evaluation.artifacts == {}


@every_array
@settings(max_examples=20)
@given(data=st.data())
def test_the_order_of_the_rows_does_not_matter(name, shape, data):
    points = best_configuration(name)
    order = data.draw(st.permutations(range(len(points))))
    expected = evaluator(name).score(points).objective
    assert evaluator(name).score(points[order]).objective == pytest.approx(expected, rel=1e-15)


@every_array
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_refused_with_its_place(name, shape, value):
    points = best_configuration(name)
    points[4, 1] = value
    with pytest.raises(ValueError, match=rf"\[4, 1\] is {value}; expected finite numbers"):
        evaluator(name).score(points)


@every_array
def test_another_shape_is_refused_with_both_shapes(name, shape):
    points = best_configuration(name)
    rows, columns = shape
    for other in (points[1:], np.vstack((points, points[:1])), points.T, points[:, 1:]):
        with pytest.raises(ValueError, match=rf"expected \({rows}, {columns}\)"):
            evaluator(name).score(other)


@every_array
@pytest.mark.parametrize("scale", [1e308, -1e308, 1e200, 5e-324, 1e-200])
def test_no_scale_brings_the_evaluator_down(name, shape, scale):
    outcome = score_or_reason(name, np.sign(best_configuration(name) - 0.4) * scale)
    assert outcome if isinstance(outcome, str) else 0 <= outcome <= 1


@every_array
def test_coordinates_of_very_different_size_are_judged_at_once(name, shape):
    points = np.logspace(-320, 308, math.prod(shape)).reshape(shape)
    start = thread_time()
    outcome = score_or_reason(name, points)
    assert thread_time() - start < 1
    assert isinstance(outcome, str) or outcome == pytest.approx(0, abs=1e-6)


@every_name
@pytest.mark.parametrize(
    "value",
    [
        [[1, 2], [3, 4.0]],
        [np.array([1, 2]), [3, 4]],
        np.array([[1, 2], [3, 4]]),
        np.array([[1.0, 2.0], [3.0, 4.0]]),
    ],
)
def test_lists_and_arrays_of_numbers_become_the_same_array(name, value):
    array = evaluator(name).float_array(value, "points", (2, 2))
    assert (array.dtype, array.tolist()) == (np.float64, [[1.0, 2.0], [3.0, 4.0]])


@every_name
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, r"points is None; expected an array of shape \(2, 2\)"),
        ("much", r"points is text; expected an array"),
        (1.5, r"points is 1\.5; expected an array"),
        ({"points": [[1, 2], [3, 4]]}, "points is a dict; expected an array"),
        ([[1, 2], [3, None]], r"points holds None; expected numbers, shape \(2, 2\)"),
        ([[1, 2], [3, True]], "points holds True; expected numbers"),
        ([[1, 2], ["3", 4]], "points holds text; expected numbers"),
        ([[1, 2], [3, {}]], "points holds a dict; expected numbers"),
        ([[1, 2], [3]], "points is ragged"),
        ([[1, 2], 3], "points is ragged"),
        ([[1, 2], [[3], [4, 5]]], "points is ragged"),
        ([[1, 2], np.array([3, 4, 5])], "points is ragged"),
        ([], r"points has shape \(0,\); expected \(2, 2\)"),
        ([[], []], r"points has shape \(2, 0\); expected \(2, 2\)"),
        ([[1, 2]], r"points has shape \(1, 2\); expected \(2, 2\)"),
        (np.zeros((2, 2, 1)), r"points has shape \(2, 2, 1\); expected \(2, 2\)"),
        ([[1, 2], [3, math.nan]], r"points\[1, 1\] is nan; expected finite .* \(1 of 4 are not"),
        ([[-math.inf, 2], [3, math.inf]], r"points\[0, 0\] is -inf; .* \(2 of 4 are not finite\)"),
        ([np.ones(10**6)] * 10**5, "points has shape"),
        (["x" * 10**6] + [""] * 10**5, "points holds text"),
        ([[1.0] * 300] * 300, "points has shape"),
    ],
)
def test_anything_else_is_refused_with_what_was_expected_before_it_grows(name, value, expected):
    with pytest.raises(ValueError, match=expected):
        evaluator(name).float_array(value, "points", (2, 2))
