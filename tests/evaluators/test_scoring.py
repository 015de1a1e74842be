"""Scores of objectives, and evaluations of several measurements and of several objectives."""

import sys
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costada.evaluators.folder_evaluators import folder_evaluation
from costada.evaluators.folder_settings import FolderSettings
from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.scoring import AGGREGATES, mean, median, normalize
from costada.values.candidate import Program
from costada.values.evaluation import EVALUATOR_FAULT, Direction, Evaluation, failed

MAXIMIZE, MINIMIZE = Direction
PROGRAM = Program.of("x = 1")
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=1e-6, max_value=1e6)


def valid(value: float, **metrics: float) -> Evaluation:
    metrics = {"combined_score": value, **metrics}
    return Evaluation(score=value, objective=value, is_valid=True, metrics=metrics, seconds=1.0)


def series(*answers: Evaluation) -> Callable[[object], Evaluation]:
    """An evaluator that answers with one verdict after the other, and fails when it has none."""
    left = iter(answers)
    return lambda code: next(left)


def make(evaluate: Callable[[object], object], **fields: object) -> Problem:
    return Problem(name="p", task="Do it.", initial_program="x = 1", evaluate=evaluate, **fields)


def noisy(*values: float, **fields: object) -> Problem:
    return make(series(*map(valid, values)), **{"repeats": 3, **fields})


def test_a_program_that_is_measured_once_keeps_the_very_verdict():
    one = valid(3.0, other=1.0)
    found = make(series(one)).evaluate_program(PROGRAM, incumbent=1.0)
    assert replace(found, worker_seconds=0.0) == one


@pytest.mark.parametrize(
    ("aggregate", "expected"), [("median", 3.0), ("mean", 5.0), ("min", 2.0), ("max", 10.0)]
)
def test_a_verdict_is_what_its_measurements_come_to(aggregate, expected):
    found = noisy(10.0, 2.0, 3.0, aggregate=aggregate).evaluate_program(PROGRAM)
    assert (found.score, found.objective) == (expected, expected)
    assert found.metrics == {"combined_score": expected}
    assert (found.measurements, found.confirmation) == ((10.0, 2.0, 3.0), ())
    assert found.seconds == 3.0


def test_each_metric_is_aggregated_and_one_that_is_not_always_reported_is_left_out():
    answers = valid(1.0, a=5.0, eval_time=1.0), valid(2.0, a=1.0, b=9.0, eval_time=2.0)
    found = make(series(*answers, valid(3.0, a=3.0, eval_time=4.0)), repeats=3).evaluate_program(
        PROGRAM
    )
    assert found.metrics == {"combined_score": 2.0, "a": 3.0, "eval_time": 3.0}


def test_a_new_best_is_measured_again_and_all_measurements_count():
    # The median of the first three, 9, is above the incumbent; that of all six is 6.5.
    found = noisy(9.0, 12.0, 1.0, 4.0, 2.0, 10.0).evaluate_program(PROGRAM, incumbent=8.0)
    assert found.score == 6.5
    assert (found.measurements, found.confirmation) == ((9.0, 12.0, 1.0), (4.0, 2.0, 10.0))
    assert found.seconds == 6.0


@pytest.mark.parametrize("incumbent", [9.0, 9.5, None])
def test_what_is_no_new_best_is_not_measured_again(incumbent):
    found = noisy(9.0, 12.0, 1.0).evaluate_program(PROGRAM, incumbent=incumbent)
    assert (found.score, found.confirmation) == (9.0, ())


def test_a_program_that_fails_in_a_later_measurement_is_invalid_and_measured_no_more():
    crash = failed("it crashed", seconds=1.0)
    found = make(series(valid(1.0), crash), repeats=3).evaluate_program(PROGRAM)
    assert (found.is_valid, found.error) == (False, "measurement 2 of 3: it crashed")
    assert (found.measurements, found.seconds) == ((), 2.0)
    first = make(series(crash), repeats=3).evaluate_program(PROGRAM)
    assert first.error == "it crashed"
    third = make(series(*[valid(9.0)] * 4, crash), repeats=3).evaluate_program(
        PROGRAM, incumbent=8.0
    )
    assert (third.is_valid, third.error) == (False, "measurement 5 of 6: it crashed")


