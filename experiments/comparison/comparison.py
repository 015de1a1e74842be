"""Methods, or models, side by side as data: by problem and budget, and averaged over problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, product
from statistics import fmean, stdev
from typing import Literal

from costada.controller.methods import DEFAULT_METHOD, METHODS
from costada.experiments.comparison import metrics
from costada.experiments.comparison.metrics import (
    BUDGET_AT_START,
    CUTOFFS,
    MIN_VALUES,
    Interval,
    Point,
    RunOutcome,
    digest,
    mean_interval,
    point_at,
)
from costada.values.roles import ROLES
from costada.values.setting import unknown_name

Metric = Callable[[RunOutcome], float | None]
Runs = Mapping[str, tuple[RunOutcome, ...]]
"""Runs of one method or model by problem, those of a problem by seed."""
Subject = Literal["method", "model"]
"""What is compared."""

SCORES = {cutoff: f"score_at_{cutoff:g}" for cutoff in CUTOFFS}
OBJECTIVES = {cutoff: f"objective_at_{cutoff:g}" for cutoff in CUTOFFS}
FINAL_SCORE, FINAL_OBJECTIVE = SCORES[1.0], OBJECTIVES[1.0]
AUC, COST, OVERSHOOT, ITERATIONS = "normalized_auc", "cost", "overshoot_ratio", "iterations"
TO_REACH = "dollars_to_reach"
COMPARED: Mapping[str, Callable[[RunOutcome], float]] = {
    AUC: metrics.normalized_auc,
    FINAL_SCORE: partial(metrics.best_score_at, cutoff=1.0),
}
"""Metrics whose differences to the baseline are given."""
POOLED = (COST, OVERSHOOT, ITERATIONS)
"""Metrics averaged over all runs alike, whatever their problem (App. I)."""


def dollars_metric(role: str) -> str:
    """The name of the metric that is the dollars of a role's calls."""
    return f"dollars_{role}"


@dataclass(frozen=True, slots=True)
class Summary:
    """The values of a metric over runs."""

    mean: float  # over several problems, the mean of the means of each
    # sample standard deviation (n-1); None over several problems or for a single run
    std: float | None
    n: int
    smallest: float
    largest: float
    interval: Interval | None  # of the mean; None where a problem has fewer than two values


@dataclass(frozen=True, slots=True)
class Section:
    """Runs that can be compared: of methods with one model, or of models under one method.

    All have one budget and the same problems. Where models are compared, "method" below is a model.
    """

    subject: Subject
    problems: tuple[str, ...]  # several for an average over benchmarks
    model: str  # of all runs, or of the first one if models are compared
    method: str  # of all runs, or of the first one if methods are compared
    budget: float  # dollars each run might spend (B)
    is_minimized: bool | None  # whether a smaller objective is better; None over several problems
    runs: Mapping[str, Runs]  # by method, in the order in which methods are shown
    summaries: Mapping[str, Mapping[str, Summary]]  # by method, then metric
    baseline: str | None  # what differences refer to; None if it has no run here
    # by method, then metric: run minus the baseline's run of the same seed
    differences: Mapping[str, Mapping[str, Summary]]
    # by problem, the score of `dollars_to_reach`: that of the target of the runs, or else the
    # lowest final mean score of a method
    targets: Mapping[str, float]
    has_target: bool  # whether the runs end at a target of their own
    # by methods A and B: smallest share of the budget at which A's mean curve reaches the mean
    # score that B has at the end
    shares: Mapping[tuple[str, str], float | None]

    @property
    def missing(self) -> dict[tuple[str, str], list[int]]:
        """By method and problem, the seeds that another method has a run of and this one not."""
        seeds = {
            (method, problem): {run.seed for run in some}
            for method, of_method in self.runs.items()
            for problem, some in of_method.items()
        }
        of_problem: dict[str, set[int]] = {}
        for (_, problem), own in seeds.items():
            of_problem[problem] = of_problem.get(problem, set()) | own
        return {
            (method, problem): lacking
            for (method, problem), own in seeds.items()
            if (lacking := sorted(of_problem[problem] - own))
        }


def ordered_methods(names: set[str]) -> list[str]:
    """Names of methods as they are always shown: ours in their order, others after them."""
    known = [name for name in METHODS if name in names]
    return [*known, *sorted(names - set(known))]


