"""The verdict of a folder's evaluator: turns its answer into an evaluation."""

from collections.abc import Mapping
from math import isfinite

from costada.evaluators.contract import normalize
from costada.evaluators.folder_settings import FolderSettings
from costada.evaluators.measuring import weighted_sum
from costada.evaluators.sandbox.execution import too_slow
from costada.evaluators.sandbox.inside.scored_commands import FAILURES, names_failure
from costada.evaluators.sandbox.limits import Limits
from costada.values.evaluation import (
    COMBINED_SCORE,
    EVALUATOR_FAULT,
    MARKS,
    Direction,
    Evaluation,
    failed,
    read_objectives,
    storable,
)

VALIDITY = "validity"
NO_ERROR = (None, "", "None", "False", "[]")
"""Texts of an error where there is none."""
RENAMED = "reported_"
"""Begins the name of a text that the evaluator reports under the name of a mark."""


def sort_values(values: Mapping[str, object]) -> tuple[dict[str, float], dict[str, str]]:
    """Finite numbers as metrics, and everything else as text in artifacts."""
    numbers = {k: v for k, v in values.items() if isinstance(v, float) and isfinite(v)}
    return numbers, {k: storable(str(v)) for k, v in values.items() if k not in numbers}


def evaluation_error(error: str, limits: Limits) -> str:
    """Why an evaluation failed, with the setting of a time limit that it exceeded.

    Evaluator and candidate share one time limit, so neither is blamed.
    """
    if error != too_slow(limits.wall_seconds):
        return error
    seconds = f"{limits.wall_seconds:g} s"
    return f"timeout: the evaluation exceeded {seconds} (timeout in problem.toml, or --timeout)"


def reported_error(artifacts: Mapping[str, str]) -> str | None:
    """Why a candidate failed, in the words of its evaluator; None if there are none."""
    found = (artifacts.get(name) for name in FAILURES)
    return next((text for text in found if text not in NO_ERROR), None)


def verdict(
    metrics: Mapping[str, float],
    artifacts: Mapping[str, str],
    settings: FolderSettings,
    seconds: float = 0.0,
) -> Evaluation:
    """Evaluation from the metrics and artifacts of a folder's evaluator.

    The candidate failed if the evaluator says validity 0, an error with a score of 0 or none, or
    nothing but numbers whose names tell a failure. A text under the name of a mark, which may come
    from the candidate, is renamed.
    """
    artifacts = {RENAMED + name if name in MARKS else name: artifacts[name] for name in artifacts}
    if settings.weights:
        metrics = _weighted(metrics, artifacts, settings)
    if settings.metric:
        metrics = _chosen(metrics, artifacts, settings.metric)
    error = reported_error(artifacts)
    if not {COMBINED_SCORE, settings.metric} & {*metrics, *artifacts}:
        if not error and metrics and all(map(names_failure, metrics)):
            numbers = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
            error = f"the evaluator reports {numbers}, and no {settings.metric or COMBINED_SCORE}"
        if error:
            return failed(error, metrics=metrics, artifacts=artifacts, seconds=seconds)
    if COMBINED_SCORE not in metrics:
        known = ", ".join(sorted({*metrics, *artifacts})) or "nothing"
        wanted = settings.metric or COMBINED_SCORE
        fault = f"the evaluator returned no {wanted}; expected a number (it returned {known})"
        if COMBINED_SCORE in artifacts:
            given = artifacts[COMBINED_SCORE]
            fault = f"{COMBINED_SCORE} is {given!r}; expected a finite number"
            if given not in ("nan", "inf", "-inf"):
                fault = f"the evaluator's {fault}"
        marked = {**artifacts, EVALUATOR_FAULT: fault}
        return failed(fault, metrics=metrics, artifacts=marked, seconds=seconds)
    objective = metrics[COMBINED_SCORE]
    score = normalize(objective, settings.reference, settings.direction)
    is_invalid = metrics.get(VALIDITY, 1.0) <= 0
    if is_invalid and not error:
        error = f"the evaluator says {VALIDITY} {metrics[VALIDITY]:g}"
    error = error if is_invalid or score <= 0 else None
    if error is None and settings.direction is Direction.MINIMIZE and objective <= 0:
        error = (
            f"{COMBINED_SCORE} is {objective:g}; expected a positive number, as an objective that"
            f" is minimised is scored by reference / {COMBINED_SCORE}"
        )
    if error:
        return failed(error, metrics=metrics, artifacts=artifacts, seconds=seconds)
    return Evaluation(
        score=score,
        objective=objective,
        is_valid=True,
        metrics=metrics,
        artifacts=artifacts,
        seconds=seconds,
    )


def _chosen(
    metrics: Mapping[str, float], artifacts: Mapping[str, str], metric: str
) -> dict[str, float]:
    """The metrics with one of them as `combined_score`, which a failed candidate need not have."""
    if metric in metrics:
        return {**metrics, COMBINED_SCORE: metrics[metric]}
    if reported_error(artifacts) or metrics.get(VALIDITY, 1.0) <= 0:
        return {**metrics, COMBINED_SCORE: 0.0}
    return {name: value for name, value in metrics.items() if name != COMBINED_SCORE}


def _weighted(
    metrics: Mapping[str, float], artifacts: Mapping[str, str], settings: FolderSettings
) -> Mapping[str, float]:
    """The metrics with the `combined_score` that weights make of them, 0 for a failed candidate."""
    objectives = read_objectives(settings.objectives)
    if all(each.metric in metrics for each in objectives):
        return {**metrics, COMBINED_SCORE: weighted_sum(metrics, objectives, settings.weights)}
    has_failed = reported_error(artifacts) or metrics.get(VALIDITY, 1.0) <= 0
    return {**metrics, COMBINED_SCORE: 0.0} if has_failed else metrics
