"""The paper's numbers beside ours."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import TypeAdapter

from costada.experiments.comparison.comparison import Comparison, Section, Summary
from costada.experiments.comparison.tables import NOTHING, Table, money, objective, score_spread

FILE = "published.toml"
TITLE = "As published, other model and machine"
ANY = "any"


@dataclass(frozen=True, slots=True)
class Number:
    """One number of the paper."""

    what: str
    metric: str  # our metric of the same thing
    # what is made of our metric: the mean of a method, the best run of any method, the lowest and
    # highest mean of the methods, or the maximum over all runs
    statistic: Literal["mean", "best", "range", "maximum"]
    value: str  # as printed
    source: str  # the place in the paper, as far as known
    problem: str | None = None  # None: over all problems
    method: str | None = None  # None: of any
    model: str | None = None  # None: not of one model
    budget: float | None = None  # dollars; None: not of one budget


@lru_cache
def _file() -> dict[str, Any]:
    return tomllib.loads((files("costada.experiments.comparison") / FILE).read_text("utf-8"))


def published_numbers() -> tuple[Number, ...]:
    """The numbers of the paper that are known."""
    return TypeAdapter(tuple[Number, ...]).validate_python(_file()["number"])


def published_table(comparison: Comparison) -> Table:
    """The paper's numbers for what is compared, with our numbers of the same thing."""
    header = ("quantity", "problem", "method", "as published", "model there", "here", "source")
    rows = []
    for number in published_numbers():
        if ours := list(_ours(number, comparison)):
            budget = [] if number.budget is None else [money(number.budget)]
            row = (
                number.what,
                number.problem or "all",
                number.method or ANY,
                number.value,
                ", ".join([number.model or NOTHING, *budget]),
                "; ".join(ours),
                number.source,
            )
            rows.append(row)
    note = (
        f'From "{_file()["title"]}": other models, other machines, other versions of them. A'
        " difference to ours says nothing about a method."
    )
    return Table(TITLE, note, header, tuple(rows), num_names=len(header))


def _ours(number: Number, comparison: Comparison) -> Iterator[str]:
    """Yield our number in each setting that has it."""
    if number.problem is None:
        sections = comparison.averages or comparison.sections
    else:
        sections = tuple(each for each in comparison.sections if each.problems == (number.problem,))
    for section in sections:
        summaries = [
            by[number.metric]
            for method, by in section.summaries.items()
            if number.metric in by and (number.statistic != "mean" or method == number.method)
        ]
        if summaries:
            place = f"{section.model}, {money(section.budget)}"
            yield f"{_stated(number, summaries, section)} ({place})"


def _stated(number: Number, summaries: Sequence[Summary], section: Section) -> str:
    means = [each.mean for each in summaries]
    largest = max(each.largest for each in summaries)
    match number.statistic:
        case "range":
            return f"{100 * min(means):.1f} to {100 * max(means):.1f} %"
        case "maximum":
            return f"{100 * largest:.1f} %"
        case "best":
            smallest = min(each.smallest for each in summaries)
            return objective(smallest if section.is_minimized else largest)
        case "mean":
            return score_spread(summaries[0])
