"""What the runs of one model and budget were worth: every metric, by method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import fmean, stdev

from costada.controller.methods import METHODS
from costada.runs.comparison import metrics
from costada.runs.comparison.metrics import CUTOFFS, Curve
from costada.runs.comparison.outcome import RunOutcome
from costada.runs.comparison.resampling import FEWEST, Interval, mean_interval
from costada.runs.spending import ROLES

Metric = Callable[[RunOutcome], float | None]
Runs = Mapping[str, tuple[RunOutcome, ...]]
"""Runs of one method by problem, those of a problem by seed."""

SCORES = {cutoff: f"score_at_{cutoff:g}" for cutoff in CUTOFFS}
OBJECTIVES = {cutoff: f"objective_at_{cutoff:g}" for cutoff in CUTOFFS}
FINAL_SCORE, FINAL_OBJECTIVE = SCORES[1.0], OBJECTIVES[1.0]
AUC, COST, OVERSHOOT, ITERATIONS = "normalized_auc", "cost", "overshoot_ratio", "iterations"
COMPARED: Mapping[str, Callable[[RunOutcome], float]] = {
    AUC: metrics.normalized_auc,
    FINAL_SCORE: partial(metrics.best_score_at, cutoff=1.0),
}
"""Metrics whose differences to the baseline are given."""
POOLED = (COST, OVERSHOOT, ITERATIONS)
"""Metrics averaged over all runs alike, whatever their problem (App. I)."""


def dollars_metric(role: str) -> str:
    """Return the name of the metric that is the dollars of a role's calls."""
    return f"dollars_{role}"


@dataclass(frozen=True, slots=True)
class Summary:
    """The values of a metric over runs.

    Attributes:
        mean: Their mean; over several problems, the mean of the means of each.
        std: Sample standard deviation (n-1); None over several problems or for a single run.
        n: How many values there are.
        smallest: The least of them.
        largest: The greatest of them.
        interval: Of the mean; None where a problem has fewer than two values.
    """

    mean: float
    std: float | None
    n: int
    smallest: float
    largest: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Section:
    """The runs that can be compared with each other: one model, one budget, the same problems.

    Attributes:
        problems: What was solved; several for an average over benchmarks.
        model: Model id.
        budget: Dollars each run might spend (B).
        is_minimized: Whether a smaller objective is better; None over several problems.
        runs: By method, in the order in which methods are shown.
        summaries: By method, then metric.
        baseline: Whom the differences refer to; None if it has no run here.
        differences: By method, then metric: run minus the baseline's run of the same seed.
        shares: By methods A and B: smallest share of the budget at which A's mean curve reaches
            the mean score that B has at the end.
    """

    problems: tuple[str, ...]
    model: str
    budget: float
    is_minimized: bool | None
    runs: Mapping[str, Runs]
    summaries: Mapping[str, Mapping[str, Summary]]
    baseline: str | None
    differences: Mapping[str, Mapping[str, Summary]]
    shares: Mapping[tuple[str, str], float | None]


def ordered_methods(names: set[str]) -> list[str]:
    """Return names of methods as they are always shown: ours in their order, others after them."""
    known = [name for name in METHODS if name in names]
    return [*known, *sorted(names - set(known))]


def section_of(runs: Mapping[str, Runs], baseline: str) -> Section:
    """Return what the runs of one model and budget, by method, were worth.

    Args:
        runs: The runs; every method has the same problems.
        baseline: Whom differences refer to, if it is among the methods.
    """
    by_problem = next(iter(runs.values()))
    first = next(iter(by_problem.values()))[0]
    is_single = len(by_problem) == 1
    summaries = {method: _summaries(of_method, is_single) for method, of_method in runs.items()}
    compared = runs.get(baseline)
    return Section(
        problems=tuple(by_problem),
        model=first.model,
        budget=first.budget,
        is_minimized=first.is_minimized if is_single else None,
        runs=runs,
        summaries=summaries,
        baseline=baseline if compared else None,
        differences={
            method: _differences(of_method, compared)
            for method, of_method in runs.items()
            if compared and method != baseline
        },
        shares=_shares(runs, summaries),
    )


def _summaries(runs: Runs, is_single: bool) -> dict[str, Summary]:
    scores: dict[str, Metric] = {
        SCORES[cutoff]: partial(metrics.best_score_at, cutoff=cutoff) for cutoff in CUTOFFS
    }
    objectives: dict[str, Metric] = {
        OBJECTIVES[cutoff]: partial(metrics.objective_at, cutoff=cutoff) for cutoff in CUTOFFS
    }
    others: dict[str, Metric] = {
        AUC: metrics.normalized_auc,
        COST: metrics.cost_at_crossing,
        OVERSHOOT: metrics.overshoot_ratio,
        ITERATIONS: lambda outcome: float(metrics.crossing(outcome).iteration),
    }
    dollars: dict[str, Metric] = {
        dollars_metric(role): partial(_dollars, role=role) for role in roles_of(runs)
    }
    wanted = {**scores, **(objectives if is_single else {}), **others, **dollars}
    found = {name: _values(runs, name, metric) for name, metric in wanted.items()}
    return {name: summarize(strata) for name, strata in found.items() if all(strata)}


def roles_of(runs: Runs) -> list[str]:
    """Return the roles that calls of the runs were paid for, ours first."""
    named = {role for some in runs.values() for run in some for role in run.dollars_by_role}
    return [*(role for role in ROLES if role in named), *sorted(named - set(ROLES))]


def _dollars(outcome: RunOutcome, role: str) -> float:
    return outcome.dollars_by_role.get(role, 0.0)


def _values(runs: Runs, name: str, metric: Metric) -> list[list[float]]:
    by_problem = [
        [value for value in map(metric, some) if value is not None] for some in runs.values()
    ]
    return [list(chain.from_iterable(by_problem))] if name in POOLED else by_problem


def summarize(strata: Sequence[Sequence[float]]) -> Summary:
    """Return the summary of values, given by problem; every problem has some."""
    values = [value for stratum in strata for value in stratum]
    has_std = len(strata) == 1 and len(values) >= FEWEST
    return Summary(
        mean=fmean(map(fmean, strata)),
        std=stdev(values) if has_std else None,
        n=len(values),
        smallest=min(values),
        largest=max(values),
        interval=mean_interval(strata),
    )


def _differences(runs: Runs, baseline: Runs) -> dict[str, Summary]:
    found = {
        name: [_paired(runs[problem], baseline[problem], metric) for problem in runs]
        for name, metric in COMPARED.items()
    }
    return {name: summarize(strata) for name, strata in found.items() if all(strata)}


def _paired(
    runs: Sequence[RunOutcome],
    baseline: Sequence[RunOutcome],
    metric: Callable[[RunOutcome], float],
) -> list[float]:
    by_seed = {run.seed: metric(run) for run in baseline}
    return [metric(run) - by_seed[run.seed] for run in runs if run.seed in by_seed]


def _shares(
    runs: Mapping[str, Runs], summaries: Mapping[str, Mapping[str, Summary]]
) -> dict[tuple[str, str], float | None]:
    curves: dict[str, list[list[Curve]]] = {
        method: [list(map(metrics.curve_of, some)) for some in of_method.values()]
        for method, of_method in runs.items()
    }
    return {
        (one, other): metrics.share_to_reach(curves[one], summaries[other][FINAL_SCORE].mean)
        for one in runs
        for other in runs
    }
