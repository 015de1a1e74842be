"""A comparison of the runs below a folder as files: Markdown, CSV, LaTeX and a page."""

from __future__ import annotations

import csv
import io
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from costada.experiments.comparison.comparison import (
    Comparison,
    Group,
    Section,
    Summary,
    compare_outcomes,
)
from costada.experiments.comparison.figures import (
    FEW_RUNS,
    LineStyles,
    budget_paths,
    line_styles,
    median_runs,
    model_styles,
    trajectories,
)
from costada.experiments.comparison.outcomes import LeftOut, find_outcomes
from costada.experiments.comparison.tables import (
    DEFINITIONS,
    Table,
    missing_runs,
    mix_table,
    rerun_table,
    section_tables,
    section_title,
    shared_by,
)
from costada.reports.formats import counted
from costada.runs.stored_run import run_at
from costada.store.address import shown_address, split_address
from costada.store.files import make_folder, read_bytes, replace_text
from costada.values.plugins import call_plugin, plugins_of

AVERAGE = "(mean over problems)"
COLUMNS = (
    *("compared", "problem", "model", "budget", "method", "metric"),
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
    for heading, tables in _table_groups(comparison, published):
        lines += ["", f"## {_markdown(heading)}"]
        for table in tables:
            lines += ["", *_markdown_table(table)]
    return "\n".join(lines) + "\n"


def to_latex(comparison: Comparison, published: Sequence[Table]) -> str:
    """Every table of the comparison for LaTeX with the package booktabs."""
    tables = [
        _latex_table(heading, table)
        for heading, tables in _table_groups(comparison, published)
        for table in tables
        if table.rows
    ]
    return "% \\usepackage{booktabs}\n\n" + "\n\n".join(tables) + "\n"


def to_csv(comparison: Comparison) -> str:
    """One row per problem, model, budget, method and metric.

    With several models, each is a row twice: `compared` is `method` beside other methods with its
    model, and `model` beside other models under its method. Differences to the baseline and shares
    to reach another method or model are metrics too, the other one after a colon. `low` and `high`
    bound the confidence interval of the mean. `missing` are the runs, as PROBLEM:SEED, that another
    method or model has and this one has not.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for section in comparison.all_sections:
        problem = section.problems[0] if section.is_minimized is not None else AVERAGE
        for subject, summaries in section.summaries.items():
            differences = section.differences.get(subject, {})
            missing = " ".join(
                f"{where}:{seed}"
                for (who, where), seeds in section.missing.items()
                for seed in seeds
                if who == subject
            )
            cells = {metric: _summary_cells(summary) for metric, summary in summaries.items()}
            for metric, summary in differences.items():
                cells[f"{metric}_minus:{section.baseline}"] = _summary_cells(summary)
            for other in section.runs:
                share = _number(section.shares[subject, other])
                cells[f"share_to_reach:{other}"] = [share, *[""] * 6]
            named = {"model": section.model, "method": section.method, section.subject: subject}
            for metric, row in cells.items():
                place = (problem, named["model"], repr(section.budget), named["method"])
                writer.writerow([section.subject, *place, metric, *row, missing])
    return text.getvalue()


def _summary_cells(summary: Summary) -> list[str]:
    interval = summary.interval
    low, high = (interval.low, interval.high) if interval else (None, None)
    bounds = map(_number, (low, high, summary.smallest, summary.largest))
    return [_number(summary.mean), _number(summary.std), str(summary.n), *bounds]


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)


def _table_groups(
    comparison: Comparison, published: Sequence[Table]
) -> Iterator[tuple[str, Sequence[Table]]]:
    for section in comparison.all_sections:
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


ENTRY_POINTS, PUBLISHED = "costada.comparison_tables", "published"
"""Group and name of an entry point, a function of a comparison: the paper's tables beside it."""

TEMPLATE = "template.html"
PATHS = (
    "Mean best score so far over the share of the budget. Bands: from the lowest to the highest"
    f" run, or the middle half of more than {FEW_RUNS} runs. Steep beginnings may lie below the"
    " axis."
)
TRAJECTORIES = (
    "One run each, that with the median final score (of an even number the lower of the two in the"
    " middle): {}. Objective over dollars, dollars of each iteration (dots; the line averages"
    " neighbours), dollars in all. Dotted: the budget."
)
NO_AVERAGES = "Fewer than two problems have runs of all these {}s: there are no averages."


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure in the page: its panels, and the methods or models in its legend."""

    panels: Sequence[Markup]
    caption: str
    names: Sequence[str]
    warning: str = ""  # why its lines are not comparable; empty if they are


@dataclass(frozen=True, slots=True)
class RunPage:
    """The page of a run: its seed, and its address relative to the comparison."""

    seed: int
    address: str


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the page: one problem, or all problems of one model or method and budget."""

    anchor: str
    title: str
    figures: Sequence[Drawn]
    note: str
    tables: Sequence[Table]
    # by method or model; none of a run without a page
    run_pages: Mapping[str, Sequence[RunPage]] = field(default_factory=dict)


def to_html(
    comparison: Comparison,
    published: Sequence[Table],
    left_out: Sequence[str],
    theory: Sequence[Path],
    out: Path,
) -> str:
    """The page, whose links to the pages of runs are relative to the folder `out`.

    `theory` are SVG files, shown as images, which cannot run anything.

    Raises:
        OSError: If a picture cannot be read.
    """
    methods = sorted({method for section in comparison.sections for method in section.runs})
    models = {model for each in comparison.by_model for one in each.sections for model in one.runs}
    styles = {**model_styles(models), **line_styles(methods)}
    runs = [
        run
        for section in comparison.sections
        for of_method in section.runs.values()
        for some in of_method.values()
        for run in some
    ]
    counts = {
        "finished run": len(runs),
        "problem": len({run.problem for run in runs}),
        "configuration": len({run.model for run in runs}),
        "method": len(methods),
    }
    numbers = ", ".join(counted(number, what) for what, number in counts.items())
    pictures = {
        str(path): f"data:image/svg+xml;base64,{b64encode(read_bytes(path)).decode('ascii')}"
        for path in theory
    }
    template = (files("costada.experiments.comparison") / TEMPLATE).read_text("utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(template).render(
        title="Comparison of methods at equal dollars",
        summary=f"{numbers}. Differences refer to {comparison.baseline}.",
        definitions=DEFINITIONS,
        styles=styles,
        parts=_parts(comparison, styles, out),
        reruns=rerun_table(comparison.reruns) if comparison.reruns else None,
        mixes=mix_table(comparison.mixes) if comparison.mixes else None,
        theory=pictures,
        published=published,
        left_out=left_out,
    )


def _parts(comparison: Comparison, styles: LineStyles, out: Path) -> list[Part]:
    """The parts: each group of methods over its problems and each problem, then those of models."""
    groups = (*comparison.by_method, *comparison.by_model)
    return [
        part
        for number, group in enumerate(groups)
        for part in _group_parts(group, styles, f"part-{number}", out)
    ]


def _group_parts(group: Group, styles: LineStyles, anchor: str, out: Path) -> list[Part]:
    sections, average = group.sections, group.average
    paths = _drawn(budget_paths(sections, styles, anchor), PATHS, sections, styles)
    missing = "; ".join(filter(None, map(missing_runs, sections)))
    paths = replace(paths, warning=missing and f"Not over the same seeds: {missing}.")
    if len(sections) == 1:
        return [_problem_part(anchor, sections[0], styles, [paths], out)]
    title = f"{shared_by(sections[0])}: {len(sections)} problems"
    note = "" if average else NO_AVERAGES.format(sections[0].subject)
    parts = [Part(anchor, title, [paths], note, section_tables(average) if average else ())]
    for place, section in enumerate(sections):
        parts.append(_problem_part(f"{anchor}-{place}", section, styles, [], out))
    return parts


def _problem_part(
    anchor: str, section: Section, styles: LineStyles, figures: Sequence[Drawn], out: Path
) -> Part:
    panels = trajectories(section, styles, f"{anchor}-trajectory")
    shown = ", ".join(f"{name} seed {run.seed}" for name, run in median_runs(section).items())
    drawn = _drawn(panels, TRAJECTORIES.format(shown), [section], styles)
    title = section_title(section)
    tables, pages = section_tables(section), _run_pages(section, out)
    return Part(anchor, title, [*figures, drawn], "", tables, pages)


def _run_pages(section: Section, out: Path) -> dict[str, list[RunPage]]:
    """The pages of a section's runs, where they have been written and are not links."""
    found: dict[str, list[RunPage]] = {}
    for method, of_method in section.runs.items():
        for run in (run for some in of_method.values() for run in some):
            page = run_at(run.place).report
            if run.place and page.is_file() and not page.is_symlink():
                address = quote(os.fsencode(os.path.relpath(page, out)))
                found.setdefault(method, []).append(RunPage(run.seed, address))
    return found


def _drawn(
    panels: Sequence[str], caption: str, sections: Sequence[Section], styles: LineStyles
) -> Drawn:
    names = [name for name in styles if any(name in section.runs for section in sections)]
    safe = [Markup(svg) for svg in panels]  # noqa: S704  drawn here, texts escaped by matplotlib
    return Drawn(safe, caption, names)


NAME = "comparison"
THEORY = "theory.svg"
SHOWN_REASONS = 3


@dataclass(frozen=True, slots=True)
class Report:
    """What was compared and where it was written."""

    comparison: Comparison
    left_out: tuple[LeftOut, ...]
    files: tuple[Path, ...]


def write_comparison(
    source: Path | str, out: Path, *, baseline: str | None = None, with_published: bool = False
) -> Report:
    """Compare the finished runs below a folder or in a database: Markdown, CSV, LaTeX and a page.

    Without a baseline, differences refer to CostAda, or to the first method where it is missing.

    Raises:
        ValueError: If there is no finished run, or none of the baseline, `out` is a file, or the
            paper's tables are wanted and not installed.
        OSError: If a file cannot be read or written.
    """
    paper = plugins_of(ENTRY_POINTS).get(PUBLISHED) if with_published else None
    if with_published and paper is None:
        raise ValueError("--published: the plug-in with the paper's tables is not installed")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out: got {out}, which is a file; expected a folder for the tables")
    found = find_outcomes(source)
    lines = [f"{each.place}: {each.reason}" for each in found.left_out]
    if not found.outcomes:
        reasons = [f"\n  {line}" for line in lines[:SHOWN_REASONS]]
        more = len(lines) - SHOWN_REASONS
        rest = f"\n  and {more} more" if more > 0 else ""
        place: Path | str = source
        if isinstance(source, str):
            database, sweep = split_address(source, "sweep")
            place = f"{shown_address(database)}#{sweep}" if sweep else shown_address(database)
        raise ValueError(f"{place}: holds no finished run{''.join(reasons)}{rest}")
    comparison = compare_outcomes(found.outcomes, baseline)
    published = call_plugin(paper, tuple, comparison) if paper else ()
    theory = sorted(source.rglob(THEORY)) if isinstance(source, Path) else []
    texts = {
        "md": to_markdown(comparison, published, lines),
        "csv": to_csv(comparison),
        "tex": to_latex(comparison, published),
        "html": to_html(comparison, published, lines, theory, out),
    }
    if not out.is_dir():
        make_folder(out)
    files = {kind: out / f"{NAME}.{kind}" for kind in texts}
    for kind, text in texts.items():
        replace_text(files[kind], text)
    return Report(comparison, found.left_out, tuple(files.values()))
