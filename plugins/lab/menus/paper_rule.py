"""The paper's rule for frontiers, applied to models: what routers are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Self

from costada.controller.allocation import (
    Frontier,
    after_visit,
    allocation_reward,
    select_frontier,
    with_frontier,
)
from costada.controller.arms import ModelOption, Money
from costada.controller.constants import Constants
from costada.controller.credit import (
    cost_divisor,
    normalized_cost,
    normalized_gain,
    remaining_ratio,
)


@dataclass(frozen=True, slots=True)
class PaperRule:
    """One frontier's statistics for each model, and CostAda's choice among them (Sec. 4.2, 4.3).

    The reward of an attempt is its gain over the incumbent, divided by the cost divisor; a model
    is chosen by the moving average of its rewards plus the bonus for rare visits. The weight of
    cost in the divisor follows the dollars of the attempts, without those of guides.

    Attributes:
        names: Of the models, in the order of the menu.
        arms: Statistics of each model.
        constants: Of the method; the reference cost is that of the menu.
        budget: Dollars of the run (B).
        spent: Dollars of the attempts that have landed.
        incumbent_score: Best score so far, None before the first attempt.
    """

    names: tuple[str, ...]
    arms: tuple[Frontier, ...]
    constants: Constants
    budget: float
    spent: float = 0.0
    incumbent_score: float | None = None

    @classmethod
    def start(cls, names: Sequence[str], constants: Constants, budget: float) -> Self:
        """The rule before the first attempt."""
        return cls(tuple(names), (Frontier(0.0),) * len(names), constants, budget)

    def choose(
        self, options: Sequence[ModelOption], money: Money, attempt: int, rng: Random
    ) -> str:
        """The model with the largest UCB score, the first of the menu on a tie (k_t)."""
        launched = {option.name: option.launched for option in options}
        in_flight = [n for n, name in enumerate(self.names) for _ in range(launched[name])]
        ratio = remaining_ratio(money.budget, money.budget - money.left)
        return self.names[select_frontier(self.arms, ratio, self.constants, in_flight)]

    def tell(
        self,
        name: str,
        score: float | None,
        parent_score: float,
        dollars: float,
        *,
        has_reference: bool,
    ) -> Self:
        """The rule after an attempt has landed (g_t, d_t, r_t)."""
        best = parent_score if self.incumbent_score is None else self.incumbent_score
        spent = self.spent + dollars
        ratio = remaining_ratio(self.budget, spent)
        divisor = cost_divisor(normalized_cost(dollars, self.constants), ratio, self.constants)
        reward = allocation_reward(normalized_gain(score, best), divisor)
        index = self.names.index(name)
        arm = after_visit(self.arms[index], score, 0.0, reward, self.constants)
        return replace(
            self,
            arms=with_frontier(self.arms, index, arm),
            spent=spent,
            incumbent_score=best if score is None else max(best, score),
        )
