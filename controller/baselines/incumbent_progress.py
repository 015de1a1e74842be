"""What the methods share that are blind to cost."""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Self

from costada.controller.allocation import Allocation, higher_score
from costada.controller.constants import Constants
from costada.controller.credit import Balance
from costada.controller.guidance import Intervention
from costada.controller.method import Evidence
from costada.values.numbering import START, Iteration, next_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Steps and scores of a method that does not look at money.

    Attributes:
        iteration: Iterations completed (t).
        incumbent_score: Best score of the run (y_t).
        stagnation: Steps since the incumbent last rose.
    """

    iteration: Iteration = START
    incumbent_score: float
    stagnation: int = 0

    def is_new_incumbent(self, score: float | None) -> bool:
        """Whether a score is above all earlier ones; None is not a score."""
        return score is not None and score > self.incumbent_score

    def with_score(self, score: float | None) -> Self:
        """The method once a step is paid; the iteration counts when the step ends."""
        return replace(
            self,
            incumbent_score=higher_score(self.incumbent_score, score),
            stagnation=0 if self.is_new_incumbent(score) else self.stagnation + 1,
        )

    def end_iteration(self) -> Self:
        """The method at the end of a step."""
        return replace(self, iteration=next_iteration(self.iteration))

    def decide(
        self,
        allocation: Allocation,
        balance: Balance,
        constants: Constants,
        *,
        is_last: bool = False,
    ) -> tuple[Self, Intervention]:
        """End a step, without a guide."""
        return self.end_iteration(), Intervention(None, False, False)

    def record(self) -> Evidence:
        """The steps since the incumbent last rose; nothing acts on them."""
        return Evidence(stagnation=self.stagnation)


def checked_seed_score(seed_score: float) -> float:
    """The score of the initial program.

    Raises:
        ValueError: It is not finite.
    """
    if not isfinite(seed_score):
        raise ValueError(f"seed_score: got {seed_score}, expected a finite number")
    return float(seed_score)
