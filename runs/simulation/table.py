"""What a simulation says at its end: every method with intervals, against CostAda."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from costada.controller.methods import DEFAULT_METHOD
from costada.runs.comparison.outcome import RunOutcome
from costada.runs.comparison.sections import (
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
    console.print(_quality(section, "AUC", AUC))
    console.print(_quality(section, "final score", FINAL_SCORE))
    console.print(_spending(section))
    console.print(LEGEND)


def _quality(section: Section, heading: str, metric: str) -> Table:
    against = f"minus {section.baseline}" if section.baseline else ""
    table = _table(("method", heading, against))
    for name, found in section.summaries.items():
        difference = section.differences.get(name, {}).get(metric)
        table.add_row(name, _cell(found.get(metric), ".4f"), _cell(difference, "+.4f"))
    return table


def _spending(section: Section) -> Table:
    table = _table(("method", "guide $", "iterations", "overshoot", "largest", "runs"))
    for name, found in section.summaries.items():
        guide = found[dollars_metric("guide")].mean / found[COST].mean
        table.add_row(
            name,
            f"{guide:.1%}",
            f"{found[ITERATIONS].mean:.1f}",
            f"{found[OVERSHOOT].mean:.2%}",
            f"{found[OVERSHOOT].largest:.2%}",
            str(found[COST].n),
        )
    return table


def _table(headings: Iterable[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


def _cell(summary: Summary | None, form: str) -> str:
    if summary is None:
        return "-"
    if summary.interval is None:
        return f"{summary.mean:{form}}"
    low, high = summary.interval.low, summary.interval.high
    return f"{summary.mean:{form}} [{low:{form}}, {high:{form}}]"
