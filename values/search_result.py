"""The result of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from costada.values.evaluation import FrontMember

RunEnd = Literal["target", "budget", "iterations", "failures", "flat", "interrupted"]


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of a run.

    Attributes:
        best_program: Text of the incumbent; of several files each text below a line with its path.
            With validation examples, that of the incumbent that was best on them.
        best_score: Its normalised score, higher is better.
        best_objective: Its objective in the benchmark's units; `None` while nothing was valid.
        best_metrics: Further numbers that the evaluator reported for it.
        spent: Dollars charged (C_t); above the budget by what the last iteration overshot.
        remaining: Dollars left, never below 0.
        iterations: Finished iterations.
        stop_reason: Why the run ended: the target is reached, the budget or the iterations are used
            up, another gain is too unlikely (flat), too many consecutive attempts without a usable
            program (failures), or interrupted.
        folder: The run folder; `None` if the run kept no files.
        sandbox: The sandbox of the candidates; `None` if the problem's own evaluate handles that.
        last_failure: The error of the last attempt, where failures ended the run.
        in_doubt: The part of `spent` that stands for calls whose bill is unknown, at their upper
            bound.
        pareto_front: The candidates that no other one beats in all objectives, each with
            `candidate_id`, `score` and `objectives`; empty with one objective.
        best_files: Text of each file of the incumbent by path; empty if it is one text.
        validation_score: Mean score of the best program on the validation examples; `None` without
            such.
    """

    best_program: str
    best_score: float
    best_objective: float | None
    best_metrics: Mapping[str, float]
    spent: float
    remaining: float
    iterations: int
    stop_reason: RunEnd
    folder: Path | None
    sandbox: str | None
    last_failure: str = ""
    best_files: Mapping[str, str] = field(default_factory=dict)
    in_doubt: float = 0.0
    pareto_front: Sequence[FrontMember] = ()
    validation_score: float | None = None