def section_of(runs: Mapping[str, Runs], baseline: str, subject: Subject = "method") -> Section:
    """Summaries and differences of runs by `subject`; each has the same problems and budget."""
    by_problem = next(iter(runs.values()))
    first = next(iter(by_problem.values()))[0]
    is_single = len(by_problem) == 1
    goals = {problem: metrics.target_score(some[0]) for problem, some in by_problem.items()}
    targets = {
        problem: min(_mean_of_final(of_method[problem]) for of_method in runs.values())
        if goal is None
        else goal
        for problem, goal in goals.items()
    }
    summaries = {
        method: {
            **_summaries(of_method, is_single),
            TO_REACH: summarize(
                [
                    [metrics.dollars_to_reach(run, targets[problem]) for run in some]
                    for problem, some in of_method.items()
                ]
            ),
        }
        for method, of_method in runs.items()
    }
    compared = runs.get(baseline)
    differences = {
        method: _differences(of_method, compared)
        for method, of_method in runs.items()
        if compared and method != baseline
    }
    curves = {
        method: [list(map(metrics.curve_of, some)) for some in of_method.values()]
        for method, of_method in runs.items()
    }
    shares = {
        (one, other): metrics.share_to_reach(curves[one], summaries[other][FINAL_SCORE].mean)
        for one, other in product(runs, runs)
    }
    return Section(
        subject=subject,
        problems=tuple(by_problem),
        model=first.model,
        method=first.method,
        budget=first.budget,
        is_minimized=first.is_minimized if is_single else None,
        runs=runs,
        summaries=summaries,
        baseline=baseline if compared else None,
        differences=differences,
        targets=targets,
        has_target=None not in goals.values(),
        shares=shares,
    )


def _mean_of_final(runs: Sequence[RunOutcome]) -> float:
    scores = [metrics.best_score_at(run, 1.0) for run in runs]
    # The mean of equal scores may be rounded up, and then no run would reach it.
    return min(fmean(scores), max(scores))


def _differences(runs: Runs, baseline: Runs) -> dict[str, Summary]:
    found = {}
    for name, metric in COMPARED.items():
        strata = []
        for problem, some in runs.items():
            by_seed = {run.seed: metric(run) for run in baseline[problem]}
            strata.append([metric(run) - by_seed[run.seed] for run in some if run.seed in by_seed])
        if all(strata):
            found[name] = summarize(strata)
    return found


def _summaries(runs: Runs, is_single: bool) -> dict[str, Summary]:
    wanted: dict[str, Metric] = {
        SCORES[cutoff]: partial(metrics.best_score_at, cutoff=cutoff) for cutoff in CUTOFFS
    }
    if is_single:
        for cutoff in CUTOFFS:
            wanted[OBJECTIVES[cutoff]] = partial(metrics.objective_at, cutoff=cutoff)
    wanted |= {
        AUC: metrics.normalized_auc,
        COST: metrics.cost_at_crossing,
        OVERSHOOT: metrics.overshoot_ratio,
        ITERATIONS: lambda outcome: float(metrics.crossing(outcome).iteration),
    }
    for role in roles_of(runs):
        wanted[dollars_metric(role)] = partial(_dollars, role=role)
    found = {}
    for name, metric in wanted.items():
        strata = [
            [value for value in map(metric, some) if value is not None] for some in runs.values()
        ]
        if name in POOLED:
            strata = [list(chain.from_iterable(strata))]
        if all(strata):
            found[name] = summarize(strata)
    return found


def _dollars(outcome: RunOutcome, role: str) -> float:
    return outcome.dollars_by_role.get(role, 0.0)


def roles_of(runs: Runs) -> list[str]:
    """The roles that calls of the runs were paid for, ours first."""
    named = {role for some in runs.values() for run in some for role in run.dollars_by_role}
    return [*(role for role in ROLES if role in named), *sorted(named - set(ROLES))]


def summarize(strata: Sequence[Sequence[float]]) -> Summary:
    """The summary of values, given by problem; every problem has some."""
    values = [value for stratum in strata for value in stratum]
    has_std = len(strata) == 1 and len(values) >= MIN_VALUES
    return Summary(
        mean=fmean(map(fmean, strata)),
        std=stdev(values) if has_std else None,
        n=len(values),
        smallest=min(values),
        largest=max(values),
        interval=mean_interval(strata),
    )


LABEL_LENGTH = 6
UNSET = "-"


