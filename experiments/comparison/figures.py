"""The figures of a comparison, drawn by matplotlib as SVG for an HTML page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import cycle, pairwise, product
from math import inf, nan
from statistics import fmean, median_low, quantiles
from typing import TYPE_CHECKING, Any

from costada.experiments.comparison.comparison import Section, ordered_methods
from costada.experiments.comparison.metrics import RunOutcome, best_score_at, curve_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How a method or model is drawn."""

    colour: str  # distinguishable without colour vision, on a light ground
    dashes: str  # line style; tells the kinds of method apart
    width: float  # points

    @property
    def svg_dashes(self) -> str:
        """The line style as `stroke-dasharray` of SVG."""
        return {SOLID: "none", DASHED: "7 3", DOTTED: "2 3", MIXED: "7 3 2 3"}[self.dashes]


SOLID, DASHED, DOTTED, MIXED = "-", "--", ":", "-."
STYLES = {
    "costada": LineStyle("#0072b2", SOLID, 2.6),
    "costada-thompson": LineStyle("#332288", SOLID, 1.8),
    "adaevolve": LineStyle("#d55e00", SOLID, 1.8),
    "no-cost-calibration": LineStyle("#e69f00", DASHED, 1.5),
    "no-remaining-budget": LineStyle("#56b4e9", DASHED, 1.5),
    "no-intervention-gating": LineStyle("#cc79a7", DASHED, 1.5),
    "uniform": LineStyle("#7f7f7f", DOTTED, 1.8),
    "best-of-n": LineStyle("#000000", DOTTED, 1.8),
}
"""Colours after Okabe and Ito, grey in place of yellow."""
OTHER_COLOURS = ("#009e73", "#882255", "#999933", "#aa4499", "#661100")
MODEL_COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
    *("#e69f00", "#56b4e9", "#7f7f7f", "#000000"),
)


def line_styles(methods: Sequence[str]) -> Mapping[str, LineStyle]:
    """The line style of each method; those of plug-ins share further colours in turn."""
    ordered = ordered_methods(set(methods))
    others = (name for name in ordered if name not in STYLES)
    further = {
        name: LineStyle(colour, MIXED, 1.5)
        for name, colour in zip(others, cycle(OTHER_COLOURS), strict=False)
    }
    return {name: STYLES.get(name) or further[name] for name in ordered}


def model_styles(models: Iterable[str]) -> Mapping[str, LineStyle]:
    """The line style of each model: the colours in turn, then again with other dashes."""
    looks = product((SOLID, DASHED, MIXED, DOTTED), MODEL_COLOURS)
    return {
        name: LineStyle(colour, dashes, 1.8)
        for name, (dashes, colour) in zip(sorted(models), cycle(looks), strict=False)
    }


LineStyles = Mapping[str, LineStyle]

PANEL_INCHES = (4.1, 3.3)
GRID = 201
SCORES_FROM, OBJECTIVES_FROM = 0.1, 0.25
"""Shares of the budget from which all values are shown; earlier ones may be cut off."""
FEW_RUNS = 10
"""Up to this number of runs a band spans all of them, above it the middle half."""
SMOOTHED = 5
"""Iterations over which the line of step costs is averaged; odd."""
STEP_COST = "Step cost ($)"
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
SETTINGS: Any = {
    "svg.fonttype": "none",
    # Otherwise ids are random, and the same runs would give another file each time.
    "svg.hashsalt": "costada",
    # A dollar sign would begin a formula.
    "text.parse_math": False,
    "font.size": 9.0,
    "font.family": "sans-serif",
}


def budget_paths(sections: Sequence[Section], styles: LineStyles, name: str) -> list[str]:
    """The budget-path panels: mean best score so far over the share of the budget, by section.

    A band around the mean reaches from the lowest to the highest run, or covers the middle half of
    many runs. `name` is the prefix of the ids in the pictures, unique in the page.
    """
    return [
        _panel_svg(partial(_paths, section=section, styles=styles), f"{name}-{place}")
        for place, section in enumerate(sections)
    ]


def trajectories(section: Section, styles: LineStyles, name: str) -> list[str]:
    """The three panels of one problem: objective over dollars, step cost, total cost.

    They show `median_runs`; `name` as in `budget_paths`.
    """
    shown = median_runs(section)
    lines = [(run, _style(styles[method])) for method, run in shown.items()]
    limit: dict[str, Any] = {"color": "#555555", "linestyle": ":", "linewidth": 1.0}

    def objective(axes: Axes) -> None:
        for run, style in lines:
            found = [run.seed_objective, *(point.best_objective for point in run.points)]
            heights = [nan if value is None else value for value in found]
            axes.step(_dollars(run), heights, where="post", **style)
        way = "lower" if section.is_minimized else "higher"
        _frame(axes, "Objective over dollars", "Spent ($)", f"Objective ({way} is better)")
        axes.axvline(section.budget, **limit)
        _limit_objective(axes, section, list(shown.values()))
        axes.set_xlim(left=0.0)

    def step_cost(axes: Axes) -> None:
        for run, style in lines:
            _step_costs(axes, run, style)
        _frame(axes, f"Cost of each iteration, mean of {SMOOTHED}", "Iteration", STEP_COST)
        axes.set(xlim=(0.0, None), ylim=(0.0, None))

    def total(axes: Axes) -> None:
        for run, style in lines:
            axes.plot([0, *(point.iteration for point in run.points)], _dollars(run), **style)
        _frame(axes, "Cumulative cost", "Iteration", "Spent ($)")
        axes.axhline(section.budget, **limit)
        axes.set(xlim=(0.0, None), ylim=(0.0, None))

    panels = (objective, step_cost, total)
    return [_panel_svg(draw, f"{name}-{place}") for place, draw in enumerate(panels)]


