"""What a step costs CostAda, OpenEvolve and GEPA beside its model call, as tables.

The tools take turns on the same problem and against a new loopback provider each, so that a busy
machine slows all of them. Medians with range. With K = 1 the provider answers at once:

    wall, CPU    milliseconds per iteration between the first request and the last answer; CPU of
                 all processes
    requests     per iteration; CostAda also buys guides
    CPU/request  milliseconds
    start, end   seconds from the start to the first request, and from the last answer to the exit
    MB           largest resident memory of one process

With several calls in flight, `share` is the average number of requests in flight, divided by K. The
targets are printed beside what is measured.
"""

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from loopback import Latency, Loopback, constant, log_normal
from parallel import Timed, timed
from peer_tools import ENVIRONMENT, GOOD, Limits, Peers, programs, write_problem

LENGTHS = (200, 1000)
BUDGET = 1000.0
"""Dollars that no run uses up."""


@dataclass(frozen=True)
class Case:
    """Runs with K calls in flight."""

    name: str
    latency: Latency
    parallel: int
    iterations: int


CASES = (
    Case("0.75 s", constant(0.75), 8, 160),
    Case("log-normal 0.75 s", log_normal(0.75, 2.5), 8, 160),
    Case("2 s", constant(2.0), 64, 640),
    Case("0.05 s", constant(0.05), 64, 640),
)
COLUMNS: dict[str, Callable[[Timed, int], float]] = {
    "wall": lambda run, iterations: 1e3 * run.seconds / iterations,
    "CPU": lambda run, iterations: 1e3 * run.cpu / iterations,
    "requests": lambda run, iterations: len(run.calls) / iterations,
    "CPU/request": lambda run, iterations: 1e3 * run.cpu / len(run.calls),
    "start": lambda run, iterations: run.start,
    "end": lambda run, iterations: run.end,
    "MB": lambda run, iterations: run.megabytes,
}


MAX_START, MAX_END, MAX_WALL = 1.2, 0.5, 1.2
"""Seconds, seconds, and wall time relative to OpenEvolve."""

MAX_MEGABYTES = {200: 150.0, 1000: 180.0}
SHARE_OF_OPENEVOLVE = {200: 1.0, 1000: 0.5}
MIN_SHARE = {"0.75 s": 0.95, "log-normal 0.75 s": 0.92}
MIN_RATE = {"2 s": 30.0, "0.05 s": 50.0}


def timed_run(name: str, peers: Peers, latency: Latency, limits: Limits) -> Timed:
    """Run a tool on a new problem folder against a new provider."""
    with Loopback(latency, programs) as server, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "problem")
        write_problem(folder, server.url, GOOD, limits)
        return timed(peers.tools(server.url, limits)[name].begin(folder), server, ENVIRONMENT)


def runs_by_turns(
    peers: Peers, latency: Latency, limits: Limits, repeats: int
) -> dict[str, list[Timed]]:
    """Several runs of each tool; the tools take turns, in a random order each time."""
    names = list(peers.tools("", Limits()))
    runs: dict[str, list[Timed]] = {name: [] for name in names}
    rng = random.Random(limits.iterations)
    for _ in range(repeats):
        for name in rng.sample(names, len(names)):
            runs[name].append(timed_run(name, peers, latency, limits))
    return runs


@dataclass(frozen=True)
class Target:
    """What CostAda should reach, at most or at least, and what was measured."""

    name: str
    wanted: float
    found: float
    is_most: bool = True

    @property
    def line(self) -> str:
        """A line of the table, which says so if the target is missed."""
        is_met = self.found <= self.wanted if self.is_most else self.found >= self.wanted
        bound = "at most" if self.is_most else "at least"
        numbers = f"{bound:>9}{self.wanted:8.3g}{self.found:10.3g}"
        return f"{self.name:56}{numbers}{'' if is_met else '  missed'}"


