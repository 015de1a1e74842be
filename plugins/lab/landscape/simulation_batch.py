"""Simulated runs in parallel processes, and their result as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product

from rich.console import Console

from costada.controller.methods import DEFAULT_METHOD
from costada.experiments.comparison.comparison import (
    AUC,
    COST,
    FINAL_SCORE,
    ITERATIONS,
    OVERSHOOT,
    Section,
    Summary,
    dollars_metric,
    runs_by,
    section_of,
    summarize,
)
from costada.experiments.comparison.metrics import RunOutcome, normalized_auc
from costada.plugins.lab.landscape.simulation import simulate_run
from costada.plugins.lab.landscape.worlds import LANDSCAPE, WORLDS
from costada.plugins.lab.processes import in_processes
from costada.reports.formats import percent
from costada.reports.terminal import TerminalTable


@dataclass(frozen=True, slots=True)
class Batch:
    """The runs of a simulation: every method with every seed in one world.

    With several steps in flight, each run is made again with one, to be compared with.
    """

    methods: tuple[str, ...]
    seeds: tuple[int, ...]  # where each run's randomness starts
    budget: float  # dollars of each run (B)
    parallel: int = 1  # most steps in flight (K)
    world: str = LANDSCAPE  # of `WORLDS`

    @property
    def runs(self) -> list[tuple[str, int, int]]:
        """The method, the seed and the steps in flight of each run, seed by seed."""
        widths = sorted({1, self.parallel})
        return [
            (method, seed, width)
            for seed, method, width in product(self.seeds, self.methods, widths)
        ]


@contextmanager
def simulate_batch(batch: Batch, num_jobs: int) -> Iterator[Iterator[RunOutcome]]:
    """Iterate over the finished runs; see `in_processes`."""
    work = partial(_simulate, budget=batch.budget, world=batch.world)
    with in_processes(work, batch.runs, num_jobs) as outcomes:
        yield outcomes


def _simulate(run: tuple[str, int, int], budget: float, world: str) -> RunOutcome:
    method, seed, parallel = run
    return simulate_run(method, seed, budget, parallel=parallel, world=world)


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


def print_parallel(
    outcomes: Sequence[RunOutcome], parallel: int, world: str, console: Console
) -> None:
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
            difference = cell(summarize([gaps]), f"+{form}")
            rows.append((method, *(f"{each.mean:{form}}" for each in summaries), difference))
        header = (heading, "K = 1", f"K = {parallel}", "difference")
        TerminalTable(header, rows, words=(heading,)).print(console)
    console.print(f"{LEGENDS[world]}\n{len(seeds)} seeds; log-normal latencies in virtual time.")


MEANS = "Means over seeds with 95 % bootstrap intervals; differences are paired by seed."

RECORDED_LEGEND = (
    f"{MEANS}\nOutcomes are drawn from recorded ones of one model on one problem; the intervals do"
    " not include how few they are."
)

LEGENDS = dict.fromkeys(WORLDS, RECORDED_LEGEND) | {
    LANDSCAPE: f"{MEANS}\nThe landscape is simulated: no language model answered."
}
"""What a reader must know of the tables, by world."""


def section_of_outcomes(outcomes: Sequence[RunOutcome]) -> Section:
    """Summaries and differences of the runs of one simulation."""
    problem, runs = outcomes[0].problem, runs_by("method", outcomes)
    return section_of({name: {problem: runs[name]} for name in runs}, DEFAULT_METHOD)


def _quality(section: Section, heading: str, metric: str) -> TerminalTable:
    against = f"minus {section.baseline}" if section.baseline else ""
    rows = []
    for name, found in section.summaries.items():
        difference = section.differences.get(name, {}).get(metric)
        rows.append((name, cell(found.get(metric), ".4f"), cell(difference, "+.4f")))
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


def print_section(section: Section, world: str, console: Console) -> None:
    """Print quality and spending of every method."""
    _quality(section, "AUC", AUC).print(console)
    _quality(section, "final score", FINAL_SCORE).print(console)
    _spending(section).print(console)
    console.print(LEGENDS[world])


def cell(summary: Summary | None, form: str) -> str:
    """A mean with its interval, as far as there is one."""
    if summary is None:
        return "-"
    if summary.interval is None:
        return f"{summary.mean:{form}}"
    low, high = summary.interval.low, summary.interval.high
    return f"{summary.mean:{form}} [{low:{form}}, {high:{form}}]"