def median_runs(section: Section) -> dict[str, RunOutcome]:
    """Of each method or model on one problem, the run with the median final score.

    Of an even number it is the lower of the two in the middle, of equal ones the first.
    """
    (problem,) = section.problems
    shown = {}
    for name, runs in section.runs.items():
        middle = median_low(best_score_at(run, 1.0) for run in runs[problem])
        shown[name] = next(run for run in runs[problem] if best_score_at(run, 1.0) == middle)
    return shown


def _dollars(run: RunOutcome) -> list[float]:
    return [0.0, *(point.spent for point in run.points)]


def _step_costs(axes: Axes, run: RunOutcome, style: dict[str, Any]) -> None:
    costs = [after - before for before, after in pairwise(_dollars(run))]
    iterations = [point.iteration for point in run.points]
    axes.plot(iterations, costs, ".", color=style["color"], markersize=3, alpha=0.45)
    reach = SMOOTHED // 2
    means = [fmean(costs[max(0, place - reach) : place + reach + 1]) for place in range(len(costs))]
    axes.plot(iterations, means, **{**style, "linewidth": 1.4})


def _paths(axes: Axes, section: Section, styles: LineStyles) -> None:
    shares = [number / (GRID - 1) for number in range(GRID)]
    first = round(SCORES_FROM * (GRID - 1))
    low, high = inf, -inf
    for method, runs in section.runs.items():
        curves = [curve_of(run) for run in runs[section.problems[0]]]
        bands = [_band([curve.at(share) for curve in curves]) for share in shares]
        # A vertex only where the lowest, the mean or the highest changes.
        kept = [n for n in range(GRID) if n in (0, GRID - 1) or bands[n] != bands[n - 1]]
        across = [shares[n] for n in kept]
        lows, means, highs = zip(*(bands[n] for n in kept), strict=True)
        style = _style(styles[method])
        axes.step(across, means, where="post", **style)
        look: dict[str, Any] = {"color": style["color"], "alpha": 0.08, "linewidth": 0}
        axes.fill_between(across, lows, highs, step="post", **look)
        low, high = min(low, bands[first][1]), max(high, *bands[-1][1:])
    margin = 0.04 * (high - low) or 0.05
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(0.0, 1.0)
    _frame(axes, section.problems[0], "Share of the budget", "Best score so far")


def _band(heights: Sequence[float]) -> tuple[float, float, float]:
    """The lowest, the mean and the highest, or the middle half of many."""
    if len(heights) <= FEW_RUNS:
        return min(heights), fmean(heights), max(heights)
    low, _, high = quantiles(heights, n=4)
    return low, fmean(heights), high


def _limit_objective(axes: Axes, section: Section, runs: Sequence[RunOutcome]) -> None:
    """Limit the axis to the later objectives and the last of each run; early ones may lie outside.

    For a run that ended early the share is that of the dollars it spent.
    """
    shown = [
        point.best_objective
        for run in runs
        for point in run.points
        if point.spent >= OBJECTIVES_FROM * min(section.budget, run.points[-1].spent)
        and point.best_objective is not None
    ]
    if shown:
        margin = 0.05 * (max(shown) - min(shown)) or 0.05 * abs(shown[0]) or 1.0
        axes.set_ylim(min(shown) - margin, max(shown) + margin)


def _style(style: LineStyle) -> dict[str, Any]:
    return {"color": style.colour, "linestyle": style.dashes, "linewidth": style.width}


def _frame(axes: Axes, title: str, across: str, up: str) -> None:
    axes.set_title(title, fontsize=10, fontweight="bold", y=1.0)
    axes.set(xlabel=across, ylabel=up)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def _panel_svg(draw_panel: Callable[[Axes], None], name: str) -> str:
    """One panel, on the ground of the page."""

    def draw(figure: Figure) -> None:
        figure.set_size_inches(PANEL_INCHES)
        axes = figure.subplots()
        draw_panel(axes)
        figure.set_facecolor("none")
        axes.set_facecolor("none")

    return svg_of(draw, name)


def svg_of(draw: Callable[[Figure], None], name: str) -> str:
    """A figure as one SVG element; the prefix makes its ids unique in the page."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    text = StringIO()
    with rc_context(SETTINGS):
        figure = Figure(layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(text, format="svg", metadata=NO_METADATA)
    svg = text.getvalue()
    return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg[svg.index("<svg") :])
