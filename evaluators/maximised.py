"""The number that a search maximises, in words."""

from math import isclose

from costada.evaluators.folder_evaluators import SCORED_AS, reported_error
from costada.evaluators.folder_settings import SETTINGS_FILE
from costada.evaluators.problem import Problem
from costada.evaluators.repository import RepositoryEvaluator
from costada.evaluators.sandbox.inside.scored_commands import SECONDS
from costada.evaluators.scoring import normalize
from costada.values.evaluation import (
    COMBINED_SCORE,
    SCORED_BY,
    Direction,
    Evaluation,
    read_objectives,
)


def maximised_number(problem: Problem, evaluation: Evaluation) -> str:
    """The number that the search maximises, and what it is made of.

    `evaluation` is that of a valid initial program.
    """
    objective, reference, direction = evaluation.objective, problem.reference, problem.direction
    if objective is None or not isclose(
        normalize(objective, reference, direction), evaluation.score
    ):
        return "the score that the evaluator returns"
    function = problem.scorer or problem.evaluate
    metric = getattr(getattr(function, "settings", None), "metric", None)
    name, reason = COMBINED_SCORE, "the evaluator returns it"
    if reference is not None:
        reason = f"the evaluator returns {COMBINED_SCORE}"
    if problem.weights:
        shares = {each.metric: each.gain(1.0) for each in read_objectives(problem.objectives)}
        terms = (f"{shares[key] * value:+g} {key}" for key, value in problem.weights.items())
        name, reason = " ".join(terms).removeprefix("+"), f"weights in {SETTINGS_FILE}"
    elif metric and evaluation.metrics.get(metric) == objective:
        name, reason = metric, f"metric in {SETTINGS_FILE}"
    elif scored_by := evaluation.artifacts.get(SCORED_BY):
        # A start that failed says nothing of the metric to choose.
        note = scored_by.partition(";")[0] if reported_error(evaluation.artifacts) else scored_by
        reason = note.removeprefix(SCORED_AS)
    elif isinstance(function, RepositoryEvaluator):
        seconds = evaluation.metrics.get(SECONDS, 0.0)
        inverse = 1 / seconds if seconds else None
        name = {seconds: SECONDS, inverse: f"1 / {SECONDS}"}.get(objective, name)
        reported = SECONDS if SECONDS in name else name
        reason = (
            f"the command reports {'it' if (reference, name) == (None, reported) else reported}"
        )
    if reference is None:
        return f"{name} ({reason})"
    term = f"({name})" if " " in name else name
    if direction is Direction.MINIMIZE:
        return f"the reference {reference:g} divided by {term} ({reason}); lower {name} is better"
    return f"{term} divided by the reference {reference:g} ({reason})"
