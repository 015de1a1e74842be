"""Compare stopping flat runs with cutting all at one share of the budget, by docs/results/plan.md.

Makes runs of a method in each world of the family, with one step in flight. A stopped run is the
beginning of the whole one, so each run is made once. Prints for each threshold how far the stopped
runs are ahead of the same runs cut where those of their world spend as much on average, and where
all runs of the family do.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from family_weights import FIRST_SEED, SEEDS, made_by, world_weights

from costada.controller.constants import Constants
from costada.controller.credit import Balance, normalized_gain
from costada.controller.step import is_flat, spent_at_gain
from costada.experiments.comparison.metrics import RunOutcome, has_reached, normalized_auc
from costada.plugins.lab.landscape.simulation import simulate_run
from costada.plugins.lab.recorded.family import FAMILY, World
from costada.plugins.lab.recorded.family_comparison import judge
from costada.plugins.lab.recorded.world_scores import is_credible

THRESHOLDS = (0.3, 0.5)

Key = tuple[str, World, int, float]
"""Method, world, seed and budget of a run."""
Runs = Mapping[World, Sequence[RunOutcome]]


def made(key: Key) -> tuple[Key, RunOutcome]:
    """Make a run to its end."""
    method, world, seed, budget = key
    return key, simulate_run(method, seed, budget, world=world.name)


def ended(run: RunOutcome, place: int) -> RunOutcome:
    """The run as if it had ended after the point at a place."""
    return replace(run, points=run.points[: place + 1])


def stopped(run: RunOutcome, threshold: float) -> RunOutcome:
    """The run as `--stop-when-flat` ends it."""
    constants, best, gained_at = Constants(), run.seed_score, 0.0
    for place, point in enumerate(run.points):
        gain = normalized_gain(point.best_score, best)
        gained_at = spent_at_gain(gained_at, point.spent, gain, constants)
        best, balance = point.best_score, Balance(run.budget, point.spent)
        if is_flat(threshold, balance, gained_at, point.iteration, constants):
            return ended(run, place)
    return run


def cut(run: RunOutcome, dollars: float) -> RunOutcome:
    """The run as if it had ended once it had spent so much."""
    for place, point in enumerate(run.points):
        if has_reached(dollars, point.spent):
            return ended(run, place)
    return run


def spending(runs: Sequence[RunOutcome]) -> float:
    """Mean dollars that runs spend."""
    return fmean(run.points[-1].spent for run in runs)


def cut_like(
    whole: Runs, ends: Runs, weights: Mapping[World, float]
) -> dict[World, list[RunOutcome]]:
    """All runs cut at the smallest dollars at which they spend as much as others on average."""
    total = sum(weights[world] for world in whole)

    def mean_spending(runs: Runs) -> float:
        return sum(weights[world] / total * spending(runs[world]) for world in runs)

    def cut_at(dollars: float) -> dict[World, list[RunOutcome]]:
        return {world: [cut(run, dollars) for run in runs] for world, runs in whole.items()}

    wanted, low = mean_spending(ends), 0.0
    high = max(run.budget for runs in whole.values() for run in runs)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if mean_spending(cut_at(middle)) >= wanted:
            high = middle
        else:
            low = middle
    return cut_at(high)


def score(run: RunOutcome) -> float:
    """The final score."""
    return run.points[-1].best_score


def lines(whole: Runs, threshold: float, weights: Mapping[World, float]) -> Iterator[str]:
    """What is printed for a threshold."""
    ends = {world: [stopped(run, threshold) for run in runs] for world, runs in whole.items()}
    saved = {world: 1 - spending(ends[world]) / spending(whole[world]) for world in whole}
    mean_saved = sum(weights[world] * saved[world] for world in whole)
    lost = sum(
        weights[world] * (fmean(map(score, whole[world])) - fmean(map(score, ends[world])))
        for world in whole
    )
    yield f"P = {threshold:g}: saves {mean_saved:.1%} of the dollars, loses {lost:.4f} of the score"
    by_world = {
        world: cut_like({world: whole[world]}, {world: ends[world]}, weights)[world]
        for world in whole
    }
    for name, cuts in (("world", by_world), ("family", cut_like(whole, ends, weights))):
        for measure, of in (("final score", score), ("AUC", normalized_auc)):
            gaps = {
                world: [
                    of(mine) - of(other)
                    for mine, other in zip(ends[world], cuts[world], strict=True)
                ]
                for world in whole
            }
            each = judge(gaps, weights)
            yield (
                f"  {measure} minus that of runs cut at one share of a {name}: {each.mean:+.4f}"
                f" [{each.interval.low:+.4f}, {each.interval.high:+.4f}], worst credible world"
                f" {each.in_worst:+.4f} ({each.worst.name})"
            )
            if name == "world" and measure == "final score":
                for world in whole:
                    if is_credible(weights[world], [*weights.values()]):
                        yield f"    {world.name:28}{saved[world]:8.1%}{fmean(gaps[world]):+9.4f}"


def main() -> None:
    """Make the runs and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", default="costada")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    weights = world_weights(given.jobs)
    keys = [(given.method, world, seed, given.budget) for world in FAMILY for seed in seeds]
    found = made_by(made, keys, given.jobs)
    whole = {
        world: [found[given.method, world, seed, given.budget] for seed in seeds]
        for world in FAMILY
    }
    print(f"{given.method}, ${given.budget:g}, seeds {seeds.start} to {seeds.stop - 1}")
    for threshold in THRESHOLDS:
        for line in lines(whole, threshold, weights):
            print(line)


if __name__ == "__main__":
    main()
