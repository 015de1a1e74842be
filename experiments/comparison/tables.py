"""The tables of a comparison, as text in cells: what is shown, not how it is set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from costada.experiments.comparison import words
from costada.experiments.comparison.comparison import (
    AUC,
    COMPARED,
    COST,
    FINAL_OBJECTIVE,
    FINAL_SCORE,
    ITERATIONS,
    OBJECTIVES,
    OVERSHOOT,
    SCORES,
    Comparison,
    Mix,
    Rerun,
    Section,
    Summary,
    dollars_metric,
    roles_of,
)
from costada.experiments.comparison.metrics import CONFIDENCE, CUTOFFS
from costada.reports.formats import counted

METHOD = "method"
INTERVAL = f"{CONFIDENCE:.0%} interval"

Summaries = Mapping[str, Summary]


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    title: str
    note: str  # may be empty
    header: tuple[str, ...]  # column headings; the first column names the rows
    rows: tuple[tuple[str, ...], ...]
    # row and column of every cell that holds the best of its column
    best: frozenset[tuple[int, int]] = frozenset()
    num_names: int = 1  # leading columns that hold words rather than numbers


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table with a row per method.

    `text` makes a cell of the summaries of a method; `rank` orders them, higher is better, and is
    None if no value is better than another.
    """

    heading: str
    text: Callable[[Summaries], str]
    rank: Callable[[Summaries], float] | None = None


def by_method(section: Section, title: str, note: str, columns: Sequence[Column]) -> Table:
    """The table of a section with a row per method; without columns it has no row."""
    summaries = section.summaries
    header = (METHOD, *(column.heading for column in columns))
    if not columns:
        return Table(title, note, header, ())
    rows = [(method, *(column.text(by) for column in columns)) for method, by in summaries.items()]
    best = set()
    for number, column in enumerate(columns, 1):
        if column.rank is None or len(summaries) == 1:
            continue
        ranks = list(map(column.rank, summaries.values()))
        best |= {(row, number) for row, rank in enumerate(ranks) if rank == max(ranks) > -inf}
    return Table(title, note, header, tuple(rows), frozenset(best))


def score_column(heading: str, metric: str) -> Column:
    """Mean and sample standard deviation of a score."""
    return Column(heading, lambda by: words.score_spread(by[metric]), lambda by: by[metric].mean)


def objective_column(heading: str, metric: str, section: Section) -> Column:
    """Mean and sample standard deviation of an objective."""
    sign = -1.0 if section.is_minimized else 1.0
    return Column(
        heading,
        lambda by: words.objective_spread(by.get(metric)),
        lambda by: sign * by[metric].mean if metric in by else -inf,
    )


def best_objective(by: Summaries, section: Section) -> str:
    """The best final objective of a method, as a cell."""
    found = by.get(FINAL_OBJECTIVE)
    if found is None:
        return words.NOTHING
    return words.objective(found.smallest if section.is_minimized else found.largest)


def section_tables(section: Section) -> tuple[Table, ...]:
    """The tables of one section; those without a row are left out."""
    tables = (
        final_quality(section),
        objectives_at_cutoffs(section),
        scores_at_cutoffs(section),
        area_and_cost(section),
        differences(section),
        share_matrix(section),
        dollars_by_role(section),
    )
    return tuple(table for table in tables if table.rows)


def final_quality(section: Section) -> Table:
    """The quality at the end: mean, sample standard deviation, best."""

    def objective_rank(by: Summaries) -> float:
        found = by.get(FINAL_OBJECTIVE)
        if found is None:
            return -inf
        return -found.smallest if section.is_minimized else found.largest

    def score_rank(by: Summaries) -> float:
        return by[FINAL_SCORE].largest

    columns = []
    if _has_objectives(section):
        columns.append(objective_column("objective", FINAL_OBJECTIVE, section))
        text = partial(best_objective, section=section)
        columns.append(Column("best objective", text, objective_rank))
    columns.append(score_column("score", FINAL_SCORE))
    columns.append(Column(INTERVAL, lambda by: words.score_interval(by[FINAL_SCORE].interval)))
    if section.is_minimized is not None:
        columns.append(Column("best score", lambda by: words.score(score_rank(by)), score_rank))
    columns.append(Column("runs", lambda by: str(by[FINAL_SCORE].n)))
    names = ", ".join(section.problems)
    averaged = f"Averages over {names}." if section.is_minimized is None else ""
    note = " ".join(filter(None, (averaged, failures_note(section))))
    return by_method(section, f"Final quality{_direction(section)}", note, columns)


def failures_note(section: Section) -> str:
    """How many runs of each method ended by failures; empty if there is none."""
    counts = {
        method: sum(run.has_given_up for some in runs.values() for run in some)
        for method, runs in section.runs.items()
    }
    given = ", ".join(f"{count} of {method}" for method, count in counts.items() if count)
    return (
        f"Ended by failures in a row, counted with their last iteration: {given}." if given else ""
    )


def objectives_at_cutoffs(section: Section) -> Table:
    """The objectives at each share of the budget."""
    columns = [objective_column(f"{cutoff:g} B", OBJECTIVES[cutoff], section) for cutoff in CUTOFFS]
    note = "The objective of the candidate that is best by score at each share of the budget."
    title = f"Objective at shares of the budget{_direction(section)}"
    return by_method(section, title, note, columns if _has_objectives(section) else [])


def scores_at_cutoffs(section: Section) -> Table:
    """The normalised scores at each share of the budget."""
    columns = [score_column(f"{cutoff:g} B", SCORES[cutoff]) for cutoff in CUTOFFS]
    return by_method(section, "Normalised score at shares of the budget", "", columns)


