"""Compare methods over the family of recorded worlds, by docs/results/plan.md.

Scores the worlds with seeds 0 to 39 of AdaEvolve, runs each method in each world, and prints how
far it is ahead of CostAda in normalised AUC: the mean over worlds by weight with its interval, the
worst credible world, and the mean in each credible world.
"""

import argparse
from collections.abc import Iterator, Sequence
from statistics import fmean

from costada.controller.methods import METHODS
from costada.experiments.comparison.metrics import RunOutcome, normalized_auc
from costada.plugins.lab.landscape.simulation import simulate_run
from costada.plugins.lab.processes import in_processes
from costada.plugins.lab.recorded.family import FAMILY, World
from costada.plugins.lab.recorded.world_scores import (
    compared_run,
    held_out_losses,
    is_credible,
    judge,
    scored_worlds,
    weights,
)

BASELINE = "costada"
SCORING_SEEDS, FIRST_SEED, SEEDS = 40, 200, 200
Key = tuple[str, World, int, float]
"""Method, world, seed and budget of a run."""


def auc_of(key: Key) -> tuple[Key, float]:
    """The normalised AUC of a run."""
    method, world, seed, budget = key
    return key, normalized_auc(simulate_run(method, seed, budget, world=world.name))


def scored(run: tuple[str, int]) -> tuple[tuple[str, int], RunOutcome]:
    """The run that a world is scored by."""
    return run, compared_run(run)


def world_weights(jobs: int) -> dict[World, float]:
    """The weight of each world."""
    runs = [(world.name, seed) for world in FAMILY for seed in range(SCORING_SEEDS)]
    with in_processes(scored, runs, jobs) as finished:
        found = dict(finished)
    outcomes = {
        world: [found[world.name, seed] for seed in range(SCORING_SEEDS)] for world in FAMILY
    }
    scores = scored_worlds(FAMILY, held_out_losses(FAMILY), outcomes)
    return dict(zip(FAMILY, weights(scores), strict=True))


def lines(
    found: dict[Key, float],
    methods: Sequence[str],
    seeds: range,
    budget: float,
    by_weight: dict[World, float],
) -> Iterator[str]:
    """What is printed."""
    credible = [world for world in FAMILY if is_credible(by_weight[world], [*by_weight.values()])]
    credible.sort(key=by_weight.__getitem__, reverse=True)
    yield f"AUC minus {BASELINE}, budget ${budget:g}, seeds {seeds.start} to {seeds.stop - 1}"
    names = "".join(f"{world.name:>26}" for world in credible)
    yield f"{'method':24}{'weighted mean':>28}{'worst credible world':>36}{names}"
    for method in methods:
        gaps = {
            world: [
                found[method, world, seed, budget] - found[BASELINE, world, seed, budget]
                for seed in seeds
            ]
            for world in FAMILY
        }
        each = judge(gaps, by_weight)
        mean = f"{each.mean:+.4f} [{each.low:+.4f}, {each.high:+.4f}]"
        worst = f"{each.in_worst:+.4f} {each.worst.name}"
        means = "".join(f"{fmean(gaps[world]):+26.4f}" for world in credible)
        yield f"{method:24}{mean:>28}{worst:>36}{means}"


def main() -> None:
    """Make the runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(each for each in METHODS if each != BASELINE))
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    methods = given.methods.split(",")
    keys = [
        (method, world, seed, given.budget)
        for world in FAMILY
        for method in (BASELINE, *methods)
        for seed in seeds
    ]
    by_weight = world_weights(given.jobs)
    with in_processes(auc_of, keys, given.jobs) as finished:
        found = dict(finished)
    for line in lines(found, methods, seeds, given.budget, by_weight):
        print(line)


if __name__ == "__main__":
    main()
