"""The picture of a run: the paper's three panels over one ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from costada.nodes.trace_row import GUIDE_CHARGED
from costada.reports.trace import stored_rows
from costada.store.address import is_there
from costada.store.candidates import SEED_ID
from costada.store.files import replacing
from costada.store.run_store import RunStore
from costada.values.evaluation import Direction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from costada.nodes.trace_row import TraceRow
    from costada.reports.run_view import RunView


BLUE, ORANGE, GREY, RED = "#2166ac", "#e08214", "#8c8c8c", "#b2182b"
MODEL_COLOURS = ("#0072b2", "#009e73", "#b5579b", "#7a6fd0", "#8a7a00", "#5c7a8a")
"""Of the models of a menu in its order, as on the page; further ones begin with the first."""
PICTURE_INCHES = (15.0, 4.6)
DOTS_PER_INCH = 130
MAX_LABEL = 14
"""Characters of a model's name in a legend; of a longer one the end is shown."""

MARGINS = {"left": 0.055, "right": 0.985, "bottom": 0.115, "top": 0.78, "wspace": 0.23}
"""Shares of the picture; a layout engine would double the drawing time."""
TITLE_HEIGHT = 1.09
"""In heights of a panel; below it is room for the row of the legend."""

NEAR_BUDGET = 0.5
"""From this share of the budget on, the first panel shows where the budget ends."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """What the picture of a run shows."""

    title: str  # one line above the panels
    rows: Sequence[TraceRow]  # oldest first
    budget: float  # B, in dollars
    # objective of the starting program, at cost 0; `None` if it failed
    seed_objective: float | None
    # the objective that counts as score 1, drawn as a line; `None` if there is none
    reference: float | None
    is_minimized: bool  # whether a lower objective is better; said on the axis


def report_of(run: RunView) -> ReportData:
    """What the picture of a run shows, as its folder has it; the run may be running.

    Raises:
        ValueError: If the folder holds no run that has begun, or its file is damaged.
        OSError: If its file cannot be read.
    """
    settings = run.load()
    if not is_there(run.database):
        raise ValueError(f"{run.place}: the run has not started, expected one that has")
    with RunStore.at(run.database, is_read_only=True) as store:
        run_ids = store.run_ids()
        setup = store.setup(run_ids[-1]) if run_ids else None
        if setup is None:
            raise ValueError(f"{run.place}: the run has not started, expected one that has")
        stored = stored_rows(store, run_ids[-1])
        rows = cast("Sequence[TraceRow]", store.settled(run_ids[-1], stored))
        seed = store.candidates.find(run_ids[-1], SEED_ID)
    problem = setup.problem
    title = f"{problem['name']}, {settings.method}"
    if rows and (objective := rows[-1]["best_objective"]) is not None:
        title = f"{title}: {objective:.6g} for ${rows[-1]['spent']:.4f}"
    reference = problem.get("reference")
    return ReportData(
        title=title,
        rows=rows,
        budget=settings.budget,
        seed_objective=seed.objective if seed else None,
        reference=None if reference is None else float(reference),
        is_minimized=problem["direction"] == Direction.MINIMIZE,
    )


def write_report(data: ReportData, path: Path) -> None:
    """Write the picture: objective over money, money per iteration, money over iterations.

    Raises:
        OSError: If the file cannot be written.
    """
    figure = draw_report(data)
    with replacing(path) as file:
        figure.savefig(file, dpi=DOTS_PER_INCH, format="png", pil_kwargs={"compress_level": 1})


def draw_report(data: ReportData) -> Figure:
    """The picture; matplotlib is loaded here and draws without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=PICTURE_INCHES)
    FigureCanvasAgg(figure)
    figure.subplots_adjust(**MARGINS)
    figure.suptitle(data.title, fontsize=13, fontweight="bold")
    panels = figure.subplots(1, 3)
    for draw, axes in zip((_objective, _step_cost, _cumulative_cost), panels, strict=True):
        draw(axes, data)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    return figure


