"""Simulates the paper's proposition with the allocation code that runs use.

K frontiers gain the same in every step. One of them costs c a step, the others kappa c, and the
budget B pays for B/c cheap steps. OPT takes them all on the cheap frontier.

A method that does not look at cost makes the same choices wherever the cheap frontier is. Of its
first B/c choices a share of 1/K is cheap on average over the K places, and B pays for at most
B / (kappa c) expensive steps: on average it obtains at most 1/K + 1/kappa of OPT.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from costada.plugins.lab.theory.games import Game, Share, share_of_opt
from costada.plugins.lab.theory.policies import DIAGNOSES, OF_METHODS, RULES

POLICIES = (*RULES, *OF_METHODS, *DIAGNOSES)


@dataclass(frozen=True, slots=True)
class Instance:
    """One case of the proposition."""

    num_frontiers: int  # frontiers (K)
    cost_ratio: int  # cost of all but one of them, as a multiple of the cheap one (kappa)
    num_steps: int  # steps that the budget buys on the cheap one (B/c)

    @property
    def bound(self) -> float:
        """The share of OPT that no cost-blind choice exceeds (1/K + 1/kappa)."""
        return 1 / self.num_frontiers + 1 / self.cost_ratio

    def prices(self, cheap: int) -> tuple[int, ...]:
        """What a step on each frontier costs, in cheap steps."""
        return tuple(
            1 if index == cheap else self.cost_ratio for index in range(self.num_frontiers)
        )

    def game(self, cheap: int) -> Game:
        """Equal gains in every step, and the place of the cheap frontier."""
        return Game(self.prices(cheap), (1.0,) * self.num_frontiers, self.num_steps)

    @property
    def games(self) -> tuple[Game, ...]:
        """Every place of the cheap frontier once."""
        return tuple(map(self.game, range(self.num_frontiers)))


@dataclass(frozen=True, slots=True)
class Finding:
    """All policies on one instance; shares are over all places of the cheap frontier."""

    instance: Instance
    shares: dict[str, Share]


def findings(
    frontiers: Sequence[int], cost_ratios: Sequence[int], num_steps: Sequence[int]
) -> list[Finding]:
    """All policies on every instance of a grid."""
    grid = [Instance(*values) for values in product(frontiers, cost_ratios, num_steps)]
    return [
        Finding(
            instance, {policy.name: share_of_opt(policy, instance.games) for policy in POLICIES}
        )
        for instance in grid
    ]
