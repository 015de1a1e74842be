"""A comparison of the runs below a folder, written as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costada.experiments.comparison.comparison import Comparison, compare_outcomes
from costada.experiments.comparison.outcomes import LeftOut, find_outcomes
from costada.experiments.comparison.page import to_html
from costada.experiments.comparison.published import published_table
from costada.experiments.comparison.text import to_csv, to_latex, to_markdown
from costada.store.files import make_folder, replace_text

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
    directory: Path, out: Path, *, baseline: str | None = None, with_published: bool = False
) -> Report:
    """Compare the finished runs below a folder and write it as Markdown, CSV, LaTeX and a page.

    Args:
        directory: Where the runs are, at any depth.
        out: Where the files go; created if need be.
        baseline: Whom differences refer to; None: CostAda, or the first method without it.
        with_published: Whether the paper's numbers are shown beside ours.

    Raises:
        ValueError: If there is no finished run, or none of the baseline.
        OSError: If a file cannot be read or written.
    """
    found = find_outcomes(directory)
    if not found.outcomes:
        raise ValueError(_nothing_to_compare(directory, found.left_out))
    comparison = compare_outcomes(found.outcomes, baseline)
    published = published_table(comparison) if with_published else None
    lines = [f"{each.place}: {each.reason}" for each in found.left_out]
    texts = {
        "md": to_markdown(comparison, published, lines),
        "csv": to_csv(comparison),
        "tex": to_latex(comparison, published),
        "html": to_html(comparison, published, lines, sorted(directory.rglob(THEORY))),
    }
    if not out.is_dir():
        make_folder(out)
    files = {kind: out / f"{NAME}.{kind}" for kind in texts}
    for kind, text in texts.items():
        replace_text(files[kind], text)
    return Report(comparison, found.left_out, tuple(files.values()))


def _nothing_to_compare(directory: Path, left_out: tuple[LeftOut, ...]) -> str:
    reasons = [f"\n  {each.place}: {each.reason}" for each in left_out[:SHOWN_REASONS]]
    more = len(left_out) - SHOWN_REASONS
    rest = f"\n  and {more} more" if more > 0 else ""
    return f"{directory}: holds no finished run{''.join(reasons)}{rest}"
