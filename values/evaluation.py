"""The evaluation of one candidate, and the objectives of a problem."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Self, SupportsFloat

from typing_extensions import TypedDict

from costada.values.example_score import ExampleScore

COMBINED_SCORE = "combined_score"
"""Metric: the score, or the number it is computed from."""

EVAL_TIME = "eval_time"
"""Metric: wall-clock seconds of the evaluation; never shown to a model."""

EVALUATOR_FAULT = "evaluator_fault"
"""Artifact: the evaluator itself failed, not only the candidate."""

EVALUATOR_OUTAGE = "evaluator_outage"
"""Artifact beside the fault: the provider of a model that the evaluator asks is unavailable; the
seconds that it asks to wait."""

ON_VALIDATION = "on_validation"
"""Artifact beside a fault: it happened on a validation example, which the error does not name."""

NOT_SCORED = "no_verdict"
"""Artifact: the evaluator returned no score."""

SANDBOX_FAULT = "sandbox_fault"
"""Artifact: the sandbox failed, so nothing is known about the candidate."""

REJECTED_AT = "rejected_at"
"""Artifact: last line of the traceback of a rejection, and its place in the evaluator."""

UNSCORED = "unscored"
"""Artifact: the evaluator reported failures alone, and no metric is chosen as the score."""

FEEDBACK = "feedback"
"""Artifact: the evaluator's comment on the program, for the model."""

LOG = "log"
"""Artifact: what program and evaluator printed."""

SCORED_BY = "scored_by"
"""Artifact: what the score is made of, where the evaluator does not say one."""

PRIVATE_METRICS = "private_metrics"
"""Artifact: metrics that no model may see, as JSON."""

SANDBOX, WORKER = "sandbox", "worker"
"""Artifacts of an evaluation on a worker: the layer that confined the program, and the worker."""

GENERATOR_LOG = "generator_log"
"""Artifact: what the command of a generator printed."""

FAULTS = (EVALUATOR_FAULT, NOT_SCORED, SANDBOX_FAULT)
"""Artifacts of an evaluation that says nothing of the candidate."""

MARKS = (*FAULTS, EVALUATOR_OUTAGE, ON_VALIDATION, REJECTED_AT, UNSCORED)
"""Artifacts that tell the search, not a model, what kind of failure the error is."""

UNSHOWN = (*MARKS, SCORED_BY, PRIVATE_METRICS, SANDBOX, WORKER, GENERATOR_LOG)
"""Artifacts that no model sees."""

