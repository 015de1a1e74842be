"""The models of a menu as arms of a bandit: what each earned and cost, and how it is offered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from random import Random

from costada.controller.allocation import moving_average

PRIOR_GAIN, PRIOR_FAILURE = 0.5, 1.5
"""Credit and missed credit that the posterior of every model begins with."""

WEIGHT, CAUTIOUS_WEIGHT = 4.0, 1.0
"""How often each try counts in the posterior (w); a lower weight explores longer."""

FULL_SHARE, MIN_GAP = 0.5, 0.01
"""Share of the distance to a score of 1 that earns full credit, and the least distance."""

FULL_SCALES = 3.0
"""Gains in units of the usual gain that earn full credit where scores have no reference."""

SCALE_SMOOTHING = 0.9
"""Share of the usual gain that is kept when another one is averaged in."""


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """What one model's attempts earned and cost.

    Attributes:
        name: Name of the model in the menu.
        credit: Sum of the credit of its attempts, each in [0, 1] (S_m).
        tries: Attempts that have landed (n_m).
        dollars: What they cost (D_m).
        is_disabled: Whether it gets no further requests of the run.
        fruitless: Its latest attempts in a row that earned nothing.
    """

    name: str
    credit: float = 0.0
    tries: int = 0
    dollars: float = 0.0
    is_disabled: bool = False
    fruitless: int = 0


@dataclass(frozen=True, slots=True)
class ModelOption:
    """A model as the next attempt could have it.

    Attributes:
        name: Name of the model in the menu.
        expected: Dollars that an attempt is expected to cost by its list price (e_m), at least 0.
        launched: Attempts of it in flight.
        is_payable: Whether what is left can pay for any answer of it; always so unless the budget
            is hard.
    """

    name: str
    expected: float
    launched: int = 0
    is_payable: bool = True


@dataclass(frozen=True, slots=True)
class Money:
    """The budget of a run, and what of it is neither spent nor expected in flight; dollars."""

    budget: float
    left: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """Beta distribution of the credit of a model's next attempt."""

    gain: float
    failure: float

    @property
    def mean(self) -> float:
        """Expected credit of the next attempt."""
        return self.gain / (self.gain + self.failure)

    @property
    def deviation(self) -> float:
        """Standard deviation of that credit."""
        total = self.gain + self.failure
        return sqrt(self.gain * self.failure / (total + 1.0)) / total


def posterior(record: ModelRecord, weight: float = WEIGHT) -> Posterior:
    """What the attempts of a model say about its next one (theta_m)."""
    missed = record.tries - record.credit
    return Posterior(weight * (PRIOR_GAIN + record.credit), weight * (PRIOR_FAILURE + missed))


def attempt_price(record: ModelRecord, option: ModelOption) -> float:
    """Dollars of a model's next attempt by list price and experience (c_m)."""
    return (option.expected + record.dollars) / (1 + record.tries)


def normalized_gain_to_reference(score: float | None, parent_score: float) -> float:
    """Credit of an attempt where a score of 1 is the reference, in [0, 1] (x)."""
    gain = gain_over_parent(score, parent_score)
    return min(1.0, gain / (FULL_SHARE * max(MIN_GAP, 1.0 - parent_score)))


def gain_over_parent(score: float | None, parent_score: float) -> float:
    """By how much an attempt improves on its parent, 0 for a failure (h)."""
    return 0.0 if score is None else max(0.0, score - parent_score)


def scaled_gain(gain: float, scale: float) -> float:
    """Credit of an attempt where scores have no reference, in [0, 1] (x)."""
    return min(1.0, gain / (FULL_SCALES * scale)) if scale else 0.0


def next_scale(scale: float, gain: float) -> float:
    """The usual gain of an attempt, 0 before the first gain (s)."""
    return moving_average(scale, gain, SCALE_SMOOTHING) if scale else gain


def dollar_sum(first: float, second: float) -> float:
    """Two amounts of dollars as they are written, so that sums agree with a bill's last digit."""
    return float(Decimal(repr(first)) + Decimal(repr(second)))


@dataclass(frozen=True, slots=True)
class Arm:
    """A model that may be chosen: its record, and how it is offered."""

    record: ModelRecord
    option: ModelOption

    @property
    def begun(self) -> int:
        """Attempts that have landed or are in flight."""
        return self.record.tries + self.option.launched

    @property
    def price(self) -> float:
        """Dollars of an attempt by list price and experience (c_m)."""
        return attempt_price(self.record, self.option)


Rule = Callable[[Sequence[Arm], Money, int, Random], Arm]
"""Takes the models that may be chosen, sorted by name, the money, the attempt and randomness."""


def cheapest_first(arms: Iterable[Arm]) -> list[Arm]:
    """The arms by list price."""
    return sorted(arms, key=lambda arm: arm.option.expected)
