"""How a run speeds up with K calls in flight, and what that costs.

Each row is one `costada run` on circle packing in a process of its own, with the real client and
the real sandbox, against a loopback server (`bench/loopback.py`) that answers after a constant
time, or after a log-normal one. It ends by its budget.

    calls     answers of the server
    seconds   from the first request to the last answer
    speed-up  calls per second, against K = 1
    ideal     speed-up / K
    wall      seconds of the whole command
    start     seconds from its start to the first request
    end       seconds from the last answer to its exit
    in fl.    calls in flight on average, and their maximum
    over      dollars spent beyond the budget, in % of it, and in steps of the run's mean cost
    CPU       milliseconds per iteration between first request and last answer, of all processes
    MB        largest resident memory of one of its processes

The second table is about the budget alone: short runs of many seeds, with a latency of 0.05 s on
average, and their overshoot.

    python bench/parallel.py [--iterations 240] [--parallel 1,2,4,8,16] [--seeds 20] [--quick]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from loopback import Call, Latency, Loopback, constant, log_normal

LATENCIES = {
    "constant 0.75 s": constant(0.75),
    "log-normal, median 0.75 s, p95 2.5 s": log_normal(0.75, 2.5),
}
SHORT = log_normal(0.04, 0.13)
PRICES = {"--price": "0.6,1.92"}
STEP_COST = 0.0029
"""Dollars of a step, about."""

TARGETS = {"constant 0.75 s": 0.95, "log-normal, median 0.75 s, p95 2.5 s": 0.90}
"""Least share of the ideal, for K up to `MAX_TARGET`."""

MAX_TARGET = 8
SHORT_ITERATIONS = 40
SAMPLING = 0.1
"""Seconds between two looks at the CPU time."""

TICK = os.sysconf("SC_CLK_TCK")
HEAD = (
    f"{'K':>4}{'calls':>7}{'seconds':>9}{'speed-up':>10}{'ideal':>7}{'wall':>8}{'start':>7}{'end':>6}"
    f"{'in fl.':>12}{'over %':>8}{'steps':>7}{'CPU':>7}{'MB':>6}"
)


@dataclass(frozen=True)
class Timed:
    """One command: the calls it made, when it began and ended, and what it took.

    `cpu_samples` are pairs of a time and the CPU seconds until then; `megabytes` is the largest
    resident memory of one of its processes.
    """

    calls: Sequence[Call]
    began: float
    ended: float
    cpu_samples: Sequence[tuple[float, float]]
    megabytes: float

    @property
    def seconds(self) -> float:
        """From the first request to the last answer."""
        return self._last - self._first

    @property
    def start(self) -> float:
        """From the start of the command to its first request."""
        return self._first - self.began

    @property
    def end(self) -> float:
        """From the last answer to the exit of the command."""
        return self.ended - self._last

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.calls) / self.seconds

    @property
    def in_flight(self) -> tuple[float, int]:
        """Calls in flight on average, and at most."""
        average = sum(call.ended - call.began for call in self.calls) / self.seconds
        changes = [(call.began, 1) for call in self.calls]
        changes += [(call.ended, -1) for call in self.calls]
        number, most = 0, 0
        for _, change in sorted(changes):
            number += change
            most = max(most, number)
        return average, most

    @property
    def cpu(self) -> float:
        """CPU seconds between the first request and the last answer."""
        within = [sample for sample in self.cpu_samples if self._first <= sample[0] <= self._last]
        (began, before), (ended, after) = within[0], within[-1]
        return (after - before) / (ended - began) * self.seconds

    @property
    def _first(self) -> float:
        return min(call.began for call in self.calls)

    @property
    def _last(self) -> float:
        return max(call.ended for call in self.calls)


@dataclass(frozen=True)
class Measured(Timed):
    """A run of CostAda, with the cost of each step and its budget in dollars."""

    costs: Sequence[float]
    budget: float

    @property
    def overshoot(self) -> tuple[float, float]:
        """Dollars beyond the budget: as a share of it, and in steps of the mean cost."""
        beyond = max(0.0, sum(self.costs) - self.budget)
        return beyond / self.budget, beyond / mean(self.costs)

    @property
    def cpu_per_iteration(self) -> float:
        """CPU milliseconds of an iteration."""
        return 1e3 * self.cpu / len(self.costs)


def timed(
    command: Sequence[str], server: Loopback, environment: Mapping[str, str] | None = None
) -> Timed:
    """Run a command that sends requests to a server; it must succeed."""
    with tempfile.TemporaryFile("w+") as said:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
        samples = []
        ended_pid = 0
        while not ended_pid:
            samples.append((time.monotonic(), cpu_seconds_of_tree(process.pid)))
            time.sleep(SAMPLING)
            ended_pid, status, used = os.wait4(process.pid, os.WNOHANG)
        ended = time.monotonic()
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        assert process.returncode == 0, said.read()
    return Timed(server.take_calls(), began, ended, samples, used.ru_maxrss / 1024)


def measured(
    latency: Latency, parallel: int, iterations: int, seed: int, more: Sequence[str]
) -> Measured:
    """Run the command against a new server; it must end by its budget."""
    budget = iterations * STEP_COST
    with Loopback(latency) as server, tempfile.TemporaryDirectory() as scratch:
        options = {
            "--model": "openai:stand-in",
            "--base-url": server.url,
            **PRICES,
            "--budget": str(budget),
            "--max-iterations": str(10 * iterations),
            "--seed": str(seed),
            "--out": f"{scratch}/run",
        }
        if parallel > 1:
            options["--parallel"] = str(parallel)
        program = str(Path(sys.executable).with_name("costada"))
        words = [word for option in options.items() for word in option]
        run = timed([program, "run", "circle_packing", *words, "--quiet", *more], server)
        rows = map(json.loads, Path(scratch, "run/steps.jsonl").read_text().splitlines())
        costs = [row["step_cost"] for row in rows]
    assert sum(costs) >= budget, "the run ended before its budget was used up"
    return Measured(**vars(run), costs=costs, budget=budget)


def cpu_seconds_of_tree(pid: int) -> float:
    """CPU seconds so far of a process and all its descendants, also of those that have ended."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(folder.name)] = int(fields[1])
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    tree, found = set[int](), {pid}
    while found:
        tree |= found
        found = {child for child, parent in parents.items() if parent in found}
    return sum(ticks.get(member, 0) for member in tree) / TICK


