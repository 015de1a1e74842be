"""What several steps in flight cost, by docs/results/plan.md: over the family and the landscape.

Makes runs with one step in flight, with eight, and with at most eight under rules that allow fewer
where a gain is likely. Dollars are charged at the launch of a call. Prints how far the AUC and the
final score of each are ahead of one step in flight at the same seed, and its share of virtual time.

`--tune` runs a grid of constants for each rule.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from family_weights import FIRST_SEED, SEEDS, made_by, world_weights

from costada.controller.constants import Constants
from costada.controller.credit import Balance
from costada.controller.step import max_in_flight
from costada.experiments.comparison.comparison import summarize
from costada.experiments.comparison.metrics import normalized_auc
from costada.plugins.lab.landscape.simulation import InFlightLimit, SimulatedRun
from costada.plugins.lab.landscape.simulation_batch import cell
from costada.plugins.lab.landscape.worlds import LANDSCAPE, answers_of
from costada.plugins.lab.recorded.family import World
from costada.plugins.lab.recorded.family_comparison import judge

MAX_IN_FLIGHT = 8

Rule = tuple[str, float]
"""Name and constant of a rule for the steps in flight."""

ONE, EIGHT = ("one", 1.0), ("eight", 8.0)
STEPS, GAINS = "steps", "gains"
GRID = (
    *((STEPS, share) for share in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)),
    *((GAINS, number) for number in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)),
)

Key = tuple[str, str, int, float, Rule]
"""Method, world, seed, budget and rule of a run."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is kept of a run."""

    auc: float
    score: float
    time: float


def share_of_steps(share: float, balance: Balance, gained_at: float, iterations: int) -> float:
    """A share of the iterations completed."""
    return share * iterations


def expected_gains(number: float, balance: Balance, gained_at: float, iterations: int) -> float:
    """The steps in flight with `--gains-in-flight`."""
    return max_in_flight(MAX_IN_FLIGHT, number, balance, gained_at, iterations)


def limit_of(rule: Rule) -> InFlightLimit | None:
    """The limit of a rule; None for a fixed number of steps in flight."""
    name, constant = rule
    limits = {STEPS: share_of_steps, GAINS: expected_gains}
    return partial(limits[name], constant) if name in limits else None


def made(key: Key) -> tuple[Key, Found]:
    """Make a run."""
    method, world, seed, budget, rule = key
    parallel = 1 if rule == ONE else MAX_IN_FLIGHT
    answers = answers_of(world, seed)
    run = SimulatedRun(method, seed, budget, Constants(), answers, parallel, limit=limit_of(rule))
    for _ in run.steps():
        pass
    outcome = run.outcome(charges_at_launch=True)
    return key, Found(normalized_auc(outcome), outcome.points[-1].best_score, run.now)


def differences(
    found: Mapping[Key, Found], key: tuple[str, str, float], rule: Rule, seeds: range, of: str
) -> list[float]:
    """How far a rule is ahead of one step in flight, by seed."""
    method, world, budget = key
    return [
        getattr(found[method, world, seed, budget, rule], of)
        - getattr(found[method, world, seed, budget, ONE], of)
        for seed in seeds
    ]


def lines(
    found: Mapping[Key, Found],
    method: str,
    budget: float,
    rules: Sequence[Rule],
    seeds: range,
    by_weight: Mapping[World, float],
) -> Iterator[str]:
    """What is printed of a method with a budget."""
    yield f"{method}, ${budget:g}, seeds {seeds.start} to {seeds.stop - 1}, minus one in flight"
    yield f"{'rule':12}{'AUC':>28}{'worst credible world':>36}{'final score':>28}{'time':>8}"
    for name, constant in rules:
        rule = (name, constant)
        aucs, scores = (
            judge(
                {
                    world: differences(found, (method, world.name, budget), rule, seeds, of)
                    for world in by_weight
                },
                by_weight,
            )
            for of in ("auc", "score")
        )
        time = sum(
            weight
            * fmean(
                found[method, world.name, seed, budget, rule].time
                / found[method, world.name, seed, budget, ONE].time
                for seed in seeds
            )
            for world, weight in by_weight.items()
        ) / sum(by_weight.values())
        cells = [
            f"{each.mean:+.4f} [{each.interval.low:+.4f}, {each.interval.high:+.4f}]"
            for each in (aucs, scores)
        ]
        worst = f"{aucs.in_worst:+.4f} {aucs.worst.name}"
        yield f"{f'{name} {constant:g}':12}{cells[0]:>28}{worst:>36}{cells[1]:>28}{time:8.0%}"
        gaps = [
            cell(
                summarize([differences(found, (method, LANDSCAPE, budget), rule, seeds, of)]),
                "+.4f",
            )
            for of in ("auc", "score")
        ]
        yield f"{'  landscape':12}{gaps[0]:>28}{'':36}{gaps[1]:>28}"


def main() -> None:
    """Make the runs and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="costada,adaevolve")
    parser.add_argument("--budgets", default="0.5,1")
    parser.add_argument("--rules", default="", help="such as steps:0.1,gains:0.3")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--credible", action="store_true", help="credible worlds alone")
    parser.add_argument("--tune", action="store_true", help="a grid of constants for each rule")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    methods = given.methods.split(",")
    budgets = [float(each) for each in given.budgets.split(",")]
    weights = world_weights(given.jobs, only_credible=given.credible)
    rules: list[Rule] = [EIGHT, *(GRID if given.tune else ())]
    for each in filter(None, given.rules.split(",")):
        name, _, constant = each.partition(":")
        rules.append((name, float(constant)))
    worlds = [*(world.name for world in weights), LANDSCAPE]
    keys = [
        (method, world, seed, budget, rule)
        for method in methods
        for world in worlds
        for budget in budgets
        for rule in (ONE, *rules)
        for seed in seeds
    ]
    found = made_by(made, keys, given.jobs)
    for method in methods:
        for budget in budgets:
            for line in lines(found, method, budget, rules, seeds, weights):
                print(line, flush=True)


if __name__ == "__main__":
    main()
