"""Which model makes the next attempt: a router over a menu of models, and what it learns.

A router sees a menu of priced models, and learns from every attempt what its dollars brought. It is
independent of the method, which decides where the attempt searches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from random import Random
from typing import Self

from costada.controller.arms import (
    CAUTIOUS_WEIGHT,
    WEIGHT,
    Arm,
    ModelOption,
    ModelRecord,
    Money,
    dollar_sum,
    gain_over_parent,
    next_scale,
    normalized_gain_to_reference,
    scaled_gain,
)
from costada.controller.router_rules import CAUTIOUS_ROUTER, FIXED, RULES, router_rule, uniform
from costada.values.plugins import describe_plugin, is_missing, load_plugin, plugins_of


@dataclass(frozen=True, slots=True)
class Router:
    """A rule over a menu, and the record of each model; frozen, replaced and never changed.

    It travels in the graph's state, so its fields are plain values. A router that remembers more
    is a class derived from this one.

    Attributes:
        rule: Name of the rule: one of `ROUTERS`, or `fixed:NAME`.
        records: One for each model, in the order of the menu.
        scale: The usual gain of an attempt, where scores have no reference (s); 0 before the first.
    """

    rule: str
    records: tuple[ModelRecord, ...]
    scale: float = 0.0

    @classmethod
    def start(cls, rule: str, names: Sequence[str]) -> Self:
        """The router before the first attempt."""
        return cls(rule, tuple(map(ModelRecord, names)))

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
        pick = uniform if is_uniform else self.pick
        return pick(affordable, money, attempt, rng).record.name

    def pick(self, arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
        """The model of the next attempt among those that may have it, sorted by name."""
        return router_rule(self.rule)(arms, money, attempt, rng)

    def tell(
        self,
        name: str,
        score: float | None,
        parent_score: float,
        dollars: float,
        *,
        has_reference: bool,
    ) -> Self:
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

    def with_credit(self, name: str, credit: float, dollars: float) -> Self:
        """The router after an attempt that earned credit, in [0, 1], and cost dollars."""
        return self._change(
            name,
            lambda record: replace(
                record,
                credit=record.credit + credit,
                tries=record.tries + 1,
                dollars=dollar_sum(record.dollars, dollars),
                fruitless=0 if credit else record.fruitless + 1,
            ),
        )

    def charge(self, name: str, dollars: float) -> Self:
        """The router after a model has cost something without an attempt."""
        return self._change(
            name, lambda record: replace(record, dollars=dollar_sum(record.dollars, dollars))
        )

    def disable(self, name: str) -> Self:
        """The router without a model."""
        return self._change(name, lambda record: replace(record, is_disabled=True))

    def _change(self, name: str, change: Callable[[ModelRecord], ModelRecord]) -> Self:
        records = tuple(change(each) if each.name == name else each for each in self.records)
        return replace(self, records=records)

    @property
    def weight(self) -> float:
        """How often each try counts in the posterior (w)."""
        return CAUTIOUS_WEIGHT if self.rule == CAUTIOUS_ROUTER else WEIGHT

    def record(self) -> tuple[ModelRecord, ...]:
        """What the trace shows: the record of each model, in the order of the menu."""
        return self.records


ENTRY_POINTS = "costada.routers"
"""Entry points of this group are further routers, each a class derived from `Router`."""


class Routers(Mapping[str, type[Router]]):
    """The routers by name: the rules of this room, then those of plug-ins.

    A plug-in is imported when its router is first asked for.
    """

    def __getitem__(self, name: str) -> type[Router]:
        """The class of a router.

        Raises:
            KeyError: None is known by the name.
            ValueError: Its plug-in cannot be loaded, or is not a class of routers.
        """
        if name in RULES:
            return Router
        plugin = plugins_of(ENTRY_POINTS)[name]
        kind = load_plugin(plugin, type)
        if not issubclass(kind, Router):
            raise ValueError(
                f"{describe_plugin(plugin)} is the class {kind.__name__}, expected one derived"
                " from Router"
            )
        return kind

    def __iter__(self) -> Iterator[str]:
        """All names, also those of plug-ins that have not been imported."""
        yield from dict.fromkeys((*RULES, *plugins_of(ENTRY_POINTS)))

    def __len__(self) -> int:
        """How many routers there are."""
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Whether a router is known, without importing its plug-in."""
        return name in RULES or name in plugins_of(ENTRY_POINTS)


ROUTERS = Routers()
"""The routers by the name that `--router` is given; `fixed:NAME` is one for each model."""


def router_kind(name: str) -> type[Router]:
    """The class of a router.

    Raises:
        ValueError: There is no such router, or its plug-in is missing or cannot be loaded.
    """
    if name.startswith(FIXED) and len(name) > len(FIXED):
        return Router
    if is_missing(ENTRY_POINTS, name):
        raise ValueError(f"router {name} is not installed")
    if name not in ROUTERS:
        raise ValueError(f"router: got {name!r}, expected {', '.join(ROUTERS)} or {FIXED}NAME")
    return ROUTERS[name]


def start_router(rule: str, names: Sequence[str]) -> Router:
    """The router of a run that begins.

    Raises:
        ValueError: There is no such rule, two models have one name, or `fixed:NAME` names a model
            that is not in the menu.
    """
    kind = router_kind(rule)
    if len(set(names)) < len(names):
        raise ValueError(
            f"models: got {', '.join(names)}, expected different names; in Python,"
            " MenuModel(name, model) gives a model one of its own"
        )
    if rule.startswith(FIXED) and rule.removeprefix(FIXED) not in names:
        raise ValueError(f"router: got {rule!r}, expected a model of the menu: {', '.join(names)}")
    return kind.start(rule, names)
