"""Rules for `--router` that were tried beside `patience` and left out, on the menus of random.toml.

Prints the AUC of each rule minus that of the paper's rule, paired by seed, with 95 % bootstrap
intervals, for each menu in both worlds:

    python bench/router_rules.py

- `price^0.75`: `patience` with the price to the power of 0.75 in the place of its root.
- `credit a p`: `patience` until a model has brought something; then the model with the largest
  `(a + S) / (1 + n) / c^p`, its expected credit per dollar from a prior credit a.
- `hedge`: expert weights in dollars over `credit 0.05 0.75` and the cheapest model (`Hedge`).
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Self

from costada.controller.arms import Arm, ModelOption, Money
from costada.controller.router import Router, start_router
from costada.controller.router_rules import FIXED, MAX_PRICE_RATIO, PROVEN_PATIENCE, patience
from costada.experiments.comparison.comparison import summarize
from costada.experiments.comparison.metrics import normalized_auc
from costada.plugins.lab.landscape.landscape_menu import Chooser
from costada.plugins.lab.menus.menu_batch import PAPER_RULE, MenuRun, simulate_menu_run
from costada.plugins.lab.menus.menu_file import RANDOM, menus_of
from costada.plugins.lab.processes import in_processes

WORLDS = ("landscape", "recorded")
MENUS = ("random", "random-wide", "useless-cheap-25", "needed-below", "small-steps-5")


def bounded_price(arm: Arm, arms: Sequence[Arm]) -> float:
    """The price of an attempt, at least the share of the highest one that `patience` allows (c)."""
    return max(arm.price, max(each.price for each in arms) / MAX_PRICE_RATIO)


class SteeperPrice(Router):
    """`patience` with the price to the power of 0.75."""

    def pick(self, arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
        """The model with the fewest weighed attempts in vain."""

        def weighed(arm: Arm) -> float:
            in_vain = arm.record.fruitless + 1
            proven = PROVEN_PATIENCE if arm.record.credit else 1.0
            return in_vain * float(bounded_price(arm, arms) ** 0.75) / proven

        return min(arms, key=lambda arm: (weighed(arm), arm.option.expected))


class CreditPerDollar(Router):
    """`patience` until a model has brought something, expected credit per dollar afterwards.

    Its rule is `credit a p`: prior credit and power of the price.
    """

    def pick(self, arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
        """The model with the highest expected credit per dollar."""
        if not any(arm.record.credit for arm in arms):
            return patience(arms, money, attempt, rng)
        prior, power = map(float, self.rule.split()[1:])

        def expected(arm: Arm) -> float:
            credit = (prior + arm.record.credit) / (1 + arm.record.tries)
            return credit / float(bounded_price(arm, arms) ** power)

        return max(arms, key=lambda arm: (expected(arm), -arm.option.expected))


UNIFORM_SHARE = 0.1
"""Share of the choices that both experts share evenly (gamma)."""


@dataclass(slots=True)
class Hedge:
    """Expert weights in dollars, for one step in flight.

    An expert is followed with the probability `p_e = (1 - gamma) r_e / sum(r) + gamma / n`, where
    `r_e` is the credit per dollar of the models that it would have chosen. An attempt that had the
    probability `P`, the sum over the experts that would have chosen its model, counts for each of
    them as `x / P` credit and `d / P` dollars (importance weights as in Exp4, Auer et al. 2002).
    """

    experts: list[Router]
    credit: list[float] = field(default_factory=lambda: [0.5, 0.5])
    dollars: list[float] = field(default_factory=lambda: [0.05, 0.05])
    agreeing: list[int] = field(default_factory=list)
    probability: float = 1.0  # of the model in flight (P)

    def choose(
        self, options: Sequence[ModelOption], money: Money, attempt: int, rng: Random
    ) -> str | None:
        """Name of the model of the drawn expert."""
        rates = [x / d for x, d in zip(self.credit, self.dollars, strict=True)]
        even = UNIFORM_SHARE / len(rates)
        chances = [(1.0 - UNIFORM_SHARE) * rate / sum(rates) + even for rate in rates]
        names = [expert.choose(options, money, attempt, rng) for expert in self.experts]
        name = rng.choices(names, chances)[0]
        self.agreeing = [place for place, each in enumerate(names) if each == name]
        self.probability = sum(chances[place] for place in self.agreeing)
        return name

    def tell(
        self,
        name: str,
        score: float | None,
        parent_score: float,
        dollars: float,
        *,
        has_reference: bool,
    ) -> Self:
        """The same, with what the attempt brought."""
        before = sum(each.credit for each in self.experts[0].records)
        self.experts = [
            expert.tell(name, score, parent_score, dollars, has_reference=has_reference)
            for expert in self.experts
        ]
        gained = sum(each.credit for each in self.experts[0].records) - before
        for place in self.agreeing:
            self.credit[place] += gained / self.probability
            self.dollars[place] += dollars / self.probability
        return self


def start_hedge(names: Sequence[str]) -> Hedge:
    """The hedge before the first attempt; the first name is that of the cheapest model."""
    return Hedge(
        [
            CreditPerDollar.start("credit 0.05 0.75", names),
            start_router(f"{FIXED}{names[0]}", names),
        ]
    )


RULES: Mapping[str, Callable[[Sequence[str]], Chooser] | None] = {
    PAPER_RULE: None,
    "patience": partial(start_router, "patience"),
    "price^0.75": partial(SteeperPrice.start, "price^0.75"),
    "credit 0.1 1": partial(CreditPerDollar.start, "credit 0.1 1"),
    "credit 0.05 0.75": partial(CreditPerDollar.start, "credit 0.05 0.75"),
    "hedge": start_hedge,
}
"""The paper's rule, then what is compared with it."""

Key = tuple[str, str, str, int]
"""Rule, menu, world and seed of a run."""


def made(key: Key) -> tuple[Key, float]:
    """Make a run, and keep its AUC."""
    rule, menu, world, seed = key
    entries = menus_of(RANDOM)[menu].of_seed(seed)
    start = RULES[rule]
    chooser = start([entry.name for entry in entries]) if start else None
    run = MenuRun(menu, entries, PAPER_RULE, seed, 1.0, world=world)
    return key, normalized_auc(simulate_menu_run(run, chooser))


def cell(gaps: Sequence[float]) -> str:
    """The mean of the differences and its interval, which one seed does not have."""
    found = summarize([gaps])
    if found.interval is None:
        return f"{found.mean:+.3f}"
    return f"{found.mean:+.3f} [{found.interval.low:+.3f}, {found.interval.high:+.3f}]"


def main() -> None:
    """Make the runs and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--menus", default=",".join(MENUS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    seeds, menus = range(given.first_seed, given.first_seed + given.seeds), given.menus.split(",")
    keys = [
        (rule, m, world, seed)
        for rule in RULES
        for m in menus
        for world in WORLDS
        for seed in seeds
    ]
    with in_processes(made, keys, given.jobs) as finished:
        auc = dict(finished)
    print("| menu | world |" + "".join(f" {rule} |" for rule in list(RULES)[1:]))
    print("| --- | --- |" + " --- |" * (len(RULES) - 1))
    for menu in menus:
        for world in WORLDS:
            base = [auc[PAPER_RULE, menu, world, seed] for seed in seeds]
            cells = []
            for rule in list(RULES)[1:]:
                found = [auc[rule, menu, world, seed] for seed in seeds]
                cells.append(cell([x - y for x, y in zip(found, base, strict=True)]))
            print(f"| {menu} | {world} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
