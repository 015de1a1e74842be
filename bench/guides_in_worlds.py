"""When to buy guides: the rules of the setting `guides` in the credible recorded worlds.

    python bench/guides_in_worlds.py

Runs CostAda by each rule with the seeds on which docs/results/plan.md decides. Prints, for each
world, the AUC of the paper's rule, how far the other rules are from it with the same seeds and
95 % intervals, and what share of the difference between `always` and `never` the learned rule
reaches. The credible worlds are those of docs/results/worlds.md: all in which an outcome depends
on the best program shown.
"""

import argparse
from statistics import fmean

from costada.controller.costada import CostAda
from costada.controller.methods import METHODS, Method
from costada.experiments.comparison.metrics import mean_interval
from costada.plugins.lab.recorded.family import CONTEXT, FAMILY, World
from costada.plugins.lab.recorded.family_comparison import AUC, METRICS, FamilyBatch, measure

PAPER, LEARNED = "costada", "learned"
RULES = ("always", "never", LEARNED)
CREDIBLE = tuple(world for world in FAMILY if world.matching == CONTEXT)

for rule in RULES:  # as methods of this process, which are simulated like any other
    METHODS[rule] = Method(rule, CostAda, f"CostAda with guides {rule}", {"guides": rule})

MIN_DIFFERENCE = 0.01
"""Difference of `always` and `never` from which on the share is asked for."""


def cells(auc: dict[tuple[str, World, int], float], world: World, seeds: range) -> list[str]:
    """The row of a world."""
    row = [world.name, f"{fmean(auc[PAPER, world, seed] for seed in seeds):.4f}"]
    means = {}
    for rule in RULES:
        gaps = [auc[rule, world, seed] - auc[PAPER, world, seed] for seed in seeds]
        means[rule], found = fmean(gaps), mean_interval([gaps])
        interval = "" if found is None else f" [{found.low:+.4f}, {found.high:+.4f}]"
        row.append(f"{means[rule]:+.4f}{interval}")
    low, high = sorted((means["always"], means["never"]))
    is_asked = high - low > MIN_DIFFERENCE
    return [*row, f"{(means[LEARNED] - low) / (high - low):.0%}" if is_asked else "-"]


def main() -> None:
    """Make the runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first-seed", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--budget", type=float, default=1.0)
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    batch = FamilyBatch((PAPER, *RULES), tuple(seeds), given.budget, CREDIBLE)
    place = list(METRICS).index(AUC)
    finished = (measure(run, given.budget) for run in batch.runs)
    auc = {run: metrics[place] for run, metrics in finished}
    print(f"AUC, budget ${given.budget:g}, seeds {seeds.start} to {seeds.stop - 1}")
    print("| world | paper | " + " | ".join(f"{rule} minus paper" for rule in RULES) + " | share |")
    print("|---" * (len(RULES) + 3) + "|")
    for world in CREDIBLE:
        print("| " + " | ".join(cells(auc, world, seeds)) + " |")


if __name__ == "__main__":
    main()