@dataclass(frozen=True, slots=True)
class Rerun:
    """Runs with a small budget against a cutoff of a larger one, at the same dollars (App. H).

    `rerun` and `cutoff` are the scores over the seeds of both budgets; `rerun_objective` and
    `cutoff_objective` the objectives, over the runs that have one.
    """

    problem: str
    model: str
    method: str
    small: float
    large: float
    rerun: Summary
    cutoff: Summary
    rerun_objective: Summary | None
    cutoff_objective: Summary | None


@dataclass(frozen=True, slots=True)
class Mix:
    """Runs of one name that are not averaged together, as more than method and seed differ."""

    name: str  # the problem or the model that they share
    labels: tuple[str, ...]  # one short hash per kind
    places: tuple[str, ...]  # where the first run of each kind was found
    counts: tuple[int, ...]  # runs of each kind
    differing: Mapping[str, tuple[str, ...]]  # by name, the setting or fact in each kind


@dataclass(frozen=True, slots=True)
class Group:
    """Sections that differ in nothing but the problem."""

    sections: tuple[Section, ...]  # one per problem
    # over the problems that have all methods or models; None with fewer than two
    average: Section | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is compared."""

    baseline: str  # the method that differences refer to
    by_method: tuple[Group, ...]  # one per model and budget, in that order; larger budgets first
    by_model: tuple[Group, ...]  # one per method and budget that has several models
    reruns: tuple[Rerun, ...]  # budgets against cutoffs of larger ones
    mixes: tuple[Mix, ...]  # what is kept apart though its name is the same

    @property
    def sections(self) -> tuple[Section, ...]:
        """Methods side by side, one section per model, budget and problem."""
        return tuple(section for group in self.by_method for section in group.sections)

    @property
    def all_sections(self) -> tuple[Section, ...]:
        """Averages over problems and the problems, by method and then by model."""
        return tuple(
            section
            for groups in (self.by_method, self.by_model)
            for section in (
                *(group.average for group in groups if group.average),
                *(section for group in groups for section in group.sections),
            )
        )


def compare_outcomes(outcomes: Sequence[RunOutcome], baseline: str | None = None) -> Comparison:
    """The comparison of runs, at least one; the baseline as in `write_comparison`.

    Raises:
        ValueError: If no run is of the baseline.
    """
    present = ordered_methods({outcome.method for outcome in outcomes})
    if baseline is not None and baseline not in present:
        raise ValueError(f"--baseline: {unknown_name('method', baseline, present)}")
    chosen = baseline or (DEFAULT_METHOD if DEFAULT_METHOD in present else present[0])
    outcomes, problems = _separate_kinds(outcomes, "problem")
    outcomes, models = _separate_kinds(outcomes, "model")
    # groupby joins neighbours only, so both groupings below rely on this order.
    outcomes.sort(key=lambda each: (each.model, -each.budget, each.problem, each.seed))
    by_method = tuple(
        _side_by_side(some, chosen, "method")
        for _, some in groupby(outcomes, key=lambda each: (each.model, each.budget))
    )
    return Comparison(
        baseline=chosen,
        by_method=by_method,
        by_model=_by_model(outcomes),
        reruns=_reruns([section for group in by_method for section in group.sections]),
        mixes=(*problems, *models),
    )


def _side_by_side(outcomes: Iterable[RunOutcome], baseline: str, subject: Subject) -> Group:
    """The methods or models of runs that are sorted by problem; all else is equal."""
    sections = []
    for problem, group in groupby(outcomes, key=lambda each: each.problem):
        runs = runs_by(subject, list(group))
        by_name = {name: {problem: runs[name]} for name in runs}
        sections.append(section_of(by_name, baseline, subject))
    names = {name for section in sections for name in section.runs}
    complete = [section for section in sections if set(section.runs) == names]
    if len(complete) < 2:
        return Group(tuple(sections), None)
    runs_of: dict[str, Runs] = {
        name: {problem: runs for each in complete for problem, runs in each.runs[name].items()}
        for name in complete[0].runs
    }
    average = section_of(runs_of, complete[0].baseline or "", subject)
    return Group(tuple(sections), average)


OF_A_MODEL = ("model", "models", "router", "price", "base_url")
"""Settings in which runs of different models may differ; their parts follow after a dot."""


def _by_model(outcomes: Sequence[RunOutcome]) -> tuple[Group, ...]:
    """The runs of each method by model, where models have runs that are equal in all else.

    Differences refer to the first model in alphabetical order.
    """

    def setting(run: RunOutcome) -> tuple[str, float, str]:
        others = {
            name: text
            for name, text in run.settings.items()
            if name.partition(".")[0] not in OF_A_MODEL
        }
        return run.method, -run.budget, digest(others)

    groups = []
    ordered = sorted(outcomes, key=lambda run: (*setting(run), run.problem, run.seed))
    for _, equal in groupby(ordered, key=setting):
        some = list(equal)
        group = _side_by_side(some, min(run.model for run in some), "model")
        if several := tuple(section for section in group.sections if len(section.runs) > 1):
            groups.append(replace(group, sections=several))
    return tuple(groups)


def runs_by(subject: Subject, outcomes: Sequence[RunOutcome]) -> dict[str, tuple[RunOutcome, ...]]:
    """The runs of each method or model, in the order in which they are shown."""
    return {
        name: tuple(each for each in outcomes if getattr(each, subject) == name)
        for name in ordered_methods({getattr(each, subject) for each in outcomes})
    }


def _separate_kinds(
    outcomes: Sequence[RunOutcome], field: Literal["problem", "model"]
) -> tuple[list[RunOutcome], list[Mix]]:
    """The runs with a label in the field where its name stands for several kinds.

    A kind are runs with the same facts: those of the problem, or for a model all settings. The
    label is the start of their hash.
    """
    kinds: dict[str, dict[str, list[RunOutcome]]] = {}
    facts: dict[str, Mapping[str, str]] = {}
    labels = []
    for each in outcomes:
        known = each.problem_facts if field == "problem" else each.settings
        label = digest(dict(known))[:LABEL_LENGTH]
        facts[label] = known
        labels.append(label)
        kinds.setdefault(getattr(each, field), {}).setdefault(label, []).append(each)
    apart = []
    for each, label in zip(outcomes, labels, strict=True):
        name = getattr(each, field)
        if len(kinds[name]) > 1:
            name = f"{name} [{label}]"
        is_problem = field == "problem"
        apart.append(replace(each, problem=name) if is_problem else replace(each, model=name))
    mixes = []
    for name, runs in sorted(kinds.items()):
        if len(runs) > 1:
            own = sorted(runs)
            values = {
                fact: tuple(
                    facts[label].get(fact, _unset(fact, runs[label][0].budget)) for label in own
                )
                for fact in sorted({fact for label in own for fact in facts[label]})
            }
            mix = Mix(
                name=name,
                labels=tuple(own),
                places=tuple(runs[label][0].place for label in own),
                counts=tuple(len(runs[label]) for label in own),
                differing={fact: each for fact, each in values.items() if len(set(each)) > 1},
            )
            mixes.append(mix)
    return apart, mixes


def _unset(fact: str, budget: float) -> str:
    """What stands for a fact that runs do not have; they began with the budget that they have."""
    return f"{budget:g}" if fact == BUDGET_AT_START else UNSET


def _reruns(sections: Sequence[Section]) -> tuple[Rerun, ...]:
    """Each small budget beside each larger one of the same problem, model and method.

    Both are averaged over the seeds that both have; without one there is nothing to compare.
    """
    reruns = []
    for large, small in product(sections, sections):
        is_same = (small.problems, small.model) == (large.problems, large.model)
        if not is_same or small.budget >= large.budget:
            continue
        (problem,) = small.problems
        for method, of_method in small.runs.items():
            by_seed = {run.seed: run for run in large.runs.get(method, {}).get(problem, ())}
            pairs = [
                (point_at(run, small.budget), point_at(by_seed[run.seed], small.budget))
                for run in of_method[problem]
                if run.seed in by_seed
            ]
            if not pairs:
                continue
            rerun = Rerun(
                problem=problem,
                model=small.model,
                method=method,
                small=small.budget,
                large=large.budget,
                rerun=summarize([[ours.best_score for ours, _ in pairs]]),
                cutoff=summarize([[cut.best_score for _, cut in pairs]]),
                rerun_objective=_mean_objective([ours for ours, _ in pairs]),
                cutoff_objective=_mean_objective([cut for _, cut in pairs]),
            )
            reruns.append(rerun)
    return tuple(reruns)


def _mean_objective(points: Sequence[Point]) -> Summary | None:
    found = [each.best_objective for each in points if each.best_objective is not None]
    return summarize([found]) if found else None
