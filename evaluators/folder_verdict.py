"""What the values amount to that the evaluator of a folder reports."""

from collections.abc import Mapping
from math import isfinite

from costada.evaluators.contract import normalize
from costada.evaluators.folder_settings import FolderSettings
from costada.values.evaluation import (
    COMBINED_SCORE,
    EVALUATOR_FAULT,
    Direction,
    Evaluation,
    failed,
    storable,
)

VALIDITY = "validity"
ERROR = "error"
NOT_FINITE = ("nan", "inf", "-inf")


def sort_values(values: Mapping[str, object]) -> tuple[dict[str, float], dict[str, str]]:
    """Return finite numbers as metrics, and everything else, in words, as artifacts."""
    numbers = {k: v for k, v in values.items() if isinstance(v, float) and isfinite(v)}
    return numbers, {k: text_of(v) for k, v in values.items() if k not in numbers}


def text_of(value: object) -> str:
    """Return a value as text that can be stored."""
    return storable(str(value))


def verdict(
    metrics: Mapping[str, float],
    artifacts: Mapping[str, str],
    settings: FolderSettings,
    seconds: float = 0.0,
) -> Evaluation:
    """Return the evaluation that metrics and artifacts of a folder's evaluator amount to.

    The candidate failed if the evaluator says validity 0, or a score of 0 together with an error.
    """
    if COMBINED_SCORE in metrics:
        return _scored(metrics, artifacts, settings, seconds)
    if COMBINED_SCORE not in artifacts:
        known = ", ".join(sorted({*metrics, *artifacts})) or "nothing"
        text = f"evaluator.py returned no {COMBINED_SCORE}; expected a number (it returned {known})"
        return faulty(text, metrics, artifacts, seconds)
    text = f"{COMBINED_SCORE} is {artifacts[COMBINED_SCORE]!r}; expected a finite number"
    if artifacts[COMBINED_SCORE] in NOT_FINITE:
        return faulty(text, metrics, artifacts, seconds)
    return faulty(f"evaluator.py: {text}", metrics, artifacts, seconds)


def faulty(
    text: str, metrics: Mapping[str, float], artifacts: Mapping[str, str], seconds: float
) -> Evaluation:
    """Return the evaluation of a candidate on which the evaluator itself went wrong."""
    marked = {**artifacts, EVALUATOR_FAULT: text}
    return failed(text, metrics=metrics, artifacts=marked, seconds=seconds)


def _scored(
    metrics: Mapping[str, float],
    artifacts: Mapping[str, str],
    settings: FolderSettings,
    seconds: float,
) -> Evaluation:
    objective = metrics[COMBINED_SCORE]
    score = normalize(objective, settings.reference, settings.direction)
    error = artifacts.get(ERROR) if score <= 0 else None
    if metrics.get(VALIDITY, 1.0) <= 0:
        error = artifacts.get(ERROR) or f"the evaluator says {VALIDITY} {metrics[VALIDITY]:g}"
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
