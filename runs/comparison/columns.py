"""Tables with a row per method: their columns, and which cell of a column is the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from costada.runs.comparison import words
from costada.runs.comparison.sections import (
    FINAL_OBJECTIVE,
    FINAL_SCORE,
    Section,
    Summary,
    dollars_metric,
)

METHOD = "method"

Summaries = Mapping[str, Summary]


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        title: What it shows.
        note: How to read it; may be empty.
        header: Column headings; the first column names the rows.
        rows: Cells.
        best: Row and column of every cell that holds the best of its column.
        num_names: Leading columns that hold words rather than numbers.
    """

    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    num_names: int = 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table with a row per method.

    Attributes:
        heading: What stands above it.
        text: Makes a cell of the summaries of a method.
        rank: Says how good a method is in it, upwards; None if no value is better than another.
    """

    heading: str
    text: Callable[[Summaries], str]
    rank: Callable[[Summaries], float] | None = None


def by_method(section: Section, title: str, note: str, columns: Sequence[Column]) -> Table:
    """Return the table of a section with a row per method; without columns it has no row."""
    summaries = section.summaries
    rows = (
        [(method, *(column.text(by) for column in columns)) for method, by in summaries.items()]
        if columns
        else []
    )
    best = {
        (row, number)
        for number, column in enumerate(columns, 1)
        for row in _best_rows(list(summaries.values()), column)
    }
    header = (METHOD, *(column.heading for column in columns))
    return Table(title, note, header, tuple(rows), frozenset(best))


def _best_rows(summaries: Sequence[Summaries], column: Column) -> list[int]:
    if column.rank is None or len(summaries) == 1:
        return []
    ranks = list(map(column.rank, summaries))
    return [row for row, rank in enumerate(ranks) if rank == max(ranks) > -inf]


def score_column(heading: str, metric: str) -> Column:
    """Return mean and sample standard deviation of a score."""
    return Column(heading, lambda by: words.score_spread(by[metric]), lambda by: by[metric].mean)


def objective_column(heading: str, metric: str, section: Section) -> Column:
    """Return mean and sample standard deviation of an objective."""
    sign = -1.0 if section.is_minimized else 1.0
    return Column(
        heading,
        lambda by: words.objective_spread(by.get(metric)),
        lambda by: sign * by[metric].mean if metric in by else -inf,
    )


def dollars_column(role: str) -> Column:
    """Return the mean dollars of a role's calls."""
    return Column(role, lambda by: words.dollars(by.get(dollars_metric(role))))


def best_score_column() -> Column:
    """Return the best final score."""
    return Column(
        "best score",
        lambda by: words.score(by[FINAL_SCORE].largest),
        lambda by: by[FINAL_SCORE].largest,
    )


def best_objective_column(section: Section) -> Column:
    """Return the best final objective."""

    def rank(by: Summaries) -> float:
        found = by.get(FINAL_OBJECTIVE)
        if found is None:
            return -inf
        return -found.smallest if section.is_minimized else found.largest

    return Column("best objective", lambda by: best_objective(by, section), rank)


def best_objective(by: Summaries, section: Section) -> str:
    """Return the best final objective of a method, as a cell."""
    found = by.get(FINAL_OBJECTIVE)
    if found is None:
        return words.NOTHING
    return words.objective(found.smallest if section.is_minimized else found.largest)
