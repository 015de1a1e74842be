"""Best-of-N: independent changes of the initial program, the best of them kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self

from costada.controller.allocation import Action, Allocation
from costada.controller.baselines.incumbent_progress import Progress, checked_seed_score
from costada.controller.constants import Constants
from costada.controller.credit import Balance, Credit, normalized_gain
from costada.controller.method import PaidStep, ParentRule


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfN(Progress):
    """One frontier that stays the seed: no step knows of an earlier one."""

    parents: ClassVar[ParentRule] = ParentRule.SEED
    pending: ClassVar[None] = None

    @classmethod
    def start(cls, seed_score: float, constants: Constants) -> Self:
        """The controller before the first step.

        Raises:
            ValueError: The seed score is not finite.
        """
        return cls(incumbent_score=checked_seed_score(seed_score))

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        """The same for every step: the balanced action brings no words of its own."""
        return Allocation(0, Action.BALANCED, constants.min_intensity)

    def tell(
        self, allocation: Allocation, step: PaidStep, balance: Balance, constants: Constants
    ) -> tuple[Self, Credit]:
        """Note the score of a paid step; both gains are those over the incumbent."""
        gain = normalized_gain(step.score, self.incumbent_score)
        return self.with_score(step.score), Credit(gain, gain, 1.0, 0.0, 0.0)