def test_the_start_is_measured_twice_as_every_incumbent_is():
    found = check_problem(noisy(1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    assert (found.score, found.confirmation) == (3.5, (4.0, 5.0, 6.0))


def shares(reference: float, *objectives: float) -> list[Evaluation]:
    return [
        Evaluation(score=reference / each, objective=each, is_valid=True) for each in objectives
    ]


def test_a_minimised_objective_is_aggregated_and_then_scored():
    answers = shares(6.0, 2.0, 3.0, 4.0)
    fields = {"direction": "minimize", "reference": 6.0, "repeats": 3}
    means = make(series(*answers), aggregate="mean", **fields).evaluate_program(PROGRAM)
    assert (means.objective, means.score) == (3.0, 2.0)
    lowest = make(series(*answers), aggregate="min", **fields).evaluate_program(PROGRAM)
    assert (lowest.objective, lowest.score) == (2.0, 3.0)


def test_a_score_of_the_evaluators_own_is_aggregated_the_same_way():
    answers = [
        Evaluation(score=score, objective=objective, is_valid=True)
        for score, objective in ((0.2, 9.0), (0.7, 4.0), (0.4, 5.0))
    ]
    fields = {"direction": Direction.MINIMIZE, "reference": 1.0, "repeats": 3}
    lowest = make(series(*answers), aggregate="min", **fields).evaluate_program(PROGRAM)
    assert (lowest.objective, lowest.score) == (4.0, 0.7)
    middle = make(series(*answers), **fields).evaluate_program(PROGRAM)
    assert (middle.objective, middle.score) == (5.0, 0.4)


@example([sys.float_info.max] * 3)
@given(st.lists(finite, min_size=1, max_size=9))
def test_an_aggregate_lies_between_the_lowest_and_the_highest_however_large_they_are(values):
    for aggregate in AGGREGATES.values():
        assert min(values) <= aggregate(values) <= max(values)
        assert aggregate([values[0]] * 5) == values[0]


def test_the_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle():
    assert median([9.0, 1.0, 2.0, 4.0]) == 3.0
    assert mean([1.0, 2.0, 6.0]) == 3.0


@pytest.mark.parametrize(("repeats", "expected"), [(1, None), (3, 1)])
def test_noisy_programs_are_evaluated_one_at_a_time_unless_more_are_asked_for(repeats, expected):
    problem = make(series(), repeats=repeats)
    if expected:
        assert problem.turns.limit == expected
    assert make(series(), repeats=repeats, evaluations_at_once=2).turns.limit == 2


TWO = ["speed:max", "memory:min"]


def traded(**fields: object) -> Problem:
    return make(series(valid(9.0, speed=4.0, memory=3.0)), objectives=TWO, **fields)


def test_weights_make_the_score_and_an_objective_to_minimise_is_subtracted():
    found = traded(weights={"speed": 2.0, "memory": 0.5}).evaluate_program(PROGRAM)
    assert (found.score, found.objective, found.metrics["combined_score"]) == (6.5, 6.5, 6.5)
    halved = traded(weights={"speed": 2.0}, reference=16.0).evaluate_program(PROGRAM)
    assert (halved.score, halved.objective) == (0.5, 8.0)
    assert traded().evaluate_program(PROGRAM).score == 9.0


@pytest.mark.parametrize("metrics", [{"speed": 4.0}, {"speed": 4.0, "memory": inf}])
def test_an_evaluator_that_reports_no_number_for_an_objective_has_failed(metrics):
    problem = make(lambda code: valid(1.0, **metrics), objectives=TWO)
    found = problem.evaluate_program(PROGRAM)
    assert not found.is_valid
    assert found.artifacts[EVALUATOR_FAULT] == (
        "objectives names the metric 'memory', for which the evaluator reports no finite number"
        " (it reports combined_score, speed)"
    )
    with pytest.raises(ValueError, match="problem 'p', initial program: objectives names the metr"):
        check_problem(problem)


def test_weights_that_overflow_are_a_fault_and_no_crash():
    problem = make(
        series(valid(1.0, speed=1e308, memory=1.0)), objectives=TWO, weights={"speed": 1e9}
    )
    assert "add up to inf" in problem.evaluate_program(PROGRAM).artifacts[EVALUATOR_FAULT]


def test_a_failed_program_needs_no_objectives():
    assert make(series(failed("no")), objectives=TWO).evaluate_program(PROGRAM).error == "no"


def test_the_metrics_of_a_folder_are_weighted_where_it_reports_no_combined_score():
    settings = FolderSettings(objectives=TWO, weights={"speed": 2.0, "memory": 0.5})
    found = folder_evaluation({"speed": 4.0, "memory": 3.0}, {}, settings)
    assert (found.is_valid, found.score) == (True, 6.5)
    crashed = folder_evaluation({"validity": 0.0}, {"error": "it crashed"}, settings)
    assert (crashed.is_valid, crashed.error) == (False, "it crashed")
    assert EVALUATOR_FAULT not in crashed.artifacts
    assert EVALUATOR_FAULT in folder_evaluation({"speed": 4.0}, {}, settings).artifacts


def test_problems_share_verdicts_only_if_they_measure_alike():
    def judge(code: str) -> Evaluation:
        return valid(1.0)

    prints = {
        make(judge, **fields).fingerprint
        for fields in ({}, {"repeats": 2}, {"aggregate": "min"}, {"objectives": TWO})
    }
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("objective", "reference", "direction", "score"),
    [
        (1.0, 2.0, MAXIMIZE, 0.5),
        (4.0, 2.0, MINIMIZE, 0.5),
        (3.5, None, MAXIMIZE, 3.5),
        *((value, 2.0, way, 0.0) for value in (nan, inf, -inf) for way in Direction),
        *((value, 2.0, MINIMIZE, 0.0) for value in (0.0, -1.0, 5e-324)),
    ],
)
def test_a_score_is_the_share_of_the_reference_or_zero(objective, reference, direction, score):
    assert normalize(objective, reference, direction) == score


def test_minimising_without_a_reference_is_refused():
    with pytest.raises(ValueError, match="reference is None"):
        normalize(1.0, None, MINIMIZE)


@given(positive, positive, positive)
def test_a_better_objective_never_scores_less_and_the_reference_scores_one(one, two, reference):
    low, high = sorted((one, two))
    assert normalize(low, reference, MAXIMIZE) <= normalize(high, reference, MAXIMIZE)
    assert normalize(low, reference, MINIMIZE) >= normalize(high, reference, MINIMIZE)
    assert normalize(reference, reference, MAXIMIZE) == 1.0
    assert normalize(reference, reference, MINIMIZE) == 1.0
