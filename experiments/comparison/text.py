"""A comparison as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from costada.experiments.comparison import words
from costada.experiments.comparison.comparison import Comparison, Section, Summary
from costada.experiments.comparison.tables import Table, mix_table, rerun_table, section_tables

AVERAGE = "(mean over problems)"
COLUMNS = (
    *("problem", "model", "budget", "method", "metric"),
    *("mean", "std", "n", "low", "high", "min", "max"),
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


def to_markdown(comparison: Comparison, published: Table | None, left_out: Sequence[str]) -> str:
    """The comparison as a Markdown page."""
    parts = [
        "# Comparison",
        "",
        *(f"- **{name}**: {text}" for name, text in words.DEFINITIONS.items()),
    ]
    if left_out:
        parts += ["", "## Left out", "", *(f"- {_markdown(line)}" for line in left_out)]
    for heading, tables in _parts(comparison, published):
        parts += ["", f"## {_markdown(heading)}"]
        for table in tables:
            parts += ["", *_markdown_table(table)]
    return "\n".join(parts) + "\n"


def to_latex(comparison: Comparison, published: Table | None) -> str:
    """Every table of the comparison for LaTeX with the package booktabs."""
    tables = [
        _latex_table(heading, table)
        for heading, tables in _parts(comparison, published)
        for table in tables
    ]
    return "% \\usepackage{booktabs}\n\n" + "\n\n".join(tables) + "\n"


def to_csv(comparison: Comparison) -> str:
    """One row per problem, model, budget, method and metric.

    Differences to the baseline and shares to reach another method are metrics too, the other
    method after a colon. `low` and `high` bound the confidence interval of the mean.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for section in (*comparison.averages, *comparison.sections):
        for method in section.runs:
            for metric, cells in _csv_cells(section, method):
                problem = section.problems[0] if section.is_minimized is not None else AVERAGE
                writer.writerow(
                    [problem, section.model, repr(section.budget), method, metric, *cells]
                )
    return text.getvalue()


def _csv_cells(section: Section, method: str) -> Iterator[tuple[str, list[str]]]:
    for metric, summary in section.summaries[method].items():
        yield metric, _summary_cells(summary)
    for metric, summary in section.differences.get(method, {}).items():
        yield f"{metric}_minus:{section.baseline}", _summary_cells(summary)
    for (one, other), share in section.shares.items():
        if one == method:
            yield f"share_to_reach:{other}", [_number(share), "", "", "", "", "", ""]


def _summary_cells(summary: Summary) -> list[str]:
    interval = summary.interval
    low, high = (interval.low, interval.high) if interval else (None, None)
    bounds = map(_number, (low, high, summary.smallest, summary.largest))
    return [_number(summary.mean), _number(summary.std), str(summary.n), *bounds]


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)


def _parts(
    comparison: Comparison, published: Table | None
) -> Iterator[tuple[str, Sequence[Table]]]:
    for section in (*comparison.averages, *comparison.sections):
        yield words.section_title(section), section_tables(section)
    if comparison.mixes:
        yield "Kept apart", [mix_table(comparison.mixes)]
    if comparison.reruns:
        yield "Small budgets", [rerun_table(comparison.reruns)]
    if published:
        yield "Published", [published]


def _markdown_table(table: Table) -> list[str]:
    lines = [f"### {_markdown(table.title)}", ""]
    if table.note:
        lines += [_markdown(table.note), ""]
    lines.append(_markdown_row(table.header))
    lines.append("|" + " --- |" * table.num_names + " ---: |" * _num_numbers(table))
    for row, cells in enumerate(table.rows):
        shown = map(_markdown, cells)
        bold = (
            f"**{cell}**" if (row, column) in table.best else cell
            for column, cell in enumerate(shown)
        )
        lines.append(f"| {' | '.join(bold)} |")
    return lines


def _num_numbers(table: Table) -> int:
    return len(table.header) - table.num_names


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_markdown, cells))} |"


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*<>\[\]|~])", r"\\\1", " ".join(text.split()))


def _latex_table(heading: str, table: Table) -> str:
    rows = [
        " & ".join(
            rf"\textbf{{{_latex(cell)}}}" if (row, column) in table.best else _latex(cell)
            for column, cell in enumerate(cells)
        )
        for row, cells in enumerate(table.rows)
    ]
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{_latex(f'{heading}. {table.title}.')}}}",
            rf"\begin{{tabular}}{{{'l' * table.num_names}{'r' * _num_numbers(table)}}}",
            r"\toprule",
            rf"{' & '.join(map(_latex, table.header))} \\",
            r"\midrule",
            *(rf"{row} \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))
