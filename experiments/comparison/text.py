"""A comparison as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence

from costada.experiments.comparison.comparison import Comparison, Summary
from costada.experiments.comparison.tables import (
    DEFINITIONS,
    Table,
    mix_table,
    rerun_table,
    section_tables,
    section_title,
)

AVERAGE = "(mean over problems)"
COLUMNS = (
    *("problem", "model", "budget", "method", "metric"),
    *("mean", "std", "n", "low", "high", "min", "max", "missing"),
)
LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{letter: f"${letter}$" for letter in "<>|"},
    **{letter: f"{{{letter}}}" for letter in "[]"},
}


def to_markdown(comparison: Comparison, published: Sequence[Table], left_out: Sequence[str]) -> str:
    """The comparison as a Markdown page."""
    lines = ["# Comparison", ""]
    lines += [f"- **{name}**: {text}" for name, text in DEFINITIONS.items()]
    if left_out:
        lines += ["", "## Left out", "", *(f"- {_markdown(line)}" for line in left_out)]
    for heading, tables in _parts(comparison, published):
        lines += ["", f"## {_markdown(heading)}"]
        for table in tables:
            lines += ["", *_markdown_table(table)]
    return "\n".join(lines) + "\n"


def to_latex(comparison: Comparison, published: Sequence[Table]) -> str:
    """Every table of the comparison for LaTeX with the package booktabs."""
    tables = [
        _latex_table(heading, table)
        for heading, tables in _parts(comparison, published)
        for table in tables
        if table.rows
    ]
    return "% \\usepackage{booktabs}\n\n" + "\n\n".join(tables) + "\n"


def to_csv(comparison: Comparison) -> str:
    """One row per problem, model, budget, method and metric.

    Differences to the baseline and shares to reach another method are metrics too, the other
    method after a colon. `low` and `high` bound the confidence interval of the mean.
    `missing` are the runs, as PROBLEM:SEED, that another method has and this one has not.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for section in (*comparison.averages, *comparison.sections):
        problem = section.problems[0] if section.is_minimized is not None else AVERAGE
        for method, summaries in section.summaries.items():
            differences = section.differences.get(method, {})
            missing = " ".join(
                f"{where}:{seed}"
                for (who, where), seeds in section.missing.items()
                for seed in seeds
                if who == method
            )
            cells = {metric: _summary_cells(summary) for metric, summary in summaries.items()}
            for metric, summary in differences.items():
                cells[f"{metric}_minus:{section.baseline}"] = _summary_cells(summary)
            for other in section.runs:
                share = _number(section.shares[method, other])
                cells[f"share_to_reach:{other}"] = [share, *[""] * 6]
            for metric, row in cells.items():
                name = (problem, section.model, repr(section.budget), method, metric)
                writer.writerow([*name, *row, missing])
    return text.getvalue()


def _summary_cells(summary: Summary) -> list[str]:
    interval = summary.interval
    low, high = (interval.low, interval.high) if interval else (None, None)
    bounds = map(_number, (low, high, summary.smallest, summary.largest))
    return [_number(summary.mean), _number(summary.std), str(summary.n), *bounds]


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)


def _parts(
    comparison: Comparison, published: Sequence[Table]
) -> Iterator[tuple[str, Sequence[Table]]]:
    for section in (*comparison.averages, *comparison.sections):
        yield section_title(section), section_tables(section)
    if comparison.mixes:
        yield "Kept apart", [mix_table(comparison.mixes)]
    if comparison.reruns:
        yield "Small budgets", [rerun_table(comparison.reruns)]
    if published:
        yield "Published", published


def _markdown_table(table: Table) -> list[str]:
    lines = [f"### {_markdown(table.title)}", ""]
    if table.note:
        lines += [_markdown(table.note), ""]
    if table.warning:
        lines += [f"**{_markdown(table.warning)}**", ""]
    if not table.rows:
        return lines
    lines.append(f"| {' | '.join(map(_markdown, table.header))} |")
    lines.append("|" + " --- |" * table.num_names + " ---: |" * table.num_numbers)
    for row in _rows(table, _markdown, "**{}**"):
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _rows(table: Table, escaped: Callable[[str], str], bold: str) -> Iterator[list[str]]:
    """Yield the rows with escaped cells, the best ones bold."""
    for row, cells in enumerate(table.rows):
        yield [
            bold.format(escaped(cell)) if (row, column) in table.best else escaped(cell)
            for column, cell in enumerate(cells)
        ]


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*<>\[\]|~])", r"\\\1", " ".join(text.split()))


def _latex_table(heading: str, table: Table) -> str:
    caption = f"{heading}. {table.title}. {table.warning}".rstrip()
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_latex(caption)}}}",
        rf"\begin{{tabular}}{{{'l' * table.num_names}{'r' * table.num_numbers}}}",
        r"\toprule",
        rf"{' & '.join(map(_latex, table.header))} \\",
        r"\midrule",
        *(rf"{' & '.join(row)} \\" for row in _rows(table, _latex, r"\textbf{{{}}}")),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))