def print_speed(numbers: Sequence[int], iterations: int, more: Sequence[str]) -> None:
    """Print a table for each kind of latency."""
    for name, latency in LATENCIES.items():
        print(f"\n{name}\n{HEAD}")
        single = None
        for parallel in numbers:
            run = measured(latency, parallel, iterations, 0, more)
            single = single or run.rate * numbers[0] / parallel
            speed_up = run.rate / single
            share = speed_up / parallel
            average, most = run.in_flight
            over, steps = run.overshoot
            print(
                f"{parallel:4}{len(run.calls):7}{run.seconds:9.1f}{speed_up:10.2f}{share:7.3f}"
                f"{run.ended - run.began:8.1f}{run.start:7.2f}{run.end:6.2f}{average:9.2f}{most:3}"
                f"{100 * over:8.2f}{steps:7.2f}{run.cpu_per_iteration:7.1f}{run.megabytes:6.0f}"
                f"{verdict(name, parallel, share)}",
                flush=True,
            )


def verdict(name: str, parallel: int, share: float) -> str:
    """A note where a row has a target and does not reach it."""
    has_target = 1 < parallel <= MAX_TARGET
    return f"  below {TARGETS[name]:.2f}" if has_target and share < TARGETS[name] else ""


def print_overshoot(numbers: Sequence[int], seeds: int, more: Sequence[str]) -> None:
    """Print the overshoot of short runs over many seeds."""
    print(f"\novershoot of {seeds} runs of about {SHORT_ITERATIONS} steps")
    print(f"{'K':>4}{'mean %':>9}{'max %':>8}{'mean steps':>12}{'max steps':>11}")
    for parallel in numbers:
        runs = [measured(SHORT, parallel, SHORT_ITERATIONS, seed, more) for seed in range(seeds)]
        shares, steps = zip(*(run.overshoot for run in runs), strict=True)
        print(
            f"{parallel:4}{100 * mean(shares):9.2f}{100 * max(shares):8.2f}"
            f"{mean(steps):12.2f}{max(steps):11.2f}",
            flush=True,
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=240, help="of each run, about")
    parser.add_argument("--parallel", default="1,2,4,8,16", help="values of K", metavar="K,K,...")
    parser.add_argument("--seeds", type=int, default=20, help="of the runs for the overshoot")
    parser.add_argument("--quick", action="store_true", help="80 iterations, 5 seeds")
    parser.add_argument("more", nargs="*", help="options for `costada run`, after --")
    options = parser.parse_args()
    numbers = [int(number) for number in options.parallel.split(",")]
    iterations, seeds = (80, 5) if options.quick else (options.iterations, options.seeds)
    print_speed(numbers, iterations, options.more)
    if seeds:
        print_overshoot(numbers, seeds, options.more)


if __name__ == "__main__":
    main()