def area_and_cost(section: Section) -> Table:
    """Normalised AUC, AvgCost and overshoot."""
    columns = [
        score_column("AUC", AUC),
        Column(INTERVAL, lambda by: words.score_interval(by[AUC].interval)),
        Column("AvgCost", lambda by: words.dollars(by[COST])),
        Column("overshoot, mean", lambda by: words.percent(by[OVERSHOOT].mean)),
        Column("overshoot, max", lambda by: words.percent(by[OVERSHOOT].largest)),
        Column("iterations", lambda by: f"{by[ITERATIONS].mean:.1f}"),
    ]
    ends_early = any(by[OVERSHOOT].smallest < 0 for by in section.summaries.values())
    note = "A negative overshoot: runs that ended within the budget." if ends_early else ""
    return by_method(section, "Normalised AUC, cost and overshoot", note, columns)


def differences(section: Section) -> Table:
    """The differences to the baseline, paired by problem and seed."""
    rows = []
    for method, found in section.differences.items():
        if found:
            cells = [method]
            for metric in COMPARED:
                cells.append(f"{found[metric].mean:+.4f}")
                cells.append(words.score_interval(found[metric].interval, "+"))
            rows.append((*cells, str(found[AUC].n)))
    header = (METHOD, "AUC", INTERVAL, "final score", INTERVAL, "pairs")
    note = (
        f"Each run minus the {section.baseline} run of the same problem and seed: above 0 is"
        f" better than {section.baseline}."
    )
    return Table(f"Difference to {section.baseline}", note, header, tuple(rows))


def share_matrix(section: Section) -> Table:
    """The share of the budget at which each method is as far as another at its end."""
    methods = tuple(section.runs)
    rows = tuple(
        (one, *(words.percent(section.shares[one, other]) for other in methods)) for one in methods
    )
    note = (
        "The smallest share of the budget at which the mean curve of the method on the left"
        " reaches the final mean score of the method above; - if it never does."
    )
    title = "Share of the budget to reach another method's final score"
    return Table(title, note, ("reaches", *methods), rows if len(methods) > 1 else ())


def dollars_by_role(section: Section) -> Table:
    """The cost of each kind of call per run."""
    roles = dict.fromkeys(role for runs in section.runs.values() for role in roles_of(runs))

    def column(role: str) -> Column:
        return Column(role, lambda by: words.dollars(by.get(dollars_metric(role))))

    title = "Dollars by kind of call, mean per run"
    return by_method(section, title, "", list(map(column, roles)))


def rerun_table(reruns: Sequence[Rerun]) -> Table:
    """Runs with a small budget beside larger budgets cut off at the same dollars."""
    header = (
        *("problem", "model", METHOD, "budget", "its score", "its objective"),
        *("cut from", "score there", "objective there", "score, rerun - cutoff"),
    )
    note = "Runs that knew of the small budget, beside runs of the larger one when they crossed it."
    rows = tuple(
        (
            each.problem,
            each.model,
            each.method,
            words.money(each.small),
            words.score_spread(each.rerun),
            words.objective_spread(each.rerun_objective),
            words.money(each.large),
            words.score_spread(each.cutoff),
            words.objective_spread(each.cutoff_objective),
            f"{each.rerun.mean - each.cutoff.mean:+.4f}",
        )
        for each in reruns
    )
    return Table("Small budgets against cutoffs of larger ones", note, header, rows, num_names=3)


def mix_table(mixes: Sequence[Mix]) -> Table:
    """What keeps runs of one name apart, one row per setting and kind."""
    rows = tuple(
        (mix.name, label, setting, values[number], str(mix.counts[number]), mix.places[number])
        for mix in mixes
        for setting, values in mix.differing.items()
        for number, label in enumerate(mix.labels)
    )
    note = "Runs that differ in more than method and seed are not averaged together."
    header = ("name", "label", "setting", "value", "runs", "first of them")
    return Table("Settings that differ", note, header, rows, num_names=len(header))


def mix_lines(mixes: Sequence[Mix]) -> list[str]:
    """In one line for each kind what keeps it apart."""
    return [
        f"kept apart: {mix.name} [{label}], {counted(mix.counts[number], 'run')} from"
        f" {mix.places[number] or 'a file'}: "
        + ", ".join(f"{name} {values[number]}" for name, values in mix.differing.items())
        for mix in mixes
        for number, label in enumerate(mix.labels)
    ]


def overview(comparison: Comparison) -> Table:
    """One row per problem, model, budget and method."""
    header = (
        *("problem", "model", METHOD, "budget", "runs"),
        *("objective", "best", "score", "AUC", "AvgCost"),
    )
    rows = tuple(
        (
            section.problems[0],
            section.model,
            method,
            words.money(section.budget),
            str(by[FINAL_SCORE].n),
            words.objective_spread(by.get(FINAL_OBJECTIVE)),
            best_objective(by, section),
            words.score_spread(by[FINAL_SCORE]),
            words.score(by[AUC].mean),
            words.dollars(by[COST]),
        )
        for section in comparison.sections
        for method, by in section.summaries.items()
    )
    return Table("All runs", "", header, rows, num_names=3)


def _has_objectives(section: Section) -> bool:
    return any(FINAL_OBJECTIVE in by for by in section.summaries.values())


def _direction(section: Section) -> str:
    if section.is_minimized is None:
        return ""
    return f" (objective: {'lower' if section.is_minimized else 'higher'} is better)"