NOT_STORABLE = "the program holds half of a surrogate pair, which no file can hold"
"""Error of a program that cannot be stored as it was evaluated."""


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
    """How good one candidate is (f_t, Sec. 3). A failed candidate is data, not an exception.

    Attributes:
        score: Normalised score (F), finite, higher is better; 0 for a failed candidate.
        objective: The value in the benchmark's own units; None when the candidate failed.
        is_valid: Whether the candidate ran and passed every check.
        metrics: Named numbers reported beside the score. A model sees all of them but `eval_time`
            and what the problem declares as `timing_metrics`.
        error: Why the candidate failed, in words a model can act on; None when it is valid.
        artifacts: Named texts beside the numbers: log, notes, flags.
        seconds: Wall-clock time of the candidate's process, or what the evaluator says.
        worker_seconds: How long the evaluation occupied its worker, all measurements together.
        measurements: Objective of each measurement, where the program was measured repeatedly.
        confirmation: Those of its second series, as it was better than the incumbent of its time.
        not_finite: Metrics that were not finite, and count as 0.
        examples: Scores on the examples of a data set that the candidate was judged on, in the
            order of judging. Where these are not all, `score` is an estimate.
        validation: Scores on the validation examples, in their order; empty if it was not judged
            on them.
    """

    score: float
    objective: float | None
    is_valid: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    worker_seconds: float = 0.0
    measurements: tuple[float, ...] = ()
    confirmation: tuple[float, ...] = ()
    not_finite: frozenset[str] = frozenset()
    examples: tuple[ExampleScore, ...] = ()
    validation: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Convert numbers and texts to plain ones and refuse contradictions.

        A metric that is not finite counts as 0; half of a surrogate pair becomes a question mark.

        Raises:
            InvalidEvaluation: If score or objective is not finite, or validity, error and score
                disagree.
        """
        metrics = {storable(str(name)): float(value) for name, value in self.metrics.items()}
        finite = {name: value if isfinite(value) else 0.0 for name, value in metrics.items()}
        texts = {storable(str(name)): storable(str(each)) for name, each in self.artifacts.items()}
        odd = {name for name, value in metrics.items() if not isfinite(value)}
        object.__setattr__(self, "not_finite", self.not_finite | odd)
        object.__setattr__(self, "metrics", finite)
        object.__setattr__(self, "artifacts", texts)
        if self.error is not None:
            object.__setattr__(self, "error", storable(str(self.error)))
        object.__setattr__(self, "score", _finite("score", self.score))
        if self.objective is not None:
            object.__setattr__(self, "objective", _finite("objective", self.objective))
        if self.is_valid and self.error is not None:
            raise InvalidEvaluation(f"error is {self.error!r}; expected None for a valid candidate")
        if not self.is_valid and not self.error:
            reason = "expected a reason for a failed candidate"
            raise InvalidEvaluation(f"error is {self.error!r}; {reason}")
        if not self.is_valid and self.score != 0:
            raise InvalidEvaluation(f"score is {self.score!r}; expected 0 for a failed candidate")


def failed(
    error: str,
    *,
    metrics: Mapping[str, float] | None = None,
    artifacts: Mapping[str, str] | None = None,
    seconds: float = 0.0,
) -> Evaluation:
    """Evaluation of a candidate that failed for the given reason: score 0."""
    return Evaluation(
        score=0.0,
        objective=None,
        is_valid=False,
        metrics=metrics or {},
        error=error,
        artifacts=artifacts or {},
        seconds=seconds,
    )


def failed_evaluator(fault: str, outage: float | None) -> Evaluation:
    """Evaluation of an evaluator that failed itself.

    Args:
        fault: What went wrong.
        outage: Seconds that the provider of its model asks to wait, if that is why.
    """
    marks = {EVALUATOR_FAULT: fault}
    if outage is not None:
        marks[EVALUATOR_OUTAGE] = f"{outage:g}"
    return failed(fault, artifacts=marks)


def storable(text: str) -> str:
    """Replace what no file, database or request takes (half a surrogate pair) by question marks."""
    return text.encode("utf-8", "replace").decode()


def is_storable(text: str) -> bool:
    """Whether a text can be encoded: it holds no half of a surrogate pair."""
    return storable(text) == text


def _finite(name: str, value: SupportsFloat) -> float:
    number = float(value)
    if not isfinite(number):
        raise InvalidEvaluation(f"{name} is {value!r}; expected a finite number")
    return number


WAYS = ("max", "min")


@dataclass(frozen=True, slots=True)
class Objective:
    """One of the objectives of a problem, written as `name:max` or `name:min`.

    Attributes:
        metric: Name of the metric that the evaluator reports.
        way: `max` if higher values are better, `min` if lower ones are.
    """

    metric: str
    way: str

    @classmethod
    def read(cls, text: object) -> Self:
        """Parse an objective such as `speed:max`.

        Raises:
            ValueError: It is not a string of that form.
        """
        metric, _, way = str(text).rpartition(":")
        if not isinstance(text, str) or not metric.strip() or way not in WAYS:
            raise ValueError(f"{text!r}; expected a string such as 'speed:max' or 'memory:min'")
        return cls(metric.strip(), way)

    @property
    def name(self) -> str:
        """The objective as it is written."""
        return f"{self.metric}:{self.way}"

    def gain(self, value: float) -> float:
        """A value of the metric with the sign that makes more better."""
        return value if self.way == "max" else -value


class FrontMember(TypedDict):
    """A candidate on the Pareto front: its id, its score and its objectives, as `speed:max`."""

    candidate_id: str
    score: float
    objectives: dict[str, float | None]


def read_objectives(texts: Iterable[object]) -> tuple[Objective, ...]:
    """The objectives of a problem; raises as `Objective.read` does."""
    return tuple(map(Objective.read, texts))


def objective_values(
    objectives: Iterable[Objective], metrics: Mapping[str, float]
) -> dict[str, float | None]:
    """The value of each objective by its name, `None` where the metric is absent."""
    return {each.name: metrics.get(each.metric) for each in objectives}
