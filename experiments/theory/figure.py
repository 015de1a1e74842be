"""The picture of the proposition: shares of OPT over the budget and over the cost ratio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from costada.experiments.theory.proposition import RANKING, SMALL_BONUS, Finding
from costada.store.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PICTURE_INCHES = (12.0, 5.2)
DOTS_PER_INCH = 130
BOUND_COLOUR = "#b2182b"
STYLES = {
    RANKING: ("#1b7837", "-", "o", "ranking by gain per cost"),
    SMALL_BONUS: ("#2166ac", "--", "D", "CostAda, bonus of the size of a gain"),
    "costada": ("#2166ac", "-", "s", "CostAda"),
    "adaevolve": ("#e08214", "-", "^", "AdaEvolve"),
    "evox": ("#8073ac", "-", "v", "EvoX (urn)"),
    "uniform": ("#4d4d4d", ":", "x", "uniform"),
    "best-of-n": ("#c51b7d", ":", "+", "best-of-n"),
}
"""Colour, line, mark and name of each policy in the picture."""


def write_theory_figure(findings: Sequence[Finding], paths: Sequence[Path]) -> None:
    """Write the picture in the format of each file's ending, for the middle K and kappa.

    matplotlib is loaded here and draws without a display.

    Raises:
        OSError: If a file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    middle = findings[len(findings) // 2].instance
    same_k = [each for each in findings if each.instance.num_frontiers == middle.num_frontiers]
    num_steps = max(each.instance.num_steps for each in findings)
    over_budget = [each for each in same_k if each.instance.cost_ratio == middle.cost_ratio]
    over_ratio = [each for each in same_k if each.instance.num_steps == num_steps]
    figure = Figure(figsize=PICTURE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    title = f"K = {middle.num_frontiers}, kappa = {middle.cost_ratio}"
    _draw(
        left, over_budget, lambda each: each.instance.num_steps, title, "Budget in cheap steps, B/c"
    )
    left.set_ylabel("Share of OPT, mean over places of the cheap frontier")
    title = f"K = {middle.num_frontiers}, B/c = {num_steps}"
    _draw(right, over_ratio, lambda each: each.instance.cost_ratio, title, "Cost ratio kappa")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    with rc_context({"svg.hashsalt": "theory"}):
        for path in paths:
            with replacing(path) as file:
                kind = path.suffix.removeprefix(".")
                figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=_metadata(path))


def _draw(
    axes: Axes,
    findings: Sequence[Finding],
    place: Callable[[Finding], int],
    title: str,
    label: str,
) -> None:
    places = [place(finding) for finding in findings]
    for name, (colour, line, mark, legend) in STYLES.items():
        shares = [finding.shares[name].mean for finding in findings]
        axes.plot(places, shares, color=colour, linestyle=line, marker=mark, label=legend)
    bounds = [finding.instance.bound for finding in findings]
    axes.plot(places, bounds, color=BOUND_COLOUR, linewidth=2.4, label="1/K + 1/kappa")
    axes.set_xscale("log")
    axes.set_xticks(places, [str(each) for each in places])
    axes.minorticks_off()
    axes.set_ylim(0.0, 1.03)
    axes.set_title(title, y=1.0)
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _metadata(path: Path) -> dict[str, None]:
    """Return what keeps the moment of drawing out of a file."""
    return {"Date": None} if path.suffix == ".svg" else {}
