"""A menu of simulated models: what each charges, and how often and how far it helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from random import Random
from typing import Protocol, Self

from costada.controller.arms import ModelOption, Money
from costada.controller.constants import Constants
from costada.nodes.calls.bounds import EXPECTED_ANSWER
from costada.plugins.lab.landscape.landscape import MEAN_LOSS, PROMPT_BASE, TOKENS_PER_PROGRAM
from costada.values.usage import Usage


@dataclass(frozen=True, slots=True)
class SimulatedEntry:
    """One model of a menu, relative to the model that the world simulates.

    Attributes:
        name: Name in the menu.
        price: Factor of the world's token prices, above 0.
        success: Probability that an answer which improves on its parent still does, in [0, 1].
        reach: Largest share of the distance to a score of 1 that an improvement closes, in (0, 1].

    Raises:
        ValueError: A number is outside its range.
    """

    name: str
    price: float
    success: float = 1.0
    reach: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.price) and self.price > 0):
            raise ValueError(f"price: got {self.price}, expected a finite number above 0")
        if not 0 <= self.success <= 1:
            raise ValueError(f"success: got {self.success}, expected a number from 0 to 1")
        if not 0 < self.reach <= 1:
            raise ValueError(f"reach: got {self.reach}, expected a number above 0, at most 1")


EXPECTED_TOKENS = Usage(
    PROMPT_BASE + Constants().num_inspirations * TOKENS_PER_PROGRAM, EXPECTED_ANSWER
)
"""Tokens of an attempt as the graph expects them: of an ordinary prompt and an ordinary answer."""


class Chooser(Protocol):
    """Chooses the model of each attempt, as `costada.controller.router.Router` does."""

    def choose(
        self, options: Sequence[ModelOption], money: Money, attempt: int, rng: Random
    ) -> str | None:
        """Name of the model for the next attempt."""
        ...

    def tell(
        self,
        name: str,
        score: float | None,
        parent_score: float,
        dollars: float,
        *,
        has_reference: bool,
    ) -> Self:
        """The chooser after an attempt has landed."""
        ...


@dataclass(frozen=True, slots=True)
class SimulatedMenu:
    """Several models, and what chooses among them.

    Attributes:
        entries: In the order of the menu.
        chooser: Before the first attempt.
        expected_tokens: Of an attempt, before any was made.
    """

    entries: tuple[SimulatedEntry, ...]
    chooser: Chooser
    expected_tokens: Usage = EXPECTED_TOKENS


def limited_score(score: float, parent_score: float, entry: SimulatedEntry, rng: Random) -> float:
    """The score that a model of the menu reaches where the world's model reaches `score`.

    An answer that does not improve on its parent, such as a failure, stays as it is. An improvement
    is kept with the probability `success` and shortened to `reach`; one that is not kept loses an
    exponential share of the parent's score instead, as any answer of the landscape that does not
    improve. The same `rng` keeps an improvement for every model that is at least as good.
    """
    if score <= parent_score:
        return score
    # Both are drawn for every model, so that what follows is drawn alike.
    luck, loss = rng.random(), min(1.0, rng.expovariate(1.0 / MEAN_LOSS))
    if luck >= entry.success:
        return parent_score * (1.0 - loss)
    return min(score, parent_score + entry.reach * max(0.0, 1.0 - parent_score))
