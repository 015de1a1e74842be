"""The numbers that the paper prints, and how far ours are from them in standard errors.

The difference in standard errors is ours minus printed, over the combined standard error:

    (m - m') / sqrt(s^2 / n + s'^2 / n' + u^2 / 12)

with our mean m of n runs with sample standard deviation s, and the printed m', s' and n'. The last
term is the rounding of m' to a unit u of its last digit. Where one of both deviations is missing,
there is no such number.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from math import fsum, sqrt
from statistics import fmean

from costada.experiments.comparison.comparison import (
    AUC,
    COST,
    FINAL_OBJECTIVE,
    OBJECTIVES,
    OVERSHOOT,
    SCORES,
    Section,
    Summary,
)

FILE = "published.csv"
PAPER = "Budget-Aware LLM Discovery via Cost-Calibrated Frontier Utility"

RUNS, POOLED_RUNS = 3, 24
"""Runs behind a printed mean of one problem, and of all problems together."""

PEOPLE = "people"
AVERAGE, POOLED = "average", "all"
"""Names of problems in the file: the mean over all problems, and their runs together."""

MODEL = re.compile(r"(?:^|[/:])(glm-5|gpt-5\.4)(?=$|[:@ ])", re.IGNORECASE)
LABEL = re.compile(r" \[\w+\]$")
"""What is added to the name of a problem that stands for several."""


@dataclass(frozen=True, slots=True)
class Printed:
    """One quantity of one table of the paper.

    Attributes:
        table: What the table shows.
        model: Its model, "" where there is none.
        budget: Its budget in dollars (B), 0 where there is none.
        problem: Name of a benchmark, `AVERAGE` or `POOLED`.
        method: Name of a method, or `PEOPLE`.
        metric: Our metric of the same thing.
        texts: What is printed, by statistic: mean, std, best and max.
    """

    table: str
    model: str
    budget: float
    problem: str
    method: str
    metric: str
    texts: Mapping[str, str]

    def value(self, statistic: str) -> float | None:
        """A printed number, percent as a share; `None` if it is not printed."""
        text = self.texts.get(statistic)
        if text is None:
            return None
        number, is_percent = text.removesuffix(" %"), text.endswith(" %")
        return float(number) / 100 if is_percent else float(number)

    @property
    def unit(self) -> float:
        """The last digit of the printed mean (u)."""
        text = self.texts["mean"]
        digits = len(text.removesuffix(" %").partition(".")[2])
        return 10.0**-digits / (100 if text.endswith(" %") else 1)

    @property
    def num_runs(self) -> int:
        """Runs behind the printed mean (n')."""
        return POOLED_RUNS if self.problem == POOLED else RUNS

    @property
    def variance(self) -> float | None:
        """Squared standard error of the printed mean, rounding included; `None` without a std."""
        std = self.value("std")
        return None if std is None else std**2 / self.num_runs + self.unit**2 / 12


@lru_cache
def printed_numbers() -> tuple[Printed, ...]:
    """Everything that the paper prints, in its order."""
    text = (files("costada.plugins.lab.published") / FILE).read_text("utf-8")
    found: dict[tuple[str, str, str, str, str, str], dict[str, str]] = {}
    for row in csv.DictReader(text.splitlines()):
        metric = _metric(row["metric"], row["cutoff"], row["budget"])
        key = (row["table"], row["model"], row["budget"], row["problem"], row["method"], metric)
        found.setdefault(key, {})[row["statistic"]] = row["value"]
    return tuple(
        Printed(table, model, float(budget or 0), problem, method, metric, texts)
        for (table, model, budget, problem, method, metric), texts in found.items()
    )


def _metric(metric: str, cutoff: str, budget: str) -> str:
    """Our name of a metric of the file; its cutoffs are shares of the budget, or dollars."""
    match metric:
        case "score":
            return SCORES[float(cutoff)]
        case "objective":
            return OBJECTIVES[float(cutoff)] if cutoff else FINAL_OBJECTIVE
        case "objective at dollars":
            return OBJECTIVES[float(cutoff) / float(budget)]
        case "normalized_auc":
            return AUC
        case "cost":
            return COST
        case "overshoot_ratio":
            return OVERSHOOT
        case _:
            raise ValueError(f"metric: got {metric!r}, expected one that a comparison computes")


def paper_model(model: str) -> str | None:
    """The paper's name of a model, `None` for a model that it does not have."""
    match = MODEL.search(model)
    return match and match[1].upper()


def plain_problem(section: Section) -> str:
    """The name of a section's only problem, without the label of problems that share a name."""
    return LABEL.sub("", section.problems[0])


@dataclass(frozen=True, slots=True)
class PaperComparison:
    """A printed mean beside ours.

    Attributes:
        printed: What the paper prints.
        value: The printed mean; for an average, the mean of its rows over the problems here.
        ours: Our metric over the runs of the same method, problem, model and budget.
        error: Combined standard error; `None` without a deviation on one side.
    """

    printed: Printed
    value: float
    ours: Summary
    error: float | None

    @property
    def in_errors(self) -> float | None:
        """Ours minus printed, in standard errors; `None` without an error above 0."""
        return (self.ours.mean - self.value) / self.error if self.error else None


def compare_with_paper(number: Printed, sections: Iterable[Section]) -> PaperComparison | None:
    """A printed mean beside ours, `None` where no run of ours is of its kind.

    Args:
        number: Quantity with a printed mean.
        sections: Each problem of ours with the model and budget of the number.
    """
    value = number.value("mean")
    if value is None:
        return None
    own = {
        plain_problem(section): section.summaries[number.method][number.metric]
        for section in sections
        if number.metric in section.summaries.get(number.method, {})
    }
    if number.problem == AVERAGE:
        return _compare_average(number, own)
    if number.problem == POOLED:
        return _compare_pooled(number, value, list(own.values()))
    if number.problem not in own:
        return None
    ours = own[number.problem]
    return PaperComparison(number, value, ours, _combined(number.variance, _variance(ours)))


def _combined(printed: float | None, ours: float | None) -> float | None:
    return None if printed is None or ours is None else sqrt(printed + ours)


def _variance(summary: Summary) -> float | None:
    """Squared standard error of our mean of one problem."""
    return None if summary.std is None else summary.std**2 / summary.n


def _compare_average(number: Printed, own: Mapping[str, Summary]) -> PaperComparison | None:
    """The average over the problems that both sides have.

    Over all problems the printed mean is what the table prints; over fewer, the mean of its rows.
    """
    rows = {each.problem: each for each in rows_of(number)}
    common = [problem for problem in rows if problem in own]
    if not common:
        return None
    theirs, ours = [rows[each] for each in common], [own[each] for each in common]
    means = [mean for each in theirs if (mean := each.value("mean")) is not None]
    printed_mean = number.value("mean") if len(common) == len(rows) else None
    value = fmean(means) if printed_mean is None else printed_mean
    parts = [
        _combined(each.variance, _variance(summary))
        for each, summary in zip(theirs, ours, strict=True)
    ]
    errors = [part for part in parts if part is not None]
    # The means of the problems are independent, so their variances add up.
    error = sqrt(fsum(each**2 for each in errors)) / len(parts)
    return PaperComparison(
        number, value, _merged(ours), error if len(errors) == len(parts) else None
    )


def rows_of(number: Printed) -> list[Printed]:
    """The rows of a table that an average is taken over."""
    same = (number.table, number.model, number.budget, number.method, number.metric)
    return [
        each
        for each in printed_numbers()
        if (each.table, each.model, each.budget, each.method, each.metric) == same
        and each.problem not in (AVERAGE, POOLED)
    ]


def _compare_pooled(number: Printed, value: float, own: list[Summary]) -> PaperComparison | None:
    """All runs together; the deviation of an overshoot is that of the cost, as a share of B."""
    if not own:
        return None
    ours, variance = _pooled(own), number.variance
    if variance is None and number.metric == OVERSHOOT:
        cost = next(
            each
            for each in printed_numbers()
            if each.metric == COST
            and (each.table, each.model, each.method) == (number.table, number.model, number.method)
        )
        std = cost.value("std")
        if std is not None:
            variance = (std / number.budget) ** 2 / number.num_runs + number.unit**2 / 12
    return PaperComparison(number, value, ours, _combined(variance, _variance(ours)))


def _merged(summaries: list[Summary]) -> Summary:
    """The mean over problems of the mean of each."""
    return Summary(
        mean=fmean(each.mean for each in summaries),
        std=None,
        n=sum(each.n for each in summaries),
        smallest=min(each.smallest for each in summaries),
        largest=max(each.largest for each in summaries),
        interval=None,
    )


def _pooled(summaries: list[Summary]) -> Summary:
    """All runs of several problems as one sample."""
    count = sum(each.n for each in summaries)
    mean = fsum(each.n * each.mean for each in summaries) / count
    # Squared deviations within each problem, and those of its mean from the mean of all runs.
    squares = fsum(
        (each.n - 1) * (each.std or 0.0) ** 2 + each.n * (each.mean - mean) ** 2
        for each in summaries
    )
    return Summary(
        mean=mean,
        std=sqrt(squares / (count - 1)) if count > 1 else None,
        n=count,
        smallest=min(each.smallest for each in summaries),
        largest=max(each.largest for each in summaries),
        interval=None,
    )
