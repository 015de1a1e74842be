"""Methods side by side, as data: by problem, model and budget, and averaged over problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from costada.controller.methods import DEFAULT_METHOD
from costada.runs.comparison.metrics import point_at
from costada.runs.comparison.outcome import RunOutcome, digest
from costada.runs.comparison.sections import (
    FINAL_OBJECTIVE,
    FINAL_SCORE,
    Runs,
    Section,
    Summary,
    ordered_methods,
    section_of,
    summarize,
)
from costada.runs.suggestion import unknown_name

LABEL_LENGTH = 6
UNSET = "-"


@dataclass(frozen=True, slots=True)
class Rerun:
    """Runs with a small budget against a cutoff of a larger one, at the same dollars (App. H).

    `rerun` and `cutoff` are the scores, the objectives where every run has one.
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
    """Runs of one name that are not averaged together, as more than method and seed differ.

    Attributes:
        name: The problem or the model that they share.
        labels: One short hash per kind.
        places: Where the first run of each kind was found.
        counts: Runs of each kind.
        differing: By name, the setting or fact in each kind.
    """

    name: str
    labels: tuple[str, ...]
    places: tuple[str, ...]
    counts: tuple[int, ...]
    differing: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is compared.

    Attributes:
        baseline: Whom differences refer to.
        sections: One per model, budget and problem, in that order; larger budgets first.
        averages: One per model and budget with several problems that all its methods have.
        reruns: Budgets against cutoffs of larger ones.
        mixes: What is kept apart though its name is the same.
    """

    baseline: str
    sections: tuple[Section, ...]
    averages: tuple[Section, ...]
    reruns: tuple[Rerun, ...]
    mixes: tuple[Mix, ...]


def compare_outcomes(outcomes: Sequence[RunOutcome], baseline: str | None = None) -> Comparison:
    """Return the comparison of runs.

    Args:
        outcomes: The runs, at least one.
        baseline: Whom differences refer to; None: CostAda, or the first method without it.

    Raises:
        ValueError: If no run is of the baseline.
    """
    present = ordered_methods({outcome.method for outcome in outcomes})
    if baseline is not None and baseline not in present:
        raise ValueError(unknown_name("baseline", baseline, present))
    chosen = baseline or (DEFAULT_METHOD if DEFAULT_METHOD in present else present[0])
    outcomes, problems = _kept_apart(outcomes, "problem")
    outcomes, models = _kept_apart(outcomes, "model")
    ordered = sorted(outcomes, key=lambda each: (*_setting(each), each.problem, each.seed))
    settings = [list(some) for _, some in groupby(ordered, key=_setting)]
    by_setting = [_sections(some, chosen) for some in settings]
    return Comparison(
        baseline=chosen,
        sections=tuple(section for sections in by_setting for section in sections),
        averages=tuple(_average(some) for some in map(_comparable, by_setting) if len(some) > 1),
        reruns=_reruns([section for sections in by_setting for section in sections]),
        mixes=(*problems, *models),
    )


def _kept_apart(
    outcomes: Sequence[RunOutcome], field: Literal["problem", "model"]
) -> tuple[list[RunOutcome], list[Mix]]:
    """Return the runs with a label in the field where its name stands for several kinds.

    A kind are runs with the same facts: those of the problem, or for a model all settings. The
    label is the start of their hash.
    """

    def facts_of(outcome: RunOutcome) -> Mapping[str, str]:
        return outcome.problem_facts if field == "problem" else outcome.settings

    kinds: dict[str, dict[str, list[RunOutcome]]] = {}
    for each in outcomes:
        label = digest(dict(facts_of(each)))[:LABEL_LENGTH]
        kinds.setdefault(getattr(each, field), {}).setdefault(label, []).append(each)
    apart = []
    for each in outcomes:
        name = getattr(each, field)
        if len(kinds[name]) > 1:
            name = f"{name} [{digest(dict(facts_of(each)))[:LABEL_LENGTH]}]"
        is_problem = field == "problem"
        apart.append(replace(each, problem=name) if is_problem else replace(each, model=name))
    mixes = [_mix(name, kinds[name], facts_of) for name in sorted(kinds) if len(kinds[name]) > 1]
    return apart, mixes


def _mix(
    name: str,
    kinds: Mapping[str, Sequence[RunOutcome]],
    facts_of: Callable[[RunOutcome], Mapping[str, str]],
) -> Mix:
    labels = tuple(sorted(kinds))
    facts = [facts_of(kinds[label][0]) for label in labels]
    names = sorted({each for some in facts for each in some})
    values_of = {each: tuple(some.get(each, UNSET) for some in facts) for each in names}
    return Mix(
        name=name,
        labels=labels,
        places=tuple(kinds[label][0].place for label in labels),
        counts=tuple(len(kinds[label]) for label in labels),
        differing={each: values for each, values in values_of.items() if len(set(values)) > 1},
    )


def _setting(outcome: RunOutcome) -> tuple[str, float]:
    return outcome.model, -outcome.budget


def _sections(outcomes: Sequence[RunOutcome], baseline: str) -> list[Section]:
    sections = []
    for problem, some in groupby(outcomes, key=lambda each: each.problem):
        of_problem = list(some)
        runs: dict[str, Runs] = {
            method: {problem: tuple(each for each in of_problem if each.method == method)}
            for method in ordered_methods({each.method for each in of_problem})
        }
        sections.append(section_of(runs, baseline))
    return sections


def _comparable(sections: Sequence[Section]) -> list[Section]:
    """Return the sections of a setting that have every method of it."""
    methods = {method for section in sections for method in section.runs}
    return [section for section in sections if set(section.runs) == methods]


def _average(sections: Sequence[Section]) -> Section:
    first = sections[0]
    runs: dict[str, Runs] = {
        method: {
            problem: runs for section in sections for problem, runs in section.runs[method].items()
        }
        for method in first.runs
    }
    return section_of(runs, first.baseline or "")


def _reruns(sections: Sequence[Section]) -> tuple[Rerun, ...]:
    return tuple(
        _rerun(method, small, large)
        for large in sections
        for small in sections
        if (small.problems, small.model) == (large.problems, large.model)
        and small.budget < large.budget
        for method in small.runs
        if method in large.runs
    )


def _rerun(method: str, small: Section, large: Section) -> Rerun:
    (problem,) = small.problems
    reached = [point_at(run, small.budget) for run in large.runs[method][problem]]
    objectives = [each.best_objective for each in reached if each.best_objective is not None]
    return Rerun(
        problem=problem,
        model=small.model,
        method=method,
        small=small.budget,
        large=large.budget,
        rerun=small.summaries[method][FINAL_SCORE],
        cutoff=summarize([[each.best_score for each in reached]]),
        rerun_objective=small.summaries[method].get(FINAL_OBJECTIVE),
        cutoff_objective=summarize([objectives]) if objectives else None,
    )
