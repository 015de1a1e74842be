"""What the search knows about a problem, and what it learns from one evaluation."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import SupportsFloat

EVALUATOR_FAULT = "evaluator_fault"
"""Artifact telling that the evaluator itself, not only the candidate, went wrong."""

NO_VERDICT = "no_verdict"
"""Artifact telling that the evaluator came to no score at all."""


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
        metrics: Named numbers reported beside the score.
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
        """Make all numbers plain and refuse contradictions, so that every reader can rely on both.

        A metric that is not finite counts as 0.

        Raises:
            ValueError: If score or objective is not finite, or validity, error and score disagree.
        """
        plain = {name: _finite_or_zero(value) for name, value in self.metrics.items()}
        object.__setattr__(self, "metrics", plain)
        object.__setattr__(self, "score", _finite("score", self.score))
        if self.objective is not None:
            object.__setattr__(self, "objective", _finite("objective", self.objective))
        if self.is_valid and self.error is not None:
            raise ValueError(f"error is {self.error!r}; expected None for a valid candidate")
        if not self.is_valid and not self.error:
            raise ValueError(f"error is {self.error!r}; expected a reason for a failed candidate")
        if not self.is_valid and self.score != 0:
            raise ValueError(f"score is {self.score!r}; expected 0 for a failed candidate")


def _finite(name: str, value: SupportsFloat) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{name} is {value!r}; expected a finite number")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A task, the program to start from, and the evaluator (F, Sec. 3) that judges candidates.

    Attributes:
        name: Short name, used in reports and file names.
        task: The problem in words, as shown to the model.
        initial_program: Source text of the seed program.
        evaluate: The evaluator: source text in, verdict out. Deterministic, never a model.
        entry_point: Function every candidate must define; None if the evaluator does not say.
        direction: Which way the objective improves.
        reference: Objective that counts as score 1; None if the objective is the score.
        timeout: Wall-clock limit of one evaluation, in seconds.
        evaluator_source: The evaluator's text, shown to the guide; read from evaluate if empty.
        human: Best objective known from people, for reports only.
    """

    name: str
    task: str
    initial_program: str
    evaluate: Callable[[str], Evaluation]
    entry_point: str | None = None
    direction: Direction = Direction.MAXIMIZE
    reference: float | None = None
    timeout: float = 360.0
    evaluator_source: str = ""
    human: float | None = None

    def __post_init__(self) -> None:
        """Check every field and complete evaluator_source.

        Raises:
            ValueError: Naming the field, its value and what was expected.
        """
        for name in ("name", "task", "initial_program"):
            _check_text(name, getattr(self, name))
        if not callable(self.evaluate):
            raise ValueError(f"evaluate is {self.evaluate!r}; expected a function of the source")
        if self.entry_point is not None and not _is_identifier(self.entry_point):
            raise ValueError(f"entry_point is {self.entry_point!r}; expected a function name")
        if self.direction not in list(Direction):
            raise ValueError(f"direction is {self.direction!r}; expected 'maximize' or 'minimize'")
        _check_number("timeout", self.timeout, must_be_positive=True)
        if self.reference is not None:
            _check_number("reference", self.reference, must_be_positive=True)
        if self.human is not None:
            _check_number("human", self.human, must_be_positive=False)
        object.__setattr__(self, "direction", Direction(self.direction))
        object.__setattr__(self, "evaluator_source", self.evaluator_source or _source(self))


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} is {value!r}; expected a non-empty text")


def _is_identifier(value: object) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _check_number(name: str, value: float, *, must_be_positive: bool) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or (must_be_positive and value <= 0):
        kind = "a positive" if must_be_positive else "a finite"
        raise ValueError(f"{name} is {value!r}; expected {kind} number")


def _source(problem: Problem) -> str:
    try:
        return inspect.getsource(problem.evaluate)
    except (OSError, TypeError):
        return ""
