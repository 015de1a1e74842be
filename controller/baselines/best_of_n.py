"""Best-of-N: independent changes of the initial program, the best of them kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self

from costada.controller.allocation import Allocation
from costada.controller.baselines.incumbent_progress import Progress, checked_seed_score
from costada.controller.constants import Constants
from costada.controller.credit import Credit, normalized_gain
from costada.controller.intensity import Action
from costada.controller.intervention import Intervention
from costada.controller.method import PaidStep, ParentRule
from costada.controller.money import Balance


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
        return self.scored(step.score), Credit(gain, gain, 1.0, 0.0, 0.0)

    def decide(
        self,
        allocation: Allocation,
        balance: Balance,
        constants: Constants,
        *,
        is_last: bool = False,
    ) -> tuple[Self, Intervention]:
        """End a step, without a guide."""
        return self.completed(), Intervention(None, opened_consolidation=False, backed_off=False)
