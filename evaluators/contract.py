"""What the search learns from one evaluation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import SupportsFloat

EVALUATOR_FAULT = "evaluator_fault"
"""Artifact telling that the evaluator itself, not only the candidate, went wrong."""

NO_VERDICT = "no_verdict"
"""Artifact telling that the evaluator came to no score at all."""

SANDBOX_FAULT = "sandbox_fault"
"""Artifact telling that the sandbox broke down, so that nothing is known about the candidate."""

COMBINED_SCORE = "combined_score"
"""Metric that is the score, or what the score is made from."""

EVAL_TIME = "eval_time"
"""Metric telling the wall-clock time of an evaluation, in seconds; never shown to a model."""

NOT_STORABLE = "the program holds half of a surrogate pair, which no file can hold"
"""Why a program is not valid that could not be stored as it was judged."""

REJECTED_AT = "rejected_at"
"""Artifact with the last line of the traceback of a rejection, and its place in the evaluator."""

FAULTS = (EVALUATOR_FAULT, NO_VERDICT, SANDBOX_FAULT)
"""Artifacts of an evaluation that came to no verdict on the candidate."""

MARKS = (*FAULTS, REJECTED_AT)
"""Artifacts that say for the search, not for a model, what kind of failure the error is."""


class InvalidEvaluation(ValueError):
    """An evaluation with a number that is not finite, or that contradicts itself.

    A mistake of the evaluator, where a plain `ValueError` of a score function is a rejection.
    """


class Direction(StrEnum):
    """Which way a benchmark's objective improves; a score always improves upwards."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The verdict on one candidate (f_t, Sec. 3). A failed candidate is data, not an exception.

    Attributes:
        score: Normalised score (F), finite, higher is better; 0 for a failed candidate.
        objective: The value in the benchmark's own units; None when the candidate failed.
        is_valid: Whether the candidate ran and passed every check.
        metrics: Named numbers reported beside the score. A model sees all of them but `eval_time`
            and what the problem declares as `timing_metrics`.
        error: Why the candidate failed, in words a model can act on; None when it is valid.
        artifacts: Named texts beside the numbers: log, notes, flags.
        seconds: Wall-clock time of the evaluation.
    """

    score: float
    objective: float | None
    is_valid: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Make numbers and texts plain and refuse contradictions, so that readers can rely on them.

        A metric that is not finite counts as 0; half of a surrogate pair becomes a question mark.

        Raises:
            InvalidEvaluation: If score or objective is not finite, or validity, error and score
                disagree.
        """
        plain = {storable(str(k)): _finite_or_zero(value) for k, value in self.metrics.items()}
        object.__setattr__(self, "metrics", plain)
        texts = {storable(str(name)): storable(str(each)) for name, each in self.artifacts.items()}
        object.__setattr__(self, "artifacts", texts)
        if self.error is not None:
            object.__setattr__(self, "error", storable(str(self.error)))
        object.__setattr__(self, "score", _finite("score", self.score))
        if self.objective is not None:
            object.__setattr__(self, "objective", _finite("objective", self.objective))
        if self.is_valid and self.error is not None:
            raise InvalidEvaluation(f"error is {self.error!r}; expected None for a valid candidate")
        if not self.is_valid and not self.error:
            raise InvalidEvaluation(
                f"error is {self.error!r}; expected a reason for a failed candidate"
            )
        if not self.is_valid and self.score != 0:
            raise InvalidEvaluation(f"score is {self.score!r}; expected 0 for a failed candidate")


def storable(text: str) -> str:
    """Return a text with question marks for what no file, database or request takes."""
    return text.encode("utf-8", "replace").decode()


def is_storable(text: str) -> bool:
    """Return whether a text can be encoded: no half of a surrogate pair is in it."""
    return storable(text) == text


def _finite(name: str, value: SupportsFloat) -> float:
    number = float(value)
    if not isfinite(number):
        raise InvalidEvaluation(f"{name} is {value!r}; expected a finite number")
    return number


def _finite_or_zero(value: SupportsFloat) -> float:
    number = float(value)
    return number if isfinite(number) else 0.0


def failed(
    error: str,
    *,
    metrics: Mapping[str, float] | None = None,
    artifacts: Mapping[str, str] | None = None,
    seconds: float = 0.0,
) -> Evaluation:
    """Return the evaluation of a candidate that failed for the reason given: score 0."""
    return Evaluation(
        score=0.0,
        objective=None,
        is_valid=False,
        metrics=metrics or {},
        error=error,
        artifacts=artifacts or {},
        seconds=seconds,
    )


Evaluator = Callable[[str], Evaluation]
"""Source text in, verdict out (F, Sec. 3). Deterministic, never a model."""
