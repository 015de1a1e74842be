"""A game: frontiers with a price and a chance of a gain, a budget, and what a policy makes of it.

A step on a frontier costs its price and raises the best score by one gain, always the same, with
the frontier's chance. A step counts when the budget paid for it in full, so the step that crosses
the budget does not. OPT takes all steps on the frontier with the highest chance per price.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from random import Random
from statistics import fmean, stdev

from costada.controller.constants import Constants

TOTAL_GAIN = 0.8
"""What B/c gains raise a score by; scores stay below 1, so a normalised gain is a difference."""


@dataclass(frozen=True, slots=True)
class Game:
    """Frontiers and a budget.

    Attributes:
        prices: Cost of a step on each frontier, in steps on the cheapest (1 or kappa).
        chances: Chance that a step on each frontier raises the best score; all 1 for equal gains.
        num_steps: Steps on the cheapest frontier that the budget pays for (B/c).
        draw: Start of the randomness of steps and policies.
    """

    prices: tuple[int, ...]
    chances: tuple[float, ...]
    num_steps: int
    draw: int = 0

    @property
    def gain(self) -> float:
        """By how much a step raises the best score if it does (g)."""
        return TOTAL_GAIN / self.num_steps

    @property
    def best(self) -> float:
        """Gains that OPT expects."""
        pairs = zip(self.chances, self.prices, strict=True)
        return self.num_steps * max(chance / price for chance, price in pairs)

    @property
    def constants(self) -> Constants:
        """The constants of a run; a step on the cheapest frontier costs the reference cost (c)."""
        return Constants(num_frontiers=len(self.prices), max_iterations=self.num_steps + 1)

    def luck(self) -> Callable[[int], bool]:
        """Whether the next step on a frontier gains, the same for every policy."""
        drawn = [Random(f"{self.draw}/{index}") for index in range(len(self.prices))]
        return lambda frontier: drawn[frontier].random() < self.chances[frontier]


@dataclass(frozen=True, slots=True)
class Course:
    """What a policy did with one budget."""

    choices: tuple[int, ...]  # frontiers of the steps that were paid for in full
    num_guides: int = 0  # guides that were due; each was answered with nothing, at no cost


Spend = Callable[[Game], Sequence[Course]]
"""Takes a game; returns one course, or several random ones."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to choose frontiers."""

    name: str  # what the tables call it
    is_cost_blind: bool  # whether it may not know what a step costs or what is left
    is_method: bool  # whether runs can use it; the others are there for comparison
    spend: Spend


@dataclass(frozen=True, slots=True)
class Share:
    """What part of OPT a policy obtains in several games, in [0, 1].

    A course counts with the gains that its steps had to expect, so that luck plays no part in it.
    """

    mean: float
    worst: float
    deviation: float  # standard deviation over the games
    num_games: int
    num_guides: int

    @property
    def error(self) -> float:
        """Standard error of the mean, where the games are a sample."""
        return self.deviation / sqrt(self.num_games)


def share_of_opt(policy: Policy, games: Iterable[Game]) -> Share:
    """The policy's part of OPT over games; courses of one game are averaged."""
    parts, num_guides = [], 0
    for game in games:
        courses = policy.spend(game)
        gains = [sum(game.chances[index] for index in course.choices) for course in courses]
        parts.append(fmean(gains) / game.best)
        num_guides += sum(course.num_guides for course in courses)
    deviation = stdev(parts) if len(parts) > 1 else 0.0
    return Share(fmean(parts), min(parts), deviation, len(parts), num_guides)