def _objective(axes: Axes, data: ReportData) -> None:
    tried = [(row["spent"], row["objective"]) for row in data.rows if row["objective"] is not None]
    look: dict[str, Any] = {"s": 14, "color": GREY, "alpha": 0.55, "linewidths": 0, "zorder": 2}
    axes.scatter(*_columns(tried), label="candidate", **look)
    costs = [0.0, *(row["spent"] for row in data.rows)]
    known = (data.seed_objective, *(row["best_objective"] for row in data.rows))
    bests = [nan if best is None else best for best in known]
    axes.step(costs, bests, where="post", color=BLUE, linewidth=2.2, label="best so far", zorder=3)
    if data.reference is not None:
        axes.axhline(data.reference, color=RED, linestyle=":", linewidth=1.4, label="score 1")
    if costs[-1] > NEAR_BUDGET * data.budget:
        axes.axvline(data.budget, color=RED, linestyle="--", linewidth=1.2, label="budget")
    axes.set_xlim(left=0.0)
    # Limit the axis to the incumbents; distant candidates may lie outside.
    reference = nan if data.reference is None else data.reference
    shown = [each for each in (*bests, reference) if isfinite(each)] or [0.0]
    low, high = min(shown), max(shown)
    margin = 0.12 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - margin, high + margin)
    objective = f"Objective ({'lower' if data.is_minimized else 'higher'} is better)"
    axes.set(xlabel="Spent ($)", ylabel=objective)
    _head(axes, "Objective over money")


def _step_cost(axes: Axes, data: ReportData) -> None:
    menu = [model["name"] for model in data.rows[-1].get("router", ())] if data.rows else []
    if menu:
        colours = [MODEL_COLOURS[place % len(MODEL_COLOURS)] for place in range(len(menu))]
        kinds, kind_of = [*zip(menu, colours, strict=True), ("no attempt", GREY)], _model
    else:
        kinds, kind_of = [("attempts", BLUE), ("with a guide", ORANGE)], _guided
    for label, colour in kinds:
        rows = [row for row in data.rows if kind_of(row) == label]
        if bars := [(row["iteration"], row["step_cost"]) for row in rows]:
            shown = label if len(label) <= MAX_LABEL else f"…{label[1 - MAX_LABEL :]}"
            axes.bar(*_columns(bars), width=0.8, color=colour, label=shown)
    _count_iterations(axes)
    axes.set_ylabel("Step cost ($)")
    _head(axes, "Cost of each iteration")


def _cumulative_cost(axes: Axes, data: ReportData) -> None:
    iterations = [0, *(row["iteration"] for row in data.rows)]
    costs = [0.0, *(row["spent"] for row in data.rows)]
    axes.plot(iterations, costs, color=BLUE, linewidth=2.2, label="spent")
    axes.fill_between(iterations, costs, color=BLUE, alpha=0.12, linewidth=0)
    axes.axhline(data.budget, color=RED, linestyle="--", linewidth=1.2, label="budget")
    if guided := [(row["iteration"], row["spent"]) for row in data.rows if _is_guided(row)]:
        look: dict[str, Any] = {"s": 28, "color": ORANGE, "zorder": 3, "clip_on": False}
        axes.scatter(*_columns(guided), label="guide charged", **look)
    _count_iterations(axes)
    axes.set_xlim(0, max(1, iterations[-1]))
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("Spent ($)")
    _head(axes, "Money spent")


def _head(axes: Axes, title: str) -> None:
    """Write the title and, between it and the panel, what the marks in the panel mean."""
    axes.set_title(title, y=TITLE_HEIGHT)
    marks, labels = axes.get_legend_handles_labels()
    if marks:
        place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
        space: dict[str, Any] = {"borderaxespad": 0.2, "columnspacing": 1.2, "handletextpad": 0.5}
        axes.legend(marks, labels, ncols=len(marks), fontsize=8, frameon=False, **place, **space)


def _count_iterations(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("Iteration")


def _model(row: TraceRow) -> str:
    models = row.get("models")
    return models[-1] if models else "no attempt"


def _guided(row: TraceRow) -> str:
    return "with a guide" if _is_guided(row) else "attempts"


def _is_guided(row: TraceRow) -> bool:
    return GUIDE_CHARGED in row["events"]


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