def print_costs(peers: Peers, repeats: int) -> None:
    """Print the tables, and a line for each target."""
    targets = list[Target]()
    for iterations in LENGTHS:
        runs = runs_by_turns(peers, constant(0.0), Limits(iterations, BUDGET), repeats)
        print(f"\n{iterations} iterations, K = 1")
        print(" " * 12 + "".join(f"{name:>22}" for name in COLUMNS))
        for name, mine in runs.items():
            values = [[column(run, iterations) for run in mine] for column in COLUMNS.values()]
            print_row(f"{name:12}", values)
        targets += single_targets(runs, iterations)
    print(f"\n{'K':>4}  {'latency':20}{'tool':12}", end="")
    print("".join(f"{name:>22}" for name in ("iterations/s", "requests/s", "share")))
    for case in CASES:
        limits = Limits(case.iterations, BUDGET, case.parallel)
        runs = runs_by_turns(peers, case.latency, limits, repeats)
        for name, mine in runs.items():
            values = [
                [case.iterations / run.seconds for run in mine],
                [run.rate for run in mine],
                [run.in_flight[0] / case.parallel for run in mine],
            ]
            print_row(f"{case.parallel:4}  {case.name:20}{name:12}", values)
        targets += parallel_targets(runs, case)
    print(f"\n{'target':56}{'wanted':>17}{'measured':>10}")
    for target in targets:
        print(target.line)


def print_row(head: str, columns: Sequence[Sequence[float]]) -> None:
    """Print a row with the median of each column and its range."""
    cells = [f"{median(each):.3g} [{min(each):.3g}, {max(each):.3g}]" for each in columns]
    print(head + "".join(f"{cell:>22}" for cell in cells), flush=True)


def single_targets(runs: dict[str, list[Timed]], iterations: int) -> list[Target]:
    """What CostAda should reach with one call in flight, beside the others."""
    at = f"at {iterations}"

    def middle(tool: str, column: str) -> float:
        return median(COLUMNS[column](run, iterations) for run in runs[tool])

    cpu, wall = middle("CostAda", "CPU/request"), middle("CostAda", "wall")
    megabytes = MAX_MEGABYTES[iterations]
    targets = [
        Target(f"start {at}, s", MAX_START, middle("CostAda", "start")),
        Target(f"end {at}, s", MAX_END, middle("CostAda", "end")),
        Target(f"memory {at}, MB", megabytes, middle("CostAda", "MB")),
    ]
    if "OpenEvolve" in runs:
        share = SHARE_OF_OPENEVOLVE[iterations]
        limit = share * middle("OpenEvolve", "CPU/request")
        targets.append(Target(f"CPU per request {at}, {share} of OpenEvolve, ms", limit, cpu))
        if iterations == min(LENGTHS):
            limit = MAX_WALL * middle("OpenEvolve", "wall")
            targets.append(Target(f"wall {at}, {MAX_WALL} of OpenEvolve, ms", limit, wall))
    if "GEPA" in runs and iterations == max(LENGTHS):
        limit = middle("GEPA", "CPU/request")
        targets.append(Target(f"CPU per request {at}, that of GEPA, ms", limit, cpu))
    return targets


def parallel_targets(runs: dict[str, list[Timed]], case: Case) -> list[Target]:
    """What CostAda should reach with several calls in flight."""
    at = f"K = {case.parallel}, {case.name}"
    rate = {
        name: median(case.iterations / run.seconds for run in mine) for name, mine in runs.items()
    }
    targets = []
    if wanted := MIN_SHARE.get(case.name):
        share = median(run.in_flight[0] / case.parallel for run in runs["CostAda"])
        targets.append(Target(f"share of the ideal, {at}", wanted, share, is_most=False))
        if "OpenEvolve" in rate:
            name = f"iterations/s, {at}, those of OpenEvolve"
            targets.append(Target(name, rate["OpenEvolve"], rate["CostAda"], is_most=False))
    if wanted := MIN_RATE.get(case.name):
        targets.append(Target(f"iterations/s, {at}", wanted, rate["CostAda"], is_most=False))
    return targets
