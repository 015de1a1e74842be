"""Which model makes the next attempt: routers over a menu of models, and what they learn.

A router sees a menu of priced models, and learns from every attempt what its dollars brought. It is
independent of the method, which decides where the attempt searches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from math import inf, log, sqrt
from operator import attrgetter
from random import Random

from costada.controller.allocation import moving_average

FIRST_TRIES = 4
"""Tries of a model before its record alone speaks for it."""

TRY_SHARE = 0.07
"""Most of the budget that one first try may be expected to cost."""

FIRST_TRIES_SHARE = 0.15
"""Most of the budget that all first tries of a model may cost."""

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

UCB_SCALE = 2.0
"""Factor under the root of UCB1's bonus (Auer et al. 2002)."""


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """What one model's attempts earned and cost.

    Attributes:
        name: Name of the model in the menu.
        credit: Sum of the credit of its attempts, each in [0, 1] (S_m).
        tries: Attempts that have landed (n_m).
        dollars: What they cost (D_m).
        is_disabled: Whether it gets no further requests of the run.
    """

    name: str
    credit: float = 0.0
    tries: int = 0
    dollars: float = 0.0
    is_disabled: bool = False


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
class Router:
    """A rule over a menu, and the record of each model; frozen, replaced and never changed.

    It travels in the graph's state, so its fields are plain values.

    Attributes:
        rule: Name of the rule in `ROUTERS`, or `fixed:NAME`.
        records: One for each model, in the order of the menu.
        scale: The usual gain of an attempt, where scores have no reference (s); 0 before the first.
    """

    rule: str
    records: tuple[ModelRecord, ...]
    scale: float = 0.0

    def choose(
        self,
        options: Sequence[ModelOption],
        money: Money,
        attempt: int,
        rng: Random,
        *,
        is_uniform: bool = False,
    ) -> str | None:
        """Name of the model for the next attempt; `None` where nothing left can pay for any.

        The order of the menu does not matter. Disabled models are never chosen. A model that costs
        more than what is left is chosen only if all do, or if `fixed:NAME` names it.

        Args:
            options: Every model of the menu.
            money: Budget and what is left of it.
            attempt: Number of the attempt in its step, from 1.
            rng: Randomness of this choice.
            is_uniform: Whether each model that the rule could choose is as likely as the others.

        Raises:
            ValueError: Every model is disabled, or the options are not those of the menu.
        """
        known = {option.name: option for option in options}
        if known.keys() != {record.name for record in self.records}:
            raise ValueError(
                f"options: got {', '.join(sorted(known))}, expected one for each of"
                f" {', '.join(sorted(record.name for record in self.records))}"
            )
        arms = [
            Arm(record, known[record.name])
            for record in sorted(self.records, key=lambda record: record.name)
            if not record.is_disabled
        ]
        if not arms:
            raise ValueError("models: every model of the menu is disabled, expected one to ask")
        payable = [arm for arm in arms if arm.option.is_payable]
        if not payable:
            return None
        affordable = [
            arm
            for arm in payable
            if arm.price <= money.left or self.rule == f"{FIXED}{arm.record.name}"
        ]
        if not affordable:
            return min(payable, key=attrgetter("price")).record.name
        rule = uniform if is_uniform else router_rule(self.rule)
        return rule(affordable, money, attempt, rng).record.name

    def tell(
        self,
        name: str,
        score: float | None,
        parent_score: float,
        dollars: float,
        *,
        has_reference: bool,
    ) -> Router:
        """The router after an attempt has landed.

        Args:
            name: Its model.
            score: Score of its program (f); `None` for a failure.
            parent_score: Score of the program that it started from (f_p).
            dollars: What it cost (d).
            has_reference: Whether a score of 1 is a reference, such as the best result known.
        """
        gain, scale = gain_over_parent(score, parent_score), self.scale
        if has_reference:
            credit = normalized_gain_to_reference(score, parent_score)
        else:
            credit, scale = scaled_gain(gain, scale or gain), next_scale(scale, gain)
        return replace(self.with_credit(name, credit, dollars), scale=scale)

    def with_credit(self, name: str, credit: float, dollars: float) -> Router:
        """The router after an attempt that earned credit, in [0, 1], and cost dollars."""
        return self._change(
            name,
            lambda record: replace(
                record,
                credit=record.credit + credit,
                tries=record.tries + 1,
                dollars=dollar_sum(record.dollars, dollars),
            ),
        )

    def charge(self, name: str, dollars: float) -> Router:
        """The router after a model has cost something without an attempt."""
        return self._change(
            name, lambda record: replace(record, dollars=dollar_sum(record.dollars, dollars))
        )

    def disable(self, name: str) -> Router:
        """The router without a model."""
        return self._change(name, lambda record: replace(record, is_disabled=True))

    def _change(self, name: str, change: Callable[[ModelRecord], ModelRecord]) -> Router:
        records = tuple(change(each) if each.name == name else each for each in self.records)
        return replace(self, records=records)

    @property
    def weight(self) -> float:
        """How often each try counts in the posterior (w)."""
        return CAUTIOUS_WEIGHT if self.rule == CAUTIOUS_ROUTER else WEIGHT

    def record(self) -> tuple[ModelRecord, ...]:
        """What the trace shows: the record of each model, in the order of the menu."""
        return self.records


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
    return next((arm for arm in arms if arm.record.name == name), _cheapest_first(arms)[0])


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


def cascade(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """The cheapest model for the first attempt of a step, the next one after each failure."""
    ranked = _cheapest_first(arms)
    return ranked[min(attempt, len(ranked)) - 1]


def uniform(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """Any of the models; what experiments compare a router with."""
    return rng.choice(arms)


def _cheapest_first(arms: Iterable[Arm]) -> list[Arm]:
    return sorted(arms, key=lambda arm: arm.option.expected)


FIXED = "fixed:"
DEFAULT_ROUTER, CAUTIOUS_ROUTER = "budgeted-thompson", "cautious-thompson"

ROUTERS: Mapping[str, Rule] = {
    DEFAULT_ROUTER: budgeted_thompson,
    CAUTIOUS_ROUTER: partial(budgeted_thompson, weight=CAUTIOUS_WEIGHT),
    "round-robin": round_robin,
    "ucb1": ucb1,
    "cascade": cascade,
}
"""The rules by the name that `--router` is given; `fixed:NAME` is one for each model."""


def router_rule(name: str) -> Rule:
    """The rule of a name.

    Raises:
        ValueError: There is no such rule.
    """
    if name.startswith(FIXED) and len(name) > len(FIXED):
        return partial(fixed, name=name.removeprefix(FIXED))
    if name not in ROUTERS:
        raise ValueError(f"router: got {name!r}, expected {', '.join(ROUTERS)} or {FIXED}NAME")
    return ROUTERS[name]


def start_router(rule: str, names: Sequence[str]) -> Router:
    """The router of a run that begins.

    Raises:
        ValueError: There is no such rule, two models have one name, or `fixed:NAME` names a model
            that is not in the menu.
    """
    router_rule(rule)
    if len(set(names)) < len(names):
        raise ValueError(
            f"models: got {', '.join(names)}, expected different names; in Python,"
            " MenuModel(name, model) gives a model one of its own"
        )
    if rule.startswith(FIXED) and rule.removeprefix(FIXED) not in names:
        raise ValueError(f"router: got {rule!r}, expected a model of the menu: {', '.join(names)}")
    return Router(rule, tuple(map(ModelRecord, names)))
