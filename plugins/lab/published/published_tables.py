"""Tables with the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from costada.experiments.comparison.comparison import (
    AUC,
    COST,
    OBJECTIVES,
    OVERSHOOT,
    SCORES,
    Comparison,
    Section,
)
from costada.experiments.comparison.tables import (
    METHOD,
    NOTHING,
    Table,
    best_objective,
    missing_runs,
    money,
    objective,
)
from costada.plugins.lab.published.published import (
    AVERAGE,
    PAPER,
    PEOPLE,
    RUNS,
    PaperComparison,
    Printed,
    compare_with_paper,
    paper_model,
    plain_problem,
    printed_numbers,
)
from costada.reports.formats import counted

TITLE = "Beside the paper"
NEAR, FAR = 1.0, 2.0
"""Differences in standard errors that the overview counts."""

READING = (
    f'Numbers of "{PAPER}" beside runs of the same model, method, problem and budget. SE: ours'
    " minus printed, over the combined standard error of both means; each is the sample standard"
    f" deviation over the root of the runs, {RUNS} for a printed mean of one problem, and the"
    " rounding of the printed mean counts too. There is none (-) where one side has a single run"
    " or prints no deviation. Same leader: rows in which the best method of the paper is the best"
    " one here too."
)
EXPECTED = (
    "Few runs make the standard error itself uncertain: with three runs on both sides, 12 to 18 %"
    " of the differences exceed 2 although nothing differs, and the numbers of one table share"
    " their runs. Providers change models, and evaluators run on other machines."
)


def published_tables(comparison: Comparison) -> tuple[Table, ...]:
    """An overview, every table of the paper that has a counterpart here, and the best of people."""
    details, rows, unmatched = [], [], []
    settings = groupby(comparison.sections, key=lambda each: (each.model, each.budget))
    for (model, budget), group in settings:
        kinds, theirs = list(group), paper_model(model)
        problems = list(map(plain_problem, kinds))
        sections = [each for each in kinds if problems.count(plain_problem(each)) == 1]
        names = list(
            dict.fromkeys(
                each.table
                for each in printed_numbers()
                if (each.model, each.budget) == (theirs, budget)
            )
        )
        if not names:
            unmatched.append(f"{model} at {money(budget)}")
        elif len(sections) < len(kinds):
            several = ", ".join(each.problems[0] for each in kinds if each not in sections)
            unmatched.append(f"{several} with {model} at {money(budget)} (several kinds of runs)")
        for name in names:
            numbers = [
                each
                for each in printed_numbers()
                if (each.table, each.model, each.budget) == (name, theirs, budget)
            ]
            found = [pair for each in numbers if (pair := compare_with_paper(each, sections))]
            title = f"{name[0].upper()}{name[1:]}: {theirs}, {money(budget)}, beside {model}"
            rows.append(
                _overview_row(f"{theirs}, {money(budget)}", model, numbers, found, sections)
            )
            if found:
                details.append(_detail(title, numbers, found, sections))
    missing = "; ".join(filter(None, map(missing_runs, comparison.sections))) if rows else ""
    warning = missing and f"Methods here are not over the same seeds: {missing}."
    overview = _overview(rows, unmatched, warning)
    people = _people(comparison.sections)
    return tuple(table for table in (overview, *details, people) if table.rows or table.note)


def _overview(rows: Sequence[tuple[str, ...]], unmatched: Sequence[str], warning: str) -> Table:
    header = (
        *("table", "paper", "here", "means", "with SE"),
        *(f"within {NEAR:g} SE", f"within {FAR:g} SE", f"beyond {FAR:g} SE", "farthest"),
        "same leader",
    )
    notes = [READING, EXPECTED] if rows else []
    if unmatched:
        has = dict.fromkeys(
            f"{each.model} at {money(each.budget)}" for each in printed_numbers() if each.model
        )
        notes.append(
            f"No counterpart: {', '.join(unmatched)}; the paper has {', '.join(has)}."
            " Give the same model and budget to compare."
        )
    return Table(TITLE, " ".join(notes), header, tuple(rows), num_names=3, warning=warning)


def _overview_row(
    paper: str,
    model: str,
    numbers: Sequence[Printed],
    found: Sequence[PaperComparison],
    sections: Sequence[Section],
) -> tuple[str, ...]:
    num_means = sum("mean" in each.texts for each in numbers)
    distances = {abs(pair.in_errors): pair.printed for pair in found if pair.in_errors is not None}
    values = [abs(pair.in_errors) for pair in found if pair.in_errors is not None]
    farthest = NOTHING
    if distances:
        distance = max(distances)
        number = distances[distance]
        farthest = f"{distance:.1f} ({number.problem}, {number.method}, {_heading(number)})"
    return (
        numbers[0].table,
        paper,
        model,
        f"{len(found)} of {num_means}",
        str(len(values)),
        str(sum(value <= NEAR for value in values)),
        str(sum(value <= FAR for value in values)),
        str(sum(value > FAR for value in values)),
        farthest,
        _same_leaders(found, sections),
    )


def _same_leaders(found: Sequence[PaperComparison], sections: Sequence[Section]) -> str:
    """In how many rows of several methods the best method of the paper is the best one here."""
    minimized = {plain_problem(each) for each in sections if each.is_minimized}
    rows: dict[tuple[str, str], list[PaperComparison]] = {}
    for pair in found:
        if pair.printed.metric not in (COST, OVERSHOOT):
            rows.setdefault((pair.printed.problem, pair.printed.metric), []).append(pair)
    several = {key: pairs for key, pairs in rows.items() if len(pairs) > 1}
    num_same = 0
    for (name, metric), pairs in several.items():
        best = min if name in minimized and metric in OBJECTIVES.values() else max
        leader = best(pairs, key=lambda pair: pair.ours.mean)
        num_same += leader.value == best(pair.value for pair in pairs)
    return f"{num_same} of {len(several)}" if several else NOTHING


def _detail(
    title: str,
    numbers: Sequence[Printed],
    found: Sequence[PaperComparison],
    sections: Sequence[Section],
) -> Table:
    """One table of the paper: a row per problem and method, and three columns per metric."""
    pairs = {
        (each.printed.problem, each.printed.method, each.printed.metric): each for each in found
    }
    metrics = list(dict.fromkeys(each.printed.metric for each in found))
    extremes = [
        (metric, extreme)
        for metric in metrics
        for extreme in ("best", "max")
        if any(extreme in each.texts for each in numbers if each.metric == metric)
    ]
    header = ["problem", METHOD, "runs"]
    for metric in metrics:
        heading = _heading(next(each for each in numbers if each.metric == metric))
        header += [f"{heading}, paper", f"{heading}, here", f"{heading}, SE"]
    for _, extreme in extremes:
        header += [f"{extreme}, paper", f"{extreme}, here"]
    rows = []
    for problem, method in dict.fromkeys((problem, method) for problem, method, _ in pairs):
        own = {metric: pairs.get((problem, method, metric)) for metric in metrics}
        counts = sorted({pair.ours.n for pair in own.values() if pair})
        cells = [problem, method, " to ".join(dict.fromkeys(map(str, (counts[0], counts[-1]))))]
        for metric in metrics:
            cells += _cells(own[metric])
        for metric, extreme in extremes:
            cells += _extreme_cells(own[metric], extreme, sections)
        rows.append(tuple(cells))
    missing = sum("mean" in each.texts for each in numbers) - len(found)
    notes = []
    if missing:
        notes.append(f"{counted(missing, 'printed mean')} without runs here.")
    if any(each.printed.problem == AVERAGE for each in found):
        notes.append("average: over the problems that both sides have.")
    if any(each.printed.metric == OVERSHOOT for each in found):
        notes.append("The deviation of the printed overshoot is that of the cost, over B.")
    return Table(title, " ".join(notes), tuple(header), tuple(rows), num_names=2)


def _cells(pair: PaperComparison | None) -> list[str]:
    """What the paper prints, ours, and the difference in standard errors."""
    if pair is None:
        return [NOTHING] * 3
    number, distance = pair.printed, pair.in_errors
    text = number.texts["mean"]
    if pair.value != number.value("mean"):
        text = f"{_written(pair.value, number)} (rows)"
    if std := number.texts.get("std"):
        text = f"{text} ± {std}"
    ours = _written(pair.ours.mean, number)
    if pair.ours.std is not None:
        ours = f"{ours} ± {_written(pair.ours.std, number)}"
    return [text, ours, NOTHING if distance is None else f"{round(distance, 1) + 0.0:+.1f}"]


def _extreme_cells(
    pair: PaperComparison | None, extreme: str, sections: Sequence[Section]
) -> list[str]:
    """The best or largest value that the paper prints, and ours."""
    if pair is None or extreme not in pair.printed.texts:
        return [NOTHING] * 2
    number, ours = pair.printed, pair.ours
    value = ours.largest
    if extreme == "best":
        (section,) = [each for each in sections if plain_problem(each) == number.problem]
        value = ours.smallest if section.is_minimized else ours.largest
    return [number.texts[extreme], _written(value, number)]


def _heading(number: Printed) -> str:
    """Heading of a metric: a share of the budget, or dollars in the table of small budgets."""
    for names in (OBJECTIVES, SCORES):
        for cutoff, name in names.items():
            if name == number.metric:
                is_small = number.table == "small budget"
                return money(cutoff * number.budget) if is_small else f"{cutoff:g} B"
    return {AUC: "AUC", COST: "AvgCost", OVERSHOOT: "overshoot"}[number.metric]


def _written(value: float, number: Printed) -> str:
    """A number with as many digits as the printed mean."""
    digits = len(number.texts["mean"].removesuffix(" %").partition(".")[2])
    if number.metric == OVERSHOOT:
        return f"{100 * value:.{digits}f} %"
    return f"{value:.{digits}f}"


def _people(sections: Sequence[Section]) -> Table:
    """The best objective known to people beside the best run of every setting."""
    known = {
        each.problem: each.texts["best"] for each in printed_numbers() if each.method == PEOPLE
    }
    rows = tuple(_people_rows(sections, known))
    header = ("problem", "model", METHOD, "budget", "people", "best here")
    return Table("Best objective of people, as the paper prints it", "", header, rows, num_names=4)


def _people_rows(sections: Sequence[Section], known: dict[str, str]) -> Iterator[tuple[str, ...]]:
    for section in sections:
        name = plain_problem(section)
        if name not in known:
            continue
        ranked = [
            (value, method)
            for method, by in section.summaries.items()
            if (value := best_objective(by, section)) is not None
        ]
        if ranked:
            value, method = min(ranked) if section.is_minimized else max(ranked)
            yield (
                section.problems[0],
                section.model,
                method,
                money(section.budget),
                known[name],
                objective(value),
            )
