"""Run the offline model on circle packing with ten seeds and print what each run reached.

    python bench/offline_seeds.py

Each run has a budget of one dollar at the offline model's price. Two runs go on at a time. A run
is counted as passed when its best sum of radii is at least `TARGET`; the starting program has
0.9598.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

from costada import OfflineModel, create_discovery_graph, problem

BUDGET = 1.0
SEEDS = range(10)
PROCESSES = 2
TARGET = 2.3


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One run: what it reached, in how many rises of the best, for how much and how long."""

    seed: int
    best: float
    rises: int
    largest_rise: float
    spent: float
    iterations: int
    seconds: float


def main() -> None:
    """Print one line for each seed and the share that reached the target."""
    print("seed    best  rises  largest   spent  iterations  seconds")
    results = []
    with ProcessPoolExecutor(PROCESSES) as pool:
        for result in pool.map(run_seed, SEEDS):
            results.append(result)
            print(_line(result), flush=True)
    passed = sum(result.best >= TARGET for result in results)
    print(f"{passed} of {len(results)} reach {TARGET}; the lowest is {_lowest(results):.4f}")


def run_seed(seed: int) -> SeedResult:
    """The result of one run of the discovery graph."""
    start = time.perf_counter()
    graph = create_discovery_graph(
        problem("circle_packing"),
        OfflineModel(seed=seed),
        budget=BUDGET,
        seed=seed,
    )
    rows = [row for row in graph.stream({}, stream_mode="custom") if "best_objective" in row]
    bests = [row["best_objective"] for row in rows]
    rises = [later - earlier for earlier, later in pairwise(bests)]
    return SeedResult(
        seed=seed,
        best=bests[-1],
        rises=sum(rise > 0 for rise in rises),
        largest_rise=max(rises),
        spent=rows[-1]["spent"],
        iterations=rows[-1]["iteration"],
        seconds=time.perf_counter() - start,
    )


def _line(result: SeedResult) -> str:
    return (
        f"{result.seed:4d}  {result.best:6.4f}  {result.rises:5d}  {result.largest_rise:7.4f}"
        f"  {result.spent:6.4f}  {result.iterations:10d}  {result.seconds:7.1f}"
    )


def _lowest(results: list[SeedResult]) -> float:
    return min(result.best for result in results)


if __name__ == "__main__":
    main()
