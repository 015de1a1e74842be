"""Effects of the parts of a method as a table, sentences and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isinf

from costada.controller.experiment import PROPENSITIES
from costada.experiments.comparison.outcomes import LeftOut
from costada.experiments.effect.estimate import (
    FEW_JUMPS,
    LEVEL,
    POWER,
    RATES,
    Effect,
    effect_of,
)
from costada.experiments.effect.tossed_runs import TossedRun, TossedRuns
from costada.reports.formats import budget_text
from costada.reports.terminal import TerminalTable

LABEL_LENGTH = 6
HEADER = (
    *("experiment", "problem", "model", "method", "budget", "rate"),
    *("with", "without", "difference", "95 % interval", "runs", "tosses", "spent", "more"),
)
NUM_NAMES = 6
OPTIONAL = ("budget", "method", "model", "spent", "problem")
"""Columns that a narrow terminal omits, in this order."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the runs of one kind say of an experiment.

    Attributes:
        runs: Runs that differ in nothing but the seed.
        label: Tells them from other runs of the same problem, model, method and budget; else empty.
        effects: One for each rate.
        reason: Why there are none; else empty.
    """

    runs: tuple[TossedRun, ...]
    label: str
    effects: tuple[Effect, ...]
    reason: str = ""

    @property
    def arms(self) -> tuple[str, str]:
        """The arm with the part of the method, and the one without."""
        first, second = PROPENSITIES[self.runs[0].experiment]
        return first, second

    @property
    def dollars(self) -> float:
        """What the runs have spent."""
        return sum(run.dollars for run in self.runs)

    @property
    def tosses(self) -> dict[str, int]:
        """How often each arm came up."""
        drawn = [each.arm for run in self.runs for each in run.tosses]
        return {arm: drawn.count(arm) for arm in self.arms}

    @property
    def title(self) -> str:
        """The runs in a few words."""
        first = self.runs[0]
        by = f"{first.model}, {first.method}, {budget_text(first.budget)}"
        return f"{first.experiment} on {first.problem}{self.label}, {by}"


def estimates_of(found: TossedRuns) -> list[Estimate]:
    """The effect in each kind of runs."""
    estimates = [_estimate(runs) for runs in found.kinds]
    titles = [each.title for each in estimates]
    return [
        replace(each, label=f" [{each.runs[0].kind[:LABEL_LENGTH]}]")
        if titles.count(each.title) > 1
        else each
        for each in estimates
    ]


def _estimate(runs: tuple[TossedRun, ...]) -> Estimate:
    empty = Estimate(runs, "", ())
    tosses = [run.tosses for run in runs]
    try:
        effects = tuple(effect_of(tosses, empty.arms, rate, empty.dollars) for rate in RATES)
    except ValueError as error:
        return replace(empty, reason=str(error))
    return replace(empty, effects=effects)


def effects_table(estimates: Sequence[Estimate]) -> TerminalTable:
    """One row for each kind of runs and each rate."""
    rows = [_cells(each, effect) for each in estimates for effect in each.effects]
    return TerminalTable(HEADER, rows, HEADER[:NUM_NAMES], optional=OPTIONAL)


def _cells(estimate: Estimate, effect: Effect) -> list[str]:
    first, (with_part, without) = estimate.runs[0], estimate.arms
    interval = "none"
    if effect.interval is not None:
        low, high = effect.interval
        interval = f"[{low:+.4f}, {high:+.4f}]"
    return [
        first.experiment,
        f"{first.problem}{estimate.label}",
        first.model,
        first.method,
        budget_text(first.budget),
        effect.rate,
        f"{effect.of_arm[with_part]:.4f}",
        f"{effect.of_arm[without]:.4f}",
        f"{effect.difference:+.4f}",
        interval,
        str(len(estimate.runs)),
        " + ".join(map(str, estimate.tosses.values())),
        f"${estimate.dollars:.2f}",
        _more(effect),
    ]


def _more(effect: Effect) -> str:
    if effect.dollars_more is None:
        return "unknown"
    if effect.is_settled:
        return "settled"
    return "no end" if isinf(effect.dollars_more) else f"${effect.dollars_more:,.2f}"


def sentences(estimates: Sequence[Estimate], left_out: Sequence[LeftOut]) -> list[str]:
    """What the table says in words, what to beware of, and the runs that were left out."""
    lines = []
    for each in estimates:
        if each.reason:
            lines.append(f"{each.title}: no estimate: {each.reason}")
        lines += [f"{each.title}: {_words(each, effect)}" for effect in each.effects]
    effects = [effect for each in estimates for effect in each.effects]
    arms = dict.fromkeys(each.arms for each in estimates if each.effects)
    lines += [f"with: {first}; without: {second}." for first, second in arms]
    if any(effect.is_within_run for effect in effects):
        lines.append(
            "One run: the interval is over its tosses and holds for this run; how much runs differ"
            " is not in it. Several seeds give an interval over runs."
        )
    return [*lines, *(f"left out {each.place}: {each.reason}" for each in left_out)]


def _words(estimate: Estimate, effect: Effect) -> str:
    with_part, without = estimate.arms
    if effect.interval is None:
        return f"{effect.rate}: no interval: {effect.no_interval}"
    if effect.dollars_more is None:
        return (
            f"{effect.rate} is not settled: fewer than {FEW_JUMPS} steps raised the best score, too"
            " few to trust the interval"
        )
    if effect.is_settled:
        better, worse = (with_part, without) if effect.difference > 0 else (without, with_part)
        return f"{effect.rate} is higher with arm {better!r} than with {worse!r}"
    if isinf(effect.dollars_more):
        return f"{effect.rate}: both arms are equal so far"
    return (
        f"{effect.rate} is not settled; if the difference is as estimated,"
        f" ${effect.dollars_more:,.2f} more would settle it (power {POWER:g}, two-sided {LEVEL:g})"
    )


def effects_json(estimates: Sequence[Estimate], left_out: Sequence[LeftOut]) -> str:
    """All of it as one JSON object; an infinite number of dollars is `null`."""
    facts = [
        {
            "experiment": each.runs[0].experiment,
            "problem": each.runs[0].problem,
            "model": each.runs[0].model,
            "method": each.runs[0].method,
            "budget": each.runs[0].budget,
            "runs": [run.place for run in each.runs],
            "arms": each.arms,
            "tosses": each.tosses,
            "spent": each.dollars,
            "effects": [_effect_facts(effect) for effect in each.effects],
            "reason": each.reason,
        }
        for each in estimates
    ]
    apart = [asdict(each) for each in left_out]
    return json.dumps({"estimates": facts, "left_out": apart}, indent=2, allow_nan=False)


def _effect_facts(effect: Effect) -> dict[str, object]:
    facts = {**asdict(effect), "is_settled": effect.is_settled}
    if effect.dollars_more is not None and isinf(effect.dollars_more):
        facts["dollars_more"] = None
    return facts
