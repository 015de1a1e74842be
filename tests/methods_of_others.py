"""Methods as other packages define them: one from scratch, and one that inherits."""

FROM_SCRATCH = """
from collections.abc import Sequence
from random import Random
from typing import ClassVar, Self

from pydantic.dataclasses import dataclass

from costada.controller.allocation import Allocation
from costada.controller.constants import Constants
from costada.controller.credit import NO_CREDIT, Credit
from costada.controller.allocation import Action
from costada.controller.guidance import Intervention
from costada.controller.method import Evidence, PaidStep, ParentRule
from costada.controller.methods import METHODS, Method
from costada.controller.credit import Balance
from costada.values.numbering import START, Iteration, next_iteration
from dataclasses import replace


@dataclass(frozen=True)
class Restarts:
    iteration: Iteration
    incumbent_score: float
    parents: ClassVar[ParentRule] = ParentRule.SEED
    pending: ClassVar[None] = None

    @classmethod
    def start(cls, seed_score: float, constants: Constants) -> Self:
        return cls(START, seed_score)

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        return Allocation(0, Action.BALANCED, balance.ratio)

    def tell(
        self, allocation: Allocation, step: PaidStep, balance: Balance, constants: Constants
    ) -> tuple[Self, Credit]:
        best = max(self.incumbent_score, step.score or 0.0)
        return replace(self, incumbent_score=best), NO_CREDIT

    def decide(
        self,
        allocation: Allocation,
        balance: Balance,
        constants: Constants,
        *,
        is_last: bool = False,
    ) -> tuple[Self, Intervention]:
        ended = replace(self, iteration=next_iteration(self.iteration))
        return ended, Intervention(None, False, False)

    def record(self) -> Evidence:
        return Evidence()


METHODS["restarts"] = Method("restarts", Restarts, "the seed, again and again", {})
"""
INHERITED = """
from collections.abc import Sequence
from random import Random

from costada.controller.allocation import Allocation
from costada.controller.baselines.uniform import Uniform
from costada.controller.constants import Constants
from costada.controller.allocation import Action
from costada.controller.methods import METHODS, Method
from costada.controller.credit import Balance


class BestFirst(Uniform):
    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        best = self.best_scores.index(max(self.best_scores))
        return Allocation(best, Action.EXPLOITATION, constants.min_intensity)


METHODS["best-first"] = Method("best-first", BestFirst, "the best frontier, always", {})
"""
METHODS_OF_OTHERS = {"restarts": FROM_SCRATCH, "best-first": INHERITED}
