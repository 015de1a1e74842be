"""The tables of a comparison as cells of text, independent of the output format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import floor, inf, log10

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
    TO_REACH,
    Comparison,
    Mix,
    Rerun,
    Section,
    Summary,
    dollars_metric,
    roles_of,
)
from costada.experiments.comparison.metrics import CONFIDENCE, CUTOFFS, RESAMPLES, Interval
from costada.reports.formats import counted

METHOD = "method"
INTERVAL = f"{CONFIDENCE:.0%} interval"

Summaries = Mapping[str, Summary]

NOTHING = "-"
MIN_PLAIN, MAX_PLAIN = 1e-4, 1e7
OBJECTIVE_DIGITS, STD_DIGITS = 5, 2

DEFINITIONS = {
    "Score and objective": "The score is normalised and higher is better; the objective is in the"
    " benchmark's own units.",
    "At q B": "The best candidate by score once the first iteration with at least the share q of"
    " the budget B charged was complete, and the objective of that candidate.",
    "AUC": "The best score so far, averaged over the cost from 0 to B. An iteration is charged"
    " before its score counts; after an earlier end the score stays the same.",
    "AvgCost and overshoot": "The dollars charged when the iteration that crossed the budget was"
    " complete, and the share of B by which they exceed B.",
    "±": "Sample standard deviation over runs (n - 1). An average over problems is the mean of the"
    " means of each problem.",
    f"{CONFIDENCE:.0%} interval": f"Percentile bootstrap of the mean ({RESAMPLES:,} resamples over"
    " seeds within each problem, fixed random seed; differences are paired by problem and seed)."
    " Few runs make it too narrow: of normally distributed values it covers the mean in about 50%"
    " of cases with two runs, 76% with three, 84% with five, 92% with ten. There is none for a"
    " single run.",
}
"""How to read a comparison. The coverage was measured over 2,000 samples of each size."""


def section_title(section: Section) -> str:
    """What is compared in a section, in a few words."""
    problems = section.problems
    what = problems[0] if len(problems) == 1 else f"mean of {len(problems)} problems"
    return f"{what}, {shared_by(section)}"


def shared_by(section: Section) -> str:
    """What all problems of a section's group share: model or method, and budget."""
    shared = section.model if section.subject == "method" else f"{section.method} by model"
    return f"{shared}, {money(section.budget)}"


def missing_runs(section: Section) -> str:
    """Which methods lack runs that others have, in a few words; empty if none does."""
    parts = []
    for (method, problem), seeds in section.missing.items():
        blocks: list[str] = []
        # Seeds that follow each other have the same distance to their place in the list.
        for _, block in groupby(enumerate(seeds), lambda pair: pair[1] - pair[0]):
            numbers = [seed for _, seed in block]
            is_range = len(numbers) > 2
            blocks += [f"{numbers[0]} to {numbers[-1]}"] if is_range else map(str, numbers)
        what = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(blocks)}"
        parts.append(f"{method} has no comparable run of {problem}, {what}")
    return "; ".join(parts)


def unequal_seeds(section: Section) -> str:
    """Warning that methods are averaged over different seeds; empty if they are not."""
    missing = missing_runs(section)
    return missing and f"Not over the same seeds, so nothing is bold: {missing}."


def money(dollars: float) -> str:
    """Dollars as a budget is given."""
    return f"${dollars:g}"


def objective(value: float, digits: int = OBJECTIVE_DIGITS) -> str:
    """An objective with so many significant digits."""
    if value == 0:
        return "0"
    if not MIN_PLAIN <= abs(value) < MAX_PLAIN:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - floor(log10(abs(value))))}f}"


def objective_spread(summary: Summary | None) -> str:
    """Mean and sample standard deviation of an objective."""
    if summary is None:
        return NOTHING
    mean = objective(summary.mean)
    return mean if summary.std is None else f"{mean} ± {objective(summary.std, STD_DIGITS)}"


