"""What stopping saves and loses when another gain has become unlikely, in simulated runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from rich.console import Console

from costada.experiments.comparison.comparison import summarize
from costada.experiments.comparison.metrics import Point, RunOutcome
from costada.plugins.lab.landscape.simulation import simulate_run
from costada.plugins.lab.landscape.simulation_batch import LEGENDS, Batch, cell
from costada.reports.terminal import TerminalTable

PATIENCE = (0.5, 1.0, 2.0)
"""Dollars without a gain after which proportional patience ends, in those up to the last gain."""

MIN_SHARE = 0.1
"""Part of the budget that counts as spent up to the last gain, at least."""


@dataclass(frozen=True, slots=True)
class Stop:
    """One rule that ended a run: the share of the spending saved, and the score given up."""

    saved: float
    lost: float


@dataclass(frozen=True, slots=True)
class StoppedRun:
    """A run of a method to its end, and what stopping earlier would have changed.

    `full` is how the run ended; `flat` is the run with a threshold; `patient` is what proportional
    patience does, by `PATIENCE`.
    """

    method: str
    seed: int
    full: Point
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
    last = full.points[-1]
    patient = tuple(_stop_at(end, last) for end in ends)
    return StoppedRun(method, seed, last, _stop_at(flat.points[-1], last), patient)


def equal_budgets(found: Sequence[StoppedRun], batch: Batch) -> dict[str, float]:
    """The smaller budget of each method that saves as many dollars as the threshold does."""
    return {
        method: batch.budget
        * (1.0 - fmean(run.flat.saved for run in found if run.method == method))
        for method in batch.methods
    }


def with_smaller_budget(
    run: StoppedRun, budgets: Mapping[str, float], batch: Batch
) -> tuple[StoppedRun, Stop]:
    """The run, and what it saves and loses with the smaller budget of its method."""
    smaller = simulate_run(
        run.method, run.seed, budgets[run.method], parallel=batch.parallel, world=batch.world
    )
    return run, _stop_at(smaller.points[-1], run.full)


def patient_end(run: RunOutcome, patience: float) -> int:
    """Place of the last point where a run ends after as many dollars without a gain.

    Args:
        run: A run to its end.
        patience: Dollars without a gain, in dollars spent up to the last gain or, if that is more,
            in `MIN_SHARE` of the budget.
    """
    best, gained_at = run.seed_score, 0.0
    for place, point in enumerate(run.points):
        if point.best_score > best:
            best, gained_at = point.best_score, point.spent
        elif point.spent - gained_at >= patience * max(gained_at, MIN_SHARE * run.budget):
            return place
    return len(run.points) - 1


def _stop_at(end: Point, last: Point) -> Stop:
    return Stop(1.0 - end.spent / last.spent, last.best_score - end.best_score)


def flat_runs(batch: Batch) -> list[tuple[str, int]]:
    """Method and seed of every run, seed by seed."""
    return [(method, seed) for seed, method in product(batch.seeds, batch.methods)]


def print_flat(
    found: Sequence[tuple[StoppedRun, Stop]],
    budgets: Mapping[str, float],
    threshold: float,
    batch: Batch,
    console: Console,
) -> None:
    """Print what each rule saves and loses, by method, with paired intervals.

    Each run stands beside what it saves and loses with the smaller budget of its method.
    """
    rows, differences = [], []
    for method in batch.methods:
        pairs = [pair for pair in found if pair[0].method == method]
        runs, smaller = [run for run, _ in pairs], [stop for _, stop in pairs]
        rules = {f"P = {threshold:g}": [run.flat for run in runs]}
        rules[f"budget ${budgets[method]:.3f}"] = smaller
        gaps = [stop.lost - run.flat.lost for run, stop in pairs]
        differences.append(f"{method} {cell(summarize([gaps]), '+.4f')}")
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
        f"Final score of P = {threshold:g} minus that of the smaller budget, which saves as much:"
        f" {'; '.join(differences)}.",
        markup=False,
    )
    console.print(
        "P: the run ends when the posterior chance of another gain is below P. patience: when as"
        " many\ndollars in a row bring nothing, in dollars spent up to the last gain, or in a tenth"
        " of the\nbudget if that is more."
    )
    console.print(LEGENDS[batch.world])
