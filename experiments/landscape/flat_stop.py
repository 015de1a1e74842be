"""What stopping saves and loses when another gain has become unlikely, in simulated runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from rich.console import Console

from costada.experiments.comparison.comparison import summarize
from costada.experiments.comparison.metrics import Point, RunOutcome
from costada.experiments.landscape.batch import LEGENDS, Batch, cell
from costada.experiments.landscape.simulation import simulate_run
from costada.reports.terminal import TerminalTable

PATIENCE = (0.5, 1.0, 2.0)
"""Dollars without a gain after which proportional patience ends, in those up to the last gain."""

LEAST_SHARE = 0.1
"""Part of the budget that counts as spent up to the last gain, at least."""


@dataclass(frozen=True, slots=True)
class Stop:
    """One rule that ended a run: the share of the spending saved, and the score given up."""

    saved: float
    lost: float


@dataclass(frozen=True, slots=True)
class StoppedRun:
    """A run of a method to its end, and what stopping earlier would have changed.

    `flat` is the run with a threshold; `patient` is what proportional patience does, by `PATIENCE`.
    """

    method: str
    seed: int
    flat: Stop
    patient: tuple[Stop, ...]


def stopped_run(run: tuple[str, int], threshold: float, batch: Batch) -> StoppedRun:
    """Simulate a method with a seed to its end, and again with the threshold."""
    method, seed = run
    full, flat = (
        simulate_run(
            method,
            seed,
            batch.budget,
            parallel=batch.parallel,
            world=batch.world,
            stop_when_flat=each,
        )
        for each in (None, threshold)
    )
    ends = [full.points[patient_end(full, each)] for each in PATIENCE]
    patient = tuple(_stop_at(end, full) for end in ends)
    return StoppedRun(method, seed, _stop_at(flat.points[-1], full), patient)


def patient_end(run: RunOutcome, patience: float) -> int:
    """Place of the last point where a run ends after as many dollars without a gain.

    Args:
        run: A run to its end.
        patience: Dollars without a gain, in dollars spent up to the last gain or, if that is more,
            in `LEAST_SHARE` of the budget.
    """
    best, gained_at = run.seed_score, 0.0
    for place, point in enumerate(run.points):
        if point.best_score > best:
            best, gained_at = point.best_score, point.spent
        elif point.spent - gained_at >= patience * max(gained_at, LEAST_SHARE * run.budget):
            return place
    return len(run.points) - 1


def _stop_at(end: Point, full: RunOutcome) -> Stop:
    last = full.points[-1]
    return Stop(1.0 - end.spent / last.spent, last.best_score - end.best_score)


def flat_runs(batch: Batch) -> list[tuple[str, int]]:
    """Method and seed of every run, seed by seed."""
    return [(method, seed) for seed, method in product(batch.seeds, batch.methods)]


def print_flat(
    found: Sequence[StoppedRun], threshold: float, batch: Batch, console: Console
) -> None:
    """Print what each rule saves and loses, by method, with paired intervals."""
    rows = []
    for method in batch.methods:
        runs = [run for run in found if run.method == method]
        rules = {f"P = {threshold:g}": [run.flat for run in runs]}
        for place, patience in enumerate(PATIENCE):
            rules[f"patience {patience:g}"] = [run.patient[place] for run in runs]
        for rule, stops in rules.items():
            early = fmean(stop.saved > 0 for stop in stops)
            saved, lost = (
                cell(summarize([[getattr(stop, name) for stop in stops]]), form)
                for name, form in (("saved", ".1%"), ("lost", ".4f"))
            )
            rows.append((method, rule, f"{early:.0%}", saved, lost))
    header = ("method", "rule", "stopped early", "dollars saved", "final score lost")
    TerminalTable(header, rows, words=("method", "rule")).print(console)
    console.print(
        "P: the run ends when the posterior chance of another gain is below P. patience: when as"
        " many\ndollars in a row bring nothing, in dollars spent up to the last gain, or in a tenth"
        " of the\nbudget if that is more."
    )
    console.print(LEGENDS[batch.world])