def score_spread(summary: Summary) -> str:
    """Mean and sample standard deviation of normalised scores or areas."""
    mean = score(summary.mean)
    return mean if summary.std is None else f"{mean} ± {score(summary.std)}"


def score(value: float) -> str:
    """A normalised score, or an area under its curve."""
    return f"{value:.4f}"


def score_interval(interval: Interval | None, sign: str = "") -> str:
    """The bounds of an interval of scores; the sign `+` shows signs."""
    if interval is None:
        return NOTHING
    return f"{interval.low:{sign}.4f} to {interval.high:{sign}.4f}"


def dollars(summary: Summary | None) -> str:
    """A mean of dollars."""
    return NOTHING if summary is None else f"${summary.mean:.4f}"


def dollars_interval(interval: Interval | None) -> str:
    """The bounds of an interval of dollars."""
    return NOTHING if interval is None else f"${interval.low:.4f} to ${interval.high:.4f}"


def percent(share: float | None) -> str:
    """A share in percent."""
    return NOTHING if share is None else f"{100 * share:.2f} %"


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
    warning: str = ""  # why its rows are not comparable; empty if they are

    @property
    def num_numbers(self) -> int:
        """Columns that hold numbers."""
        return len(self.header) - self.num_names


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table with a row per method.

    `text` makes a cell of the summaries of a method; `rank` orders them, higher is better, and is
    None if no value is better than another.
    """

    heading: str
    text: Callable[[Summaries], str]
    rank: Callable[[Summaries], float] | None = None


def table_of(section: Section, title: str, note: str, columns: Sequence[Column]) -> Table:
    """The table of a section with a row per method or model; without columns it has no row.

    The best of a column is marked only where all rows have runs of the same seeds.
    """
    summaries = section.summaries
    header = (section.subject, *(column.heading for column in columns))
    if not columns:
        return Table(title, note, header, ())
    rows = [(method, *(column.text(by) for column in columns)) for method, by in summaries.items()]
    best = set()
    for number, column in enumerate(columns, 1):
        if column.rank is None or len(summaries) == 1 or section.missing:
            continue
        ranks = list(map(column.rank, summaries.values()))
        best |= {(row, number) for row, rank in enumerate(ranks) if rank == max(ranks) > -inf}
    warning = unequal_seeds(section)
    return Table(title, note, header, tuple(rows), frozenset(best), warning=warning)


def score_column(heading: str, metric: str) -> Column:
    """Mean and sample standard deviation of a score."""
    return Column(heading, lambda by: score_spread(by[metric]), lambda by: by[metric].mean)


def objective_column(heading: str, metric: str, section: Section) -> Column:
    """Mean and sample standard deviation of an objective, over the runs that have one.

    Where a run has none, the cell counts those that do, and no value is better than another.
    """
    sign = -1.0 if section.is_minimized else 1.0

    def is_partial(by: Summaries) -> bool:
        return metric in by and by[metric].n < by[FINAL_SCORE].n

    def text(by: Summaries) -> str:
        shown = objective_spread(by.get(metric))
        return f"{shown} ({by[metric].n} of {by[FINAL_SCORE].n} runs)" if is_partial(by) else shown

    if any(map(is_partial, section.summaries.values())):
        return Column(heading, text)
    return Column(heading, text, lambda by: sign * by[metric].mean if metric in by else -inf)


def best_objective(by: Summaries, section: Section) -> float | None:
    """The best final objective of a method."""
    found = by.get(FINAL_OBJECTIVE)
    if found is None:
        return None
    return found.smallest if section.is_minimized else found.largest


WHOLE_ITERATION = (
    "The iteration that crosses a share counts as a whole. So expensive iterations have spent more"
    " than the share, most of all at 0.25 B, and bold favours them; AUC does not."
)


def section_tables(section: Section) -> tuple[Table, ...]:
    """The tables of one section; those without a row are left out."""
    objectives = [
        objective_column(f"{cutoff:g} B", OBJECTIVES[cutoff], section) for cutoff in CUTOFFS
    ]
    scores = [score_column(f"{cutoff:g} B", SCORES[cutoff]) for cutoff in CUTOFFS]
    roles = dict.fromkeys(role for runs in section.runs.values() for role in roles_of(runs))
    tables = (
        final_quality(section),
        table_of(
            section,
            f"Objective at shares of the budget{_direction(section)}",
            f"The objective of the candidate that is best by score at each share of the budget."
            f" {WHOLE_ITERATION}",
            objectives if _has_objectives(section) else [],
        ),
        table_of(section, "Normalised score at shares of the budget", WHOLE_ITERATION, scores),
        area_and_cost(section),
        differences(section),
        share_matrix(section),
        table_of(
            section, "Dollars by kind of call, mean per run", "", list(map(_role_column, roles))
        ),
    )
    return tuple(table for table in tables if table.rows)


def _role_column(role: str) -> Column:
    return Column(role, lambda by: dollars(by.get(dollars_metric(role))))


def final_quality(section: Section) -> Table:
    """The quality at the end: mean, sample standard deviation, best; how many runs gave up."""
    sign = -1.0 if section.is_minimized else 1.0

    def objective_rank(by: Summaries) -> float:
        best = best_objective(by, section)
        return -inf if best is None else sign * best

    def score_rank(by: Summaries) -> float:
        return by[FINAL_SCORE].largest

    columns = []
    if _has_objectives(section):
        columns.append(objective_column("objective", FINAL_OBJECTIVE, section))
        text = partial(_best_cell, section=section)
        columns.append(Column("best objective", text, objective_rank))
    columns.append(score_column("score", FINAL_SCORE))
    columns.append(Column(INTERVAL, lambda by: score_interval(by[FINAL_SCORE].interval)))
    if section.is_minimized is not None:
        columns.append(Column("best score", lambda by: score(score_rank(by)), score_rank))
    columns.append(Column("runs", lambda by: str(by[FINAL_SCORE].n)))
    notes = []
    if section.is_minimized is None:
        notes.append(f"Averages over {', '.join(section.problems)}.")
    if section.has_target:
        notes.append(
            "Runs end at their target: compare the dollars to reach it. A score above it is that of"
            " the last step."
        )
    counts = {
        method: sum(run.has_given_up for some in runs.values() for run in some)
        for method, runs in section.runs.items()
    }
    if given := ", ".join(f"{count} of {method}" for method, count in counts.items() if count):
        notes.append(f"Ended by failures in a row, counted with their last iteration: {given}.")
    return table_of(section, f"Final quality{_direction(section)}", " ".join(notes), columns)


def _best_cell(by: Summaries, section: Section) -> str:
    best = best_objective(by, section)
    return NOTHING if best is None else objective(best)


def area_and_cost(section: Section) -> Table:
    """Normalised AUC, dollars to reach a score, AvgCost and overshoot."""
    columns = [
        score_column("AUC", AUC),
        Column(INTERVAL, lambda by: score_interval(by[AUC].interval)),
        Column("dollars to reach", lambda by: dollars(by[TO_REACH]), lambda by: -by[TO_REACH].mean),
        Column(INTERVAL, lambda by: dollars_interval(by[TO_REACH].interval)),
        Column("AvgCost", lambda by: dollars(by[COST])),
        Column("overshoot, mean", lambda by: percent(by[OVERSHOOT].mean)),
        Column("overshoot, max", lambda by: percent(by[OVERSHOOT].largest)),
        Column("iterations", lambda by: f"{by[ITERATIONS].mean:.1f}"),
    ]
    ends_early = any(by[OVERSHOOT].smallest < 0 for by in section.summaries.values())
    targets = ", ".join(
        score(target) if len(section.targets) == 1 else f"{score(target)} on {problem}"
        for problem, target in section.targets.items()
    )
    what = "target" if section.has_target else f"lowest final mean score of a {section.subject}"
    note = f"Dollars to reach the {what} ({targets}); the whole budget for a run that does not."
    if ends_early:
        note += " A negative overshoot: runs that ended within the budget."
    return table_of(section, "Normalised AUC, cost and overshoot", note, columns)


def differences(section: Section) -> Table:
    """The differences to the baseline, paired by problem and seed."""
    rows = []
    for method, found in section.differences.items():
        if found:
            cells = [method]
            for metric in COMPARED:
                cells.append(f"{found[metric].mean:+.4f}")
                cells.append(score_interval(found[metric].interval, "+"))
            rows.append((*cells, str(found[AUC].n)))
    header = (section.subject, "AUC", INTERVAL, "final score", INTERVAL, "pairs")
    note = (
        f"Each run minus the {section.baseline} run of the same problem and seed: above 0 is"
        f" better than {section.baseline}."
    )
    missing = missing_runs(section)
    warning = (
        missing and f"Each row is over the seeds that both {section.subject}s have: {missing}."
    )
    title = f"Difference to {section.baseline}"
    return Table(title, note, header, tuple(rows), warning=warning)


def share_matrix(section: Section) -> Table:
    """The share of the budget at which each method is as far as another at its end."""
    methods = tuple(section.runs)
    rows = tuple(
        (one, *(percent(section.shares[one, other]) for other in methods)) for one in methods
    )
    note = (
        f"The smallest share of the budget at which the mean curve of the {section.subject} on the"
        f" left reaches the final mean score of the {section.subject} above; - if it never does."
    )
    title = f"Share of the budget to reach another {section.subject}'s final score"
    header, warning = ("reaches", *methods), unequal_seeds(section)
    return Table(title, note, header, rows if len(methods) > 1 else (), warning=warning)


def rerun_table(reruns: Sequence[Rerun]) -> Table:
    """Runs with a small budget beside larger budgets cut off at the same dollars."""
    header = (
        *("problem", "model", METHOD, "budget", "its score", "its objective"),
        *("cut from", "score there", "objective there", "score, rerun - cutoff", "pairs"),
    )
    note = (
        "Runs that knew of the small budget, beside runs of the larger one when they crossed it;"
        " both over the seeds that both budgets have."
    )
    rows = tuple(
        (
            each.problem,
            each.model,
            each.method,
            money(each.small),
            score_spread(each.rerun),
            objective_spread(each.rerun_objective),
            money(each.large),
            score_spread(each.cutoff),
            objective_spread(each.cutoff_objective),
            f"{each.rerun.mean - each.cutoff.mean:+.4f}",
            str(each.rerun.n),
        )
        for each in reruns
    )
    return Table("Small budgets against cutoffs of larger ones", note, header, rows, num_names=3)


def mix_table(mixes: Sequence[Mix]) -> Table:
    """The settings in which runs of one name differ, one row per setting and kind."""
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
    """One line per kind with the settings in which it differs."""
    return [
        f"kept apart: {mix.name} [{label}], {counted(mix.counts[number], 'run')} from"
        f" {mix.places[number] or 'a file'}: "
        + ", ".join(f"{name} {values[number]}" for name, values in mix.differing.items())
        for mix in mixes
        for number, label in enumerate(mix.labels)
    ]


def missing_lines(comparison: Comparison) -> list[str]:
    """One line per section whose averages are not over the same seeds."""
    return [
        f"not over the same seeds, {section.model} at {money(section.budget)}: {missing}"
        for section in comparison.sections
        if (missing := missing_runs(section))
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
            money(section.budget),
            str(by[FINAL_SCORE].n),
            objective_spread(by.get(FINAL_OBJECTIVE)),
            _best_cell(by, section),
            score_spread(by[FINAL_SCORE]),
            score(by[AUC].mean),
            dollars(by[COST]),
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
