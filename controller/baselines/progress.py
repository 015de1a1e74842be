"""What methods have in common that never buy a guide."""

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Self

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


class CostBlind:
    """A method for which the budget changes nothing but when the run ends."""

    __slots__ = ()

    def with_budget(self, budget: float) -> Self:
        """Return the controller itself: it does not know its budget."""
        return self


class Unguided(CostBlind):
    """A method that plans no call and follows no tactic.

    A run never asks it for one; who does is told so.
    """

    __slots__ = ()

    pending: ClassVar[str | None] = None
    cycle: ClassVar[None] = None

    def open_cycle(self, num_tactics: int) -> Self:
        """Refuse: no guide was pending.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"num_tactics: got {num_tactics}, expected no guide to be called")

    def fail_guide(self) -> Self:
        """Refuse: no guide was pending.

        Raises:
            ValueError: Always.
        """
        raise ValueError("pending: got None, expected a scheduled guide")

    def use_tactic(self) -> tuple[Self, int]:
        """Refuse: there is no tactic.

        Raises:
            ValueError: Always.
        """
        raise ValueError("cycle: no tactic has a use left, expected an active cycle")
