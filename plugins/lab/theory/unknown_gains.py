"""The proposition where gains are unknown: each frontier gains with a chance that must be learned.

K frontiers, one of which costs c a step and the others kappa c, as in the proposition. The chances
are drawn for every game. OPT knows them, and takes all steps on the frontier with the highest
chance per cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from random import Random

from costada.plugins.lab.processes import in_processes
from costada.plugins.lab.theory.games import Game, Share, share_of_opt
from costada.plugins.lab.theory.policies import OF_METHODS, ONLY_CHEAPEST, RULES
from costada.plugins.lab.theory.proposition import Instance

NUM_DRAWS = 40
"""Games of each case; the cheap frontier takes every place in turn."""

FRONTIERS, COST_RATIO = 4, 10

RARE_CHANCE = 0.1
"""Largest chance of a step where gains are rare."""

PAYING_SHARE = 0.5
"""Mean chance per cost of the cheap frontier relative to the others where expensive steps pay."""

LEARNERS = (*RULES, ONLY_CHEAPEST, *OF_METHODS)
"""The policies that are compared."""


@dataclass(frozen=True, slots=True)
class Gains:
    """How chances of a gain are drawn.

    Attributes:
        name: What the tables call it.
        summary: What it means, in a line.
        scale: Largest chance of a frontier by its price and kappa; chances are drawn evenly below.
    """

    name: str
    summary: str
    scale: Callable[[int, int], float]


EVEN = "even"
GAINS = (
    Gains(EVEN, "chances drawn evenly from 0 to 1", lambda price, ratio: 1.0),
    Gains("rare", "chances drawn evenly from 0 to 0.1", lambda price, ratio: RARE_CHANCE),
    Gains(
        "rising",
        "chances rise with the square root of the price, cheap steps mostly gain more per dollar",
        lambda price, ratio: sqrt(price / ratio),
    ),
    Gains(
        "steep",
        "chances rise faster than the price, expensive steps mostly gain more per dollar",
        lambda price, ratio: 1.0 if price > 1 else PAYING_SHARE / ratio,
    ),
)


@dataclass(frozen=True, slots=True)
class Learned:
    """All policies on games with unknown gains; shares are over the draws."""

    gains: str
    instance: Instance
    shares: dict[str, Share]


def drawn_games(gains: Gains, instance: Instance) -> tuple[Game, ...]:
    """The games of a case, with chances drawn for each."""
    games = []
    for draw in range(NUM_DRAWS):
        rng, prices = Random(f"{gains.name}/{draw}"), instance.prices(draw % instance.num_frontiers)
        scales = (gains.scale(price, instance.cost_ratio) for price in prices)
        chances = tuple(rng.random() * scale for scale in scales)
        games.append(Game(prices, chances, instance.num_steps, draw))
    return tuple(games)


def learn_gains(num_steps: Sequence[int], num_jobs: int = 1) -> list[Learned]:
    """All policies with every kind of gains and every budget, in cheap steps.

    With one job, this process does the work.
    """
    cases = [
        (gains.name, Instance(FRONTIERS, COST_RATIO, count))
        for gains in GAINS
        for count in num_steps
    ]
    with in_processes(_learn, cases, num_jobs, runs_per_task=1) as found:
        by_case = {(each.gains, each.instance): each for each in found}
    return [by_case[case] for case in cases]


def _learn(case: tuple[str, Instance]) -> Learned:
    name, instance = case
    games = drawn_games(next(gains for gains in GAINS if gains.name == name), instance)
    shares = {policy.name: share_of_opt(policy, games) for policy in LEARNERS}
    return Learned(name, instance, shares)
