"""Simulated runs against runs of the graph, point by point, and how long each kind takes.

The graph runs on the landscape with the simulated model. The simulation is given the answers that
the graph got, and has to reach the same dollars and scores after every step. Methods that remember
failed programs are left out, as the simulated model has no answer to a failed parent.

    python bench/simulated_runs.py

Prints, for each method, the runs that are equal and the milliseconds of CPU per run: of the graph,
and of the simulation alone on the landscape and in a recorded world. The exit code is 1 if a run
differs.
"""

import argparse
import sys
from pathlib import Path
from time import process_time

from costada.controller.constants import Constants
from costada.controller.methods import METHODS
from costada.plugins.lab.landscape.simulation import SimulatedRun, simulate_run
from costada.store.run_store import RunStore

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from replayed_answers import ReplayedAnswers, graph_run

WORLDS = ("landscape", "context+runs")


def equal_runs(method: str, seeds: int, budget: float) -> tuple[int, float]:
    """How many runs of the simulation equal those of the graph, and seconds of CPU per graph."""
    num_equal, seconds = 0, 0.0
    for seed in range(seeds):
        with RunStore() as store:
            started = process_time()
            _, rows = graph_run(method, seed, budget, Constants(), store)
            seconds += process_time() - started
            (run_id,) = store.run_ids()
            answers = ReplayedAnswers(store.call_log.calls(run_id))
            run = SimulatedRun(method, seed, budget, Constants(), answers)
            for _ in run.steps():
                pass
        points = [(point.spent, point.best_score) for point in run.outcome().points]
        num_equal += points == [(row["spent"], row["best_score"]) for row in rows]
    return num_equal, seconds / seeds


def seconds_per_run(method: str, seeds: int, budget: float, world: str) -> float:
    """Seconds of CPU of a simulated run, after one to fill the caches."""
    simulate_run(method, seeds, budget, world=world)
    started = process_time()
    for seed in range(seeds):
        simulate_run(method, seed, budget, world=world)
    return (process_time() - started) / seeds


def main() -> int:
    """Print a line for each method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=float, default=1.0)
    given = parser.parse_args()
    print(f"{'method':24}{'equal':>10}{'graph':>10}" + "".join(f"{each:>16}" for each in WORLDS))
    is_equal = True
    for method in given.methods.split(","):
        equal, graph = "-", "-"
        if not hasattr(METHODS[method].kind, "search"):
            found, seconds = equal_runs(method, given.seeds, given.budget)
            equal, graph = f"{found} of {given.seeds}", f"{seconds * 1000:.0f}"
            is_equal = is_equal and found == given.seeds
        simulated = [
            f"{seconds_per_run(method, given.seeds, given.budget, world) * 1000:.1f}"
            for world in WORLDS
        ]
        print(f"{method:24}{equal:>10}{graph:>10}" + "".join(f"{each:>16}" for each in simulated))
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
