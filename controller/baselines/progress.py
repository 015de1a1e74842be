"""How far a run has come, counted in steps and scores alone."""

from dataclasses import dataclass
from math import isfinite

from costada.controller.frontier import higher_score


@dataclass(frozen=True, slots=True)
class Progress:
    """What a method needs that does not look at money.

    Attributes:
        iteration: Iterations completed (t).
        incumbent_score: Best score of the run (y_t).
        stagnation: Steps since the incumbent last rose.
    """

    iteration: int
    incumbent_score: float
    stagnation: int = 0


def begin(seed_score: float) -> Progress:
    """Return the progress before the first step.

    Raises:
        ValueError: The seed score is not finite.
    """
    if not isfinite(seed_score):
        raise ValueError(f"seed_score: got {seed_score}, expected a finite number")
    return Progress(iteration=0, incumbent_score=float(seed_score))


def is_new_incumbent(progress: Progress, score: float | None) -> bool:
    """Return whether a score is above all earlier ones; None is no score."""
    return score is not None and score > progress.incumbent_score


def scored(progress: Progress, score: float | None) -> Progress:
    """Return the progress once a step is paid; the iteration counts when the step ends.

    Raises:
        ValueError: The score is neither finite nor None.
    """
    if score is not None and not isfinite(score):
        raise ValueError(f"score: got {score}, expected a finite number or None")
    return Progress(
        iteration=progress.iteration,
        incumbent_score=higher_score(progress.incumbent_score, score),
        stagnation=0 if is_new_incumbent(progress, score) else progress.stagnation + 1,
    )


def completed(progress: Progress) -> Progress:
    """Return the progress at the end of a step."""
    return Progress(progress.iteration + 1, progress.incumbent_score, progress.stagnation)
