"""What a simulation says at its end: every method with intervals, against CostAda."""

from __future__ import annotations

from collections.abc import Sequence

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
    ordered_methods,
    section_of,
)
from costada.experiments.comparison.metrics import RunOutcome
from costada.reports.formats import percent
from costada.reports.terminal import TerminalTable

LEGEND = (
    "Means over seeds with 95 % bootstrap intervals; differences are paired by seed."
    "\nThe landscape is simulated: no language model answered."
)


def section_of_outcomes(outcomes: Sequence[RunOutcome]) -> Section:
    """Return what the runs of one simulation were worth."""
    names = ordered_methods({outcome.method for outcome in outcomes})
    runs = {
        name: {outcomes[0].problem: tuple(each for each in outcomes if each.method == name)}
        for name in names
    }
    return section_of(runs, DEFAULT_METHOD)


def print_section(section: Section, console: Console) -> None:
    """Print quality and spending of every method."""
    _quality(section, "AUC", AUC).print(console)
    _quality(section, "final score", FINAL_SCORE).print(console)
    _spending(section).print(console)
    console.print(LEGEND)


def _quality(section: Section, heading: str, metric: str) -> TerminalTable:
    against = f"minus {section.baseline}" if section.baseline else ""
    rows = []
    for name, found in section.summaries.items():
        difference = section.differences.get(name, {}).get(metric)
        rows.append((name, _cell(found.get(metric), ".4f"), _cell(difference, "+.4f")))
    return TerminalTable(("method", heading, against), rows, words=("method",), optional=(against,))


def _spending(section: Section) -> TerminalTable:
    rows = []
    for name, found in section.summaries.items():
        guide = found[dollars_metric("guide")].mean / found[COST].mean
        row = (
            name,
            f"{guide:.1%}",
            f"{found[ITERATIONS].mean:.1f}",
            percent(found[OVERSHOOT].mean),
            percent(found[OVERSHOOT].largest),
            str(found[COST].n),
        )
        rows.append(row)
    header = ("method", "guide $", "iterations", "overshoot", "largest", "runs")
    return TerminalTable(header, rows, words=("method",), optional=("runs", "largest", "guide $"))


def _cell(summary: Summary | None, form: str) -> str:
    if summary is None:
        return "-"
    if summary.interval is None:
        return f"{summary.mean:{form}}"
    low, high = summary.interval.low, summary.interval.high
    return f"{summary.mean:{form}} [{low:{form}}, {high:{form}}]"
