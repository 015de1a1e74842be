"""A comparison as one HTML page that needs nothing beside it: no network, no script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from costada.experiments.comparison import words
from costada.experiments.comparison.comparison import Comparison, Section
from costada.experiments.comparison.figures import (
    FEW_RUNS,
    Looks,
    budget_paths,
    looks_of,
    trajectories,
)
from costada.experiments.comparison.tables import Table, mix_table, rerun_table, section_tables
from costada.store.files import read_bytes

TEMPLATE = "template.html"
PATHS = (
    "Mean best score so far over the share of the budget. Bands: from the lowest to the highest"
    f" run, or the middle half of more than {FEW_RUNS} runs. Steep beginnings may lie below the"
    " axis."
)
TRAJECTORIES = (
    "The run with the median final score of each method: objective over dollars, dollars of each"
    " iteration (dots; the line averages neighbours), dollars in all. Dotted: the budget."
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure that stands in the page."""

    svg: Markup
    caption: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file, as an address that holds all of it."""

    address: str
    caption: str


@dataclass(frozen=True, slots=True)
class Part:
    """What the page says about one problem, or about several of one model and budget."""

    anchor: str
    title: str
    figures: Sequence[Drawn]
    note: str
    tables: Sequence[Table]


def to_html(
    comparison: Comparison,
    published: Table | None,
    left_out: Sequence[str],
    theory: Sequence[Path],
) -> str:
    """Return the page.

    Args:
        comparison: What is compared.
        published: The paper's numbers beside ours, if they are shown.
        left_out: Lines that say what is not in the comparison.
        theory: SVG files to show; as images, which cannot run anything.

    Raises:
        OSError: If a picture cannot be read.
    """
    methods = {method for section in comparison.sections for method in section.runs}
    looks = looks_of(sorted(methods))
    return _template().render(
        title="Comparison of methods at equal dollars",
        summary=_summary(comparison, sorted(methods)),
        definitions=words.DEFINITIONS,
        looks=looks,
        parts=_parts(comparison, looks),
        reruns=rerun_table(comparison.reruns) if comparison.reruns else None,
        mixes=mix_table(comparison.mixes) if comparison.mixes else None,
        theory=[_picture(path) for path in theory],
        published=published,
        left_out=left_out,
    )


def _summary(comparison: Comparison, methods: Sequence[str]) -> str:
    runs = [
        run
        for section in comparison.sections
        for of_method in section.runs.values()
        for some in of_method.values()
        for run in some
    ]
    counts = {
        "finished runs": len(runs),
        "problems": len({run.problem for run in runs}),
        "models and settings": len({run.model for run in runs}),
        "methods": len(methods),
    }
    numbers = ", ".join(f"{count} {what}" for what, count in counts.items())
    return f"{numbers}. Differences refer to {comparison.baseline}."


def _parts(comparison: Comparison, looks: Looks) -> list[Part]:
    """Return the parts: each model and budget over its problems, then each problem."""
    averages = {_setting(each): each for each in comparison.averages}
    parts = []
    for number, (setting, some) in enumerate(groupby(comparison.sections, key=_setting)):
        sections, anchor = list(some), f"part-{number}"
        paths = _drawn(budget_paths(sections, looks, anchor), PATHS)
        if len(sections) == 1:
            parts.append(_problem_part(anchor, sections[0], looks, [paths]))
            continue
        parts.append(_setting_part(anchor, paths, sections, averages.get(setting)))
        parts += [
            _problem_part(f"{anchor}-{place}", section, looks, [])
            for place, section in enumerate(sections)
        ]
    return parts


def _setting(section: Section) -> tuple[str, float]:
    return section.model, section.budget


def _setting_part(
    anchor: str, paths: Drawn, sections: Sequence[Section], average: Section | None
) -> Part:
    title = f"{sections[0].model}, {words.money(sections[0].budget)}: {len(sections)} problems"
    if average is None:
        note = "Fewer than two problems have runs of all these methods: there are no averages."
        return Part(anchor, title, [paths], note, ())
    return Part(anchor, title, [paths], "", section_tables(average))


def _problem_part(anchor: str, section: Section, looks: Looks, figures: Sequence[Drawn]) -> Part:
    drawn = _drawn(trajectories(section, looks, f"{anchor}-trajectory"), TRAJECTORIES)
    title = words.section_title(section)
    return Part(anchor, title, [*figures, drawn], "", section_tables(section))


def _drawn(svg: str, caption: str) -> Drawn:
    return Drawn(Markup(svg), caption)  # noqa: S704  drawn here, texts escaped by matplotlib


def _picture(path: Path) -> Picture:
    data = b64encode(read_bytes(path)).decode("ascii")
    return Picture(f"data:image/svg+xml;base64,{data}", str(path))


def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(
        (files("costada.experiments.comparison") / TEMPLATE).read_text("utf-8")
    )
