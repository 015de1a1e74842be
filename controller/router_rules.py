"""Rules that choose the model of an attempt from what each has earned and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf, log, sqrt
from random import Random

from costada.controller.arms import (
    CAUTIOUS_WEIGHT,
    WEIGHT,
    Arm,
    ModelOption,
    ModelRecord,
    Money,
    Rule,
    cheapest_first,
    posterior,
)

FIRST_TRIES = 4
"""Tries of a model before its record alone speaks for it."""

TRY_SHARE = 0.07
"""Most of the budget that one first try may be expected to cost."""

FIRST_TRIES_SHARE = 0.15
"""Most of the budget that all first tries of a model may cost."""

PROVEN_PATIENCE = 10.0
"""How many times as long `patience` asks a model in vain that has brought something before."""

MAX_PRICE_RATIO = 10.0
"""For `patience`, a model is at most so many times cheaper than the most expensive one."""

UCB_SCALE = 2.0
"""Factor under the root of UCB1's bonus (Auer et al. 2002)."""


def has_first_tries_left(record: ModelRecord, option: ModelOption, money: Money) -> bool:
    """Whether the model has first tries left and can afford the next one (waits).

    Attempts in flight count as tries, and as dollars at their expected cost.
    """
    begun = record.tries + option.launched
    paid = record.dollars + option.launched * option.expected
    return (
        begun < FIRST_TRIES
        and record.credit < 1.0
        and option.expected <= min(TRY_SHARE * money.budget, money.left)
        and (begun == 0 or paid + option.expected <= FIRST_TRIES_SHARE * money.budget)
    )


def budgeted_thompson(
    arms: Sequence[Arm], money: Money, attempt: int, rng: Random, *, weight: float = WEIGHT
) -> Arm:
    """The model with the highest drawn credit per dollar (Xia et al. 2015).

    Each model first gets a few tries, bounded in dollars. Credit is fractional, so the posterior is
    a Beta distribution whose parameters are not integers (cf. Agrawal and Goyal 2012). Among
    models that cost nothing the highest drawn credit decides.
    """
    waiting = [arm for arm in arms if has_first_tries_left(arm.record, arm.option, money)]
    if waiting:
        return min(waiting, key=lambda arm: (arm.begun, arm.option.expected))
    drawn = []
    for arm in arms:
        found = posterior(arm.record, weight)
        credit = rng.betavariate(found.gain, found.failure)
        drawn.append((credit / arm.price if arm.price else inf, credit, arm))
    return max(drawn, key=lambda each: each[:2])[2]


def fixed(arms: Sequence[Arm], money: Money, attempt: int, rng: Random, *, name: str) -> Arm:
    """The named model; where it is disabled or cannot be paid for, the cheapest of the others."""
    return next((arm for arm in arms if arm.record.name == name), cheapest_first(arms)[0])


def round_robin(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """The models in turn, cheapest first."""
    return min(arms, key=lambda arm: (arm.begun, arm.option.expected))


def ucb1(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """The highest mean credit plus a bonus for few tries, blind to price (Auer et al. 2002)."""
    total = sum(arm.begun for arm in arms)

    def bound(arm: Arm) -> float:
        if arm.begun == 0:
            return inf
        bonus = sqrt(UCB_SCALE * log(total) / arm.begun)
        return arm.record.credit / arm.begun + bonus

    return max(arms, key=bound)


def patience(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """The model with the fewest attempts in vain, weighed by the square root of its price.

    The latest attempts in a row that brought nothing count, those in flight, and the next one. The
    cheapest model begins. Models that never help share the attempts in proportion to
    `1 / sqrt(c_m)`, as optimum allocation shares samples among strata of unequal cost (Cochran
    1977, Sec. 5.5). A model that has brought something is asked `PROVEN_PATIENCE` times as long.
    """
    least = max(arm.price for arm in arms) / MAX_PRICE_RATIO

    def weighed(arm: Arm) -> float:
        in_vain = arm.record.fruitless + arm.option.launched + 1
        price = max(arm.price, least) or 1.0  # 1 where all models are free
        return in_vain * sqrt(price) / (PROVEN_PATIENCE if arm.record.credit else 1.0)

    return min(arms, key=lambda arm: (weighed(arm), arm.option.expected))


def cascade(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """The cheapest model for the first attempt of a step, the next one after each failure."""
    ranked = cheapest_first(arms)
    return ranked[min(attempt, len(ranked)) - 1]


def uniform(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """Any of the models; what experiments compare a router with."""
    return rng.choice(arms)


FIXED = "fixed:"
DEFAULT_ROUTER, CAUTIOUS_ROUTER = "budgeted-thompson", "cautious-thompson"

RULES: Mapping[str, Rule] = {
    DEFAULT_ROUTER: budgeted_thompson,
    CAUTIOUS_ROUTER: partial(budgeted_thompson, weight=CAUTIOUS_WEIGHT),
    "round-robin": round_robin,
    "ucb1": ucb1,
    "cascade": cascade,
    "patience": patience,
}
"""The rules by name; `fixed:NAME` is one for each model."""


def router_rule(name: str) -> Rule:
    """The rule of a name, which is known."""
    if name.startswith(FIXED):
        return partial(fixed, name=name.removeprefix(FIXED))
    return RULES[name]
