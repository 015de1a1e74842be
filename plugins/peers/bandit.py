"""ShinkaEvolve's bandit over models as a router, which weighs prices or is blind to them.

Rules and constants are those of `AsymmetricUCB` in `shinka/llm/prioritization.py` of version 0.0.7
on PyPI. `shinka` has the `cost_aware_coef` that the package sets in `shinka/defaults.py`,
`shinka-price-blind` that of the class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import expm1, log, sqrt
from random import Random
from statistics import median
from typing import Self

from costada.controller.arms import Arm, ModelRecord, Money
from costada.controller.router import Router

SHINKA, PRICE_BLIND = "shinka", "shinka-price-blind"

PRICE_WEIGHT = 0.5
"""Share of the price in the value of a model (`cost_aware_coef`)."""

EPSILON = 0.2
"""Chance that a model is asked that has not the highest value (`epsilon`)."""

EXPLORATION, PRICE_EXPLORATION = 1.0, 0.1
"""Factors of the bonus for few tries (`exploration_coef`), and for few known prices
(`cost_exploration_coef`)."""

KEPT = 0.95
"""Share of rewards and of their number that is kept after each answer (`auto_decay`)."""

MIN_PRICE, MIN_COUNT = 1e-7, 1e-7
"""What is divided by is at least this."""

MAX_GAIN = 700.0
"""Gains count up to here, so that the exponential is finite; the decay makes larger ones equal."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """What the answers of a model brought.

    Attributes:
        total: Decayed sum of `exp(gain) - 1` (the exponential of `s`).
        count: Decayed number of answers (`divs`).
    """

    total: float = 0.0
    count: float = 0.0

    @property
    def mean(self) -> float:
        """Mean of `exp(gain) - 1`."""
        return self.total / max(self.count, MIN_COUNT)

    def after(self, reward: float) -> Self:
        """With another answer."""
        return replace(self, total=self.total + reward, count=self.count + 1.0)

    def decayed(self) -> Self:
        """After another answer of any model."""
        return replace(self, total=decayed(self.total), count=KEPT * self.count)


def decayed(total: float) -> float:
    """A sum of exponentials after a decay, which shrinks large ones more."""
    return KEPT * total / (1.0 + (1.0 - KEPT) * total)


@dataclass(frozen=True, slots=True)
class ShinkaRouter(Router):
    """UCB over gains above the parent, where only gains count and old ones fade.

    A gain is counted over the parent or over the initial program, whichever is better. A model that
    was never asked is asked first. Then the one of the highest value is asked, with a chance of
    `EPSILON` any other one. The value is the mean reward as a share of the highest one, plus a
    bonus for few tries; with a weight for prices, half of it is how cheap the model is.

    Attributes:
        rewards: Of each model, in the order of the records.
        highest: The highest reward, decayed (`obs_max`).
        baseline: Score of the initial program: the first parent.
        price_range: Lowest and highest dollars of an answer; empty before the first.
    """

    rewards: tuple[Rewards, ...] = ()
    highest: float = 0.0
    baseline: float | None = None
    price_range: tuple[float, ...] = ()

    @classmethod
    def start(cls, rule: str, names: Sequence[str]) -> Self:
        """The router before the first attempt."""
        return cls(rule, tuple(map(ModelRecord, names)), rewards=(Rewards(),) * len(names))

    def pick(self, arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
        """A model, drawn."""
        return rng.choices(arms, self.probabilities(arms))[0]

    def probabilities(self, arms: Sequence[Arm]) -> list[float]:
        """The chance of each model; they add up to 1."""
        unseen = [not arm.begun for arm in arms]
        if any(unseen):
            return [each / sum(unseen) for each in unseen]
        values = list(self._values(arms))
        best = [each == max(values) for each in values]
        others = len(arms) - sum(best)
        if not others:
            return [1.0 / len(arms)] * len(arms)
        return [(1.0 - EPSILON) / sum(best) if is_best else EPSILON / others for is_best in best]

    def _values(self, arms: Sequence[Arm]) -> Iterator[float]:
        """The value of each model, all of which were asked before."""
        known = dict(zip((each.name for each in self.records), self.rewards, strict=True))
        growth = 2.0 * log(max(sum(arm.begun for arm in arms), 2))
        cheapness = self._cheapness(arms, growth)
        for arm, cheap in zip(arms, cheapness, strict=True):
            mean = known[arm.record.name].mean / (self.highest or 1.0)
            value = mean + EXPLORATION * sqrt(growth / arm.begun)
            weight = PRICE_WEIGHT if self.rule == SHINKA and self.price_range else 0.0
            yield (1.0 - weight) * value + weight * cheap

    def _cheapness(self, arms: Sequence[Arm], growth: float) -> list[float]:
        """How cheap each model may be, by a lower bound on its price; 1 for the cheapest."""
        if not self.price_range:
            return [0.0] * len(arms)
        least, most = self.price_range
        counts = [max(arm.record.tries, 1) for arm in arms]
        means = [arm.record.dollars / count for arm, count in zip(arms, counts, strict=True)]
        bounds = [
            max(mean - PRICE_EXPLORATION * (most - least) * sqrt(growth / count), MIN_PRICE)
            for mean, count in zip(means, counts, strict=True)
        ]
        known = [mean for mean, arm in zip(means, arms, strict=True) if arm.record.tries]
        usual = max(median(known), MIN_PRICE) if known else MIN_PRICE
        ratios = [usual / bound for bound in bounds]
        return [ratio / max(max(ratios), 1e-9) for ratio in ratios]

    def tell(
        self,
        name: str,
        score: float | None,
        parent_score: float,
        dollars: float,
        *,
        has_reference: bool,
    ) -> Self:
        """The router after an attempt has landed; a failure is an answer without a gain."""
        told = Router.tell(self, name, score, parent_score, dollars, has_reference=has_reference)
        baseline = parent_score if self.baseline is None else self.baseline
        gain = 0.0 if score is None else max(0.0, score - max(parent_score, baseline))
        reward = expm1(min(gain, MAX_GAIN))
        rewards = tuple(
            (known.after(reward) if record.name == name else known).decayed()
            for record, known in zip(self.records, self.rewards, strict=True)
        )
        highest = max(decayed(max(self.highest, reward)), *(each.mean for each in rewards))
        prices = (*self.price_range, dollars)
        return replace(
            told,
            rewards=rewards,
            highest=highest,
            baseline=baseline,
            price_range=(min(prices), max(prices)),
        )
