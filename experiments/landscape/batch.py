"""Simulated runs in parallel processes, and their result as tables."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context

from rich.console import Console

from costada.controller.methods import DEFAULT_METHOD, METHODS
from costada.experiments.comparison.comparison import (
    AUC,
    COST,
    FINAL_SCORE,
    ITERATIONS,
    OVERSHOOT,
    Section,
    Summary,
    dollars_metric,
    runs_by_method,
    section_of,
    summarize,
)
from costada.experiments.comparison.metrics import RunOutcome, normalized_auc
from costada.experiments.landscape.simulation import simulate_run
from costada.reports.formats import percent
from costada.reports.terminal import TerminalTable
from costada.runs.user_input import listed_or_all, unknown_name

RUNS_PER_TASK = 8
"""Runs that a process gets at once: few enough for frequent progress updates."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The runs of a simulation: every method on the landscape of every seed.

    With several steps in flight, each run is made again with one, to be compared with.
    """

    methods: tuple[str, ...]
    seeds: tuple[int, ...]  # where each run's randomness starts
    budget: float  # dollars of each run (B)
    parallel: int = 1  # most steps in flight (K)

    @property
    def runs(self) -> list[tuple[str, int, int]]:
        """The method, the seed and the steps in flight of each run, seed by seed."""
        widths = sorted({1, self.parallel})
        return [
            (method, seed, width)
            for seed, method, width in product(self.seeds, self.methods, widths)
        ]


def methods_named(text: str) -> tuple[str, ...]:
    """The methods of a list with commas, or all of them.

    Raises:
        ValueError: If a name is unknown or occurs twice, or there is none.
    """
    names = listed_or_all("--methods", text, METHODS)
    for name in names:
        if name not in METHODS:
            raise ValueError(unknown_name("method", name, METHODS))
    if len(set(names)) < len(names):
        raise ValueError(f"--methods: got {text!r}, expected different methods")
    return names


@contextmanager
def simulated(batch: Batch, num_jobs: int) -> Iterator[Iterator[RunOutcome]]:
    """Iterate over the finished runs in any order; leaving the block stops the others.

    With one job, this process does the work.
    """
    work = partial(_simulated, budget=batch.budget)
    if num_jobs == 1:
        yield map(work, batch.runs)
        return
    # Ctrl-C is for this process to handle, not for its workers.
    ignoring = (signal.SIGINT, signal.SIG_IGN)
    with get_context("spawn").Pool(num_jobs, signal.signal, ignoring) as pool:
        yield pool.imap_unordered(work, batch.runs, chunksize=RUNS_PER_TASK)


def _simulated(run: tuple[str, int, int], budget: float) -> RunOutcome:
    method, seed, parallel = run
    return simulate_run(method, seed, budget, parallel=parallel)


def in_order(batch: Batch, outcomes: Sequence[RunOutcome]) -> list[RunOutcome]:
    """The runs by seed, method and steps in flight, so that a batch always reads the same."""
    places = {run: place for place, run in enumerate(batch.runs)}
    return sorted(outcomes, key=lambda each: places[each.method, each.seed, steps_in_flight(each)])


def steps_in_flight(outcome: RunOutcome) -> int:
    """The most steps that a simulated run had in flight (K)."""
    return int(outcome.settings.get("parallel", "1"))


def _final_score(outcome: RunOutcome) -> float:
    return outcome.points[-1].best_score


def _final_overshoot(outcome: RunOutcome) -> float:
    return sum(outcome.dollars_by_role.values()) / outcome.budget - 1.0


PARALLEL_METRICS: Mapping[str, tuple[Callable[[RunOutcome], float], str]] = {
    "AUC": (normalized_auc, ".4f"),
    "final score": (_final_score, ".4f"),
    "overshoot": (_final_overshoot, ".2%"),
}
"""What a run with several steps in flight is compared by, and how that is written.

Score and overshoot are taken when the last step in flight has landed.
"""


def print_parallel(outcomes: Sequence[RunOutcome], parallel: int, console: Console) -> None:
    """Print each metric with one step in flight, with several, and the paired difference."""
    runs = {(each.method, steps_in_flight(each), each.seed): each for each in outcomes}
    methods = dict.fromkeys(each.method for each in outcomes)
    seeds = sorted({each.seed for each in outcomes})
    for heading, (metric, form) in PARALLEL_METRICS.items():
        rows = []
        for method in methods:
            one = [metric(runs[method, 1, seed]) for seed in seeds]
            several = [metric(runs[method, parallel, seed]) for seed in seeds]
            gaps = [after - before for before, after in zip(one, several, strict=True)]
            summaries = (summarize([one]), summarize([several]))
            difference = _cell(summarize([gaps]), f"+{form}")
            rows.append((method, *(f"{each.mean:{form}}" for each in summaries), difference))
        header = (heading, "K = 1", f"K = {parallel}", "difference")
        TerminalTable(header, rows, words=(heading,)).print(console)
    console.print(f"{LEGEND}\n{len(seeds)} seeds; log-normal latencies in virtual time.")


LEGEND = (
    "Means over seeds with 95 % bootstrap intervals; differences are paired by seed."
    "\nThe landscape is simulated: no language model answered."
)


def section_of_outcomes(outcomes: Sequence[RunOutcome]) -> Section:
    """Summaries and differences of the runs of one simulation."""
    problem, runs = outcomes[0].problem, runs_by_method(outcomes)
    return section_of({name: {problem: runs[name]} for name in runs}, DEFAULT_METHOD)


def _quality(section: Section, heading: str, metric: str) -> TerminalTable:
    against = f"minus {section.baseline}" if section.baseline else ""
    rows = []
    for name, found in section.summaries.items():
        difference = section.differences.get(name, {}).get(metric)
        rows.append((name, _cell(found.get(metric), ".4f"), _cell(difference, "+.4f")))
    return TerminalTable(("method", heading, against), rows, words=("method",), optional=(against,))


def _spending(section: Section) -> TerminalTable:
    header = ("method", "guide $", "iterations", "overshoot", "largest", "runs")
    rows = [
        (
            name,
            f"{found[dollars_metric('guide')].mean / found[COST].mean:.1%}",
            f"{found[ITERATIONS].mean:.1f}",
            percent(found[OVERSHOOT].mean),
            percent(found[OVERSHOOT].largest),
            str(found[COST].n),
        )
        for name, found in section.summaries.items()
    ]
    return TerminalTable(header, rows, words=("method",), optional=("runs", "largest", "guide $"))


def print_section(section: Section, console: Console) -> None:
    """Print quality and spending of every method."""
    _quality(section, "AUC", AUC).print(console)
    _quality(section, "final score", FINAL_SCORE).print(console)
    _spending(section).print(console)
    console.print(LEGEND)


def _cell(summary: Summary | None, form: str) -> str:
    if summary is None:
        return "-"
    if summary.interval is None:
        return f"{summary.mean:{form}}"
    low, high = summary.interval.low, summary.interval.high
    return f"{summary.mean:{form}} [{low:{form}}, {high:{form}}]"
