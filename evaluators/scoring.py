"""How an objective becomes a score, and several objectives or measurements one evaluation.

Where scores are noisy, as run times are, a program is measured `repeats` times, and each number of
its evaluation is their `aggregate`. A new best is measured as often again and keeps the aggregate
of all measurements, so noise alone cannot make it the incumbent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import fsum, isclose, isfinite

from costada.evaluators.problem_fields import Aggregate, ProblemFields
from costada.values.evaluation import (
    COMBINED_SCORE,
    EVAL_TIME,
    EVALUATOR_FAULT,
    Direction,
    Evaluation,
    Objective,
    failed,
    read_objectives,
)


def normalize(objective: float, reference: float | None, direction: Direction) -> float:
    """Normalised score of an objective; higher is better (f_t, Sec. 3, App. H).

    The score is the objective's share of the reference, so reaching the reference scores 1
    and passing it scores more. A minimised objective is a positive quantity: its share is
    inverted, and values at or below 0 score 0.

    Args:
        objective: Value in benchmark units.
        reference: Positive objective of score 1; None leaves a maximised objective as is.
        direction: Which way the objective improves.

    Returns:
        A finite number; 0 for an objective or a share that is not finite.

    Raises:
        ValueError: If a minimised objective comes without a reference.
    """
    if direction is Direction.MINIMIZE:
        if reference is None:
            raise ValueError("reference is None; expected a number to divide by the objective")
        score = reference / objective if objective > 0 else 0.0
    else:
        score = objective if reference is None else objective / reference
    return float(score) if isfinite(objective) and isfinite(score) else 0.0


TARGET_TOLERANCE = 1e-9
"""Relative distance of a target below which rounding, not quality, keeps a score from it."""


def reaches(score: float, target: float, reference: float | None, direction: Direction) -> bool:
    """Whether a normalised score is as good as a target in the units of the objective.

    Scores that an evaluator returns beside objectives are compared as they are, as their problem
    has no reference. Raises as `normalize` does.
    """
    goal = normalize(target, reference, direction)
    return score >= goal or isclose(score, goal, rel_tol=TARGET_TOLERANCE)


def mean(values: Sequence[float]) -> float:
    """The mean of finite numbers, finite however large they are, and exact where all are equal."""
    # Halves, as shares of the largest numbers may add up to more than a float can hold.
    share = 2 * fsum(value / (2 * len(values)) for value in values)
    return min(max(share, min(values)), max(values))


def median(values: Sequence[float]) -> float:
    """The middle one of the numbers, or the mean of the two in the middle."""
    ranked, half = sorted(values), len(values) // 2
    return ranked[half] if len(values) % 2 else mean(ranked[half - 1 : half + 1])


AGGREGATES: Mapping[Aggregate, Callable[[Sequence[float]], float]] = {
    "median": median,
    "mean": mean,
    "min": min,
    "max": max,
}
"""The ways to aggregate the measurements of a number, by the name in `Problem.aggregate`."""


def aggregate_measurements(
    problem: ProblemFields, measure: Callable[[], Evaluation], incumbent: float | None = None
) -> Evaluation:
    """Aggregate the measurements that a problem asks for into one evaluation of a program.

    A program is invalid if one of its measurements is.

    Args:
        problem: Says how many measurements there are, and how they are aggregated.
        measure: Evaluates the program once.
        incumbent: Score of the best program so far, which a better one must beat a second time;
            `None` where nothing is confirmed.
    """
    first = _measurements(problem, measure, 0)
    evaluation = _aggregate(problem, first)
    is_better = incumbent is not None and evaluation.is_valid and evaluation.score > incumbent
    if problem.repeats == 1 or not is_better:
        return evaluation
    second = _measurements(problem, measure, len(first))
    pooled = _aggregate(problem, [*first, *second])
    if not pooled.is_valid:
        return pooled
    return replace(
        pooled, measurements=evaluation.measurements, confirmation=tuple(map(_value, second))
    )


def _measurements(
    problem: ProblemFields, measure: Callable[[], Evaluation], before: int
) -> list[Evaluation]:
    """The measurements of a program that `before` precede; the last one is its only failure."""
    found: list[Evaluation] = []
    while len(found) < problem.repeats and (not found or found[-1].is_valid):
        found.append(with_objectives(measure(), problem))
    last, number = found[-1], before + len(found)
    if not last.is_valid and number > 1:
        total = problem.repeats * (2 if before else 1)
        found[-1] = replace(last, error=f"measurement {number} of {total}: {last.error}")
    return found


def _aggregate(problem: ProblemFields, found: Sequence[Evaluation]) -> Evaluation:
    """The aggregate of measurements; the failure, if one of them failed."""
    last = found[-1]
    if len(found) == 1 and problem.repeats == 1:
        return last
    seconds = fsum(each.seconds for each in found)
    if not last.is_valid:
        return replace(last, seconds=seconds)
    aggregate, objectives = AGGREGATES[problem.aggregate], [each.objective for each in found]
    known = [each for each in objectives if each is not None]
    objective = aggregate(known) if len(known) == len(found) else None
    score = _score(problem, found, objective)
    common = [name for name in found[0].metrics if all(name in each.metrics for each in found)]
    metrics = {name: aggregate([each.metrics[name] for each in found]) for name in common}
    if all(each.metrics.get(COMBINED_SCORE) == each.score for each in found):
        metrics[COMBINED_SCORE] = score
    if EVAL_TIME in metrics:
        metrics[EVAL_TIME] = seconds
    return replace(
        found[0],
        score=score,
        objective=objective,
        metrics=metrics,
        seconds=seconds,
        measurements=tuple(map(_value, found)),
    )


def _value(measurement: Evaluation) -> float:
    is_known = measurement.objective is not None
    return float(measurement.objective if is_known else measurement.score)  # type: ignore[arg-type]


def _score(problem: ProblemFields, found: Sequence[Evaluation], objective: float | None) -> float:
    """The score of the aggregate: that of its objective, or else the aggregate of the scores."""
    reference, direction = problem.reference, problem.direction
    is_known = reference is not None or direction is Direction.MAXIMIZE
    if objective is not None and is_known:
        pairs = [(normalize(_value(each), reference, direction), each.score) for each in found]
        if all(isclose(share, score) for share, score in pairs):
            return normalize(objective, reference, direction)
    name = problem.aggregate
    if direction is Direction.MINIMIZE:
        # The smallest objective has the highest score.
        opposites: Mapping[Aggregate, Aggregate] = {"min": "max", "max": "min"}
        name = opposites.get(name, name)
    return AGGREGATES[name]([each.score for each in found])


def with_objectives(evaluation: Evaluation, problem: ProblemFields) -> Evaluation:
    """An evaluation with the score that the weights of a problem give it.

    An evaluator that reports no finite number for an objective has failed. Raises as
    `check_evaluation` does.
    """
    check_evaluation(evaluation, problem)
    objectives = read_objectives(problem.objectives)
    if not objectives or not evaluation.is_valid:
        return evaluation
    metrics = evaluation.metrics
    lacking = [each.metric for each in objectives if each.metric not in metrics]
    lacking += [each.metric for each in objectives if each.metric in evaluation.not_finite]
    if lacking:
        reported = ", ".join(sorted({*metrics} - {*evaluation.not_finite})) or "nothing"
        return _faulty(
            evaluation,
            f"objectives names the metric {lacking[0]!r}, for which the evaluator reports no finite"
            f" number (it reports {reported})",
        )
    if not problem.weights:
        return evaluation
    combined = weighted_sum(metrics, objectives, problem.weights)
    if not isfinite(combined):
        return _faulty(evaluation, f"the weighted objectives add up to {combined}")
    return replace(
        evaluation,
        score=normalize(combined, problem.reference, Direction.MAXIMIZE),
        objective=combined,
        metrics={**metrics, COMBINED_SCORE: combined},
    )


def check_evaluation(evaluation: object, problem: ProblemFields) -> None:
    """Refuse what is not an evaluation.

    Raises:
        ValueError: Naming what the evaluator returned.
    """
    if not isinstance(evaluation, Evaluation):
        given = type(evaluation).__name__
        raise ValueError(
            f"problem {problem.name!r}: evaluate returned {given}; expected an Evaluation"
        )


def weighted_sum(
    metrics: Mapping[str, float], objectives: Sequence[Objective], weights: Mapping[str, float]
) -> float:
    """The `combined_score` that weights make of metrics; an objective to minimise is subtracted."""
    return sum(
        weights[each.metric] * each.gain(metrics[each.metric])
        for each in objectives
        if each.metric in weights
    )


def _faulty(evaluation: Evaluation, fault: str) -> Evaluation:
    artifacts = {**evaluation.artifacts, EVALUATOR_FAULT: fault}
    return failed(
        fault, metrics=evaluation.metrics, artifacts=artifacts, seconds=evaluation.seconds
    )
