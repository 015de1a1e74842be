"""What a run has found."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from costada.controller.contract import StopReason

RunEnd = StopReason | Literal["interrupted"]


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of a run.

    Attributes:
        best_program: Text of the incumbent.
        best_score: Its normalised score, higher is better.
        best_objective: Its objective in the benchmark's units; `None` while nothing was valid.
        best_metrics: What else the evaluator said of it.
        spent: Dollars charged (C_t); above the budget by what the last iteration overshot.
        remaining: Dollars left, never below 0.
        iterations: Finished iterations.
        stop_reason: Why the run ended: budget used up, iterations used up, too many attempts in a
            row without a usable program (failures), or interrupted.
        folder: Where the run's files are; `None` if it kept none.
        sandbox: What held the candidates; `None` if the problem's own evaluate saw to that.
        last_failure: What was wrong with the last attempt, where failures ended the run.
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
