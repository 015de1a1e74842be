"""CostAda whose frontiers are chosen by the rule for models: by gain per dollar."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Self

from costada.controller.allocation import Allocation
from costada.controller.arms import ModelOption, Money
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance, Credit, remaining
from costada.controller.method import PaidStep
from costada.controller.router import Router, start_router
from costada.controller.router_rules import DEFAULT_ROUTER

NO_RECORDS = Router(DEFAULT_ROUTER, ())


@dataclass(frozen=True, slots=True)
class CostAdaThompson(CostAda):
    """CostAda with budgeted Thompson sampling for the next frontier; the rest is CostAda's.

    A step that raises the incumbent has credit 1, every other step 0. What a step on a frontier
    is expected to cost is the reference cost, averaged with what its steps have cost.

    Attributes:
        router: What the steps of each frontier earned and cost; frontiers are named from "1".
    """

    router: Router = NO_RECORDS

    @classmethod
    def start(cls, seed_score: float, constants: Constants) -> Self:
        """The controller before the first step.

        Raises:
            ValueError: The seed score is not finite.
        """
        started = super(CostAdaThompson, cls).start(seed_score, constants)
        names = [_name(index) for index in range(constants.num_frontiers)]
        return replace(started, router=start_router(DEFAULT_ROUTER, names))

    def next_frontier(
        self, balance: Balance, rng: Random, constants: Constants, in_flight: Sequence[int]
    ) -> int:
        """The index of the frontier with the highest drawn credit per dollar.

        Steps in flight count as first tries, and their reference cost as spent.
        """
        expected = constants.reference_cost
        names = [record.name for record in self.router.records]
        launched = [in_flight.count(index) for index in range(len(names))]
        left = remaining(balance.budget, balance.spent) - expected * sum(launched)
        options = [
            ModelOption(name, expected, count) for name, count in zip(names, launched, strict=True)
        ]
        chosen = self.router.choose(options, Money(balance.budget, left), 1, rng)
        return next(index for index, name in enumerate(names) if name == chosen)

    def tell(
        self, allocation: Allocation, step: PaidStep, balance: Balance, constants: Constants
    ) -> tuple[Self, Credit]:
        """Credit a paid step as CostAda does, and its frontier where the incumbent rose.

        Raises:
            ValueError: The ledger shows less than the step cost, or a guided step lands while none
                is in flight.
        """
        after, earned = super(CostAdaThompson, self).tell(allocation, step, balance, constants)
        credit = 1.0 if after.incumbent_score > self.incumbent_score else 0.0
        router = self.router.with_credit(_name(allocation.frontier), credit, step.cost)
        return replace(after, router=router), earned


def _name(index: int) -> str:
    return str(index + 1)
