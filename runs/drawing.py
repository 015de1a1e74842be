"""A picture of the graph that needs no network: one column of nodes, labelled side arcs."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Literal

from costada.runs.drawing_legend import draw_bar, draw_legend
from costada.runs.graph_layout import LEFT, RIGHT, Arc, Layout, layout
from costada.runs.node_shades import INK, Shade, shade_of
from costada.runs.node_spending import RunSpending

if TYPE_CHECKING:
    from langchain_core.runnables.graph import Edge, Graph
    from matplotlib.axes import Axes

PictureFormat = Literal["png", "svg"]
ENDS = {"__start__": "start", "__end__": "end"}
HALF_WIDTH, END_HALF_WIDTH, END_HALF_HEIGHT = 1.35, 0.5, 0.25
GAP = 0.48
BAR_INSET = 0.12
PORT = 0.13
LABEL_SPACE = {LEFT: 0.62, RIGHT: 1.15}
LABEL_PLACE = {LEFT: 0.5, RIGHT: 0.7}
"""Where along its arc a label stands, seen from the start: clear of the arcs that cross it."""
LEGEND_SPACE = 1.1
BLUE, ORANGE, CALM = "#2166ac", "#b35506", "#eef4fa"
INCHES_ACROSS, INCHES_DOWN = 0.95, 0.8
DOTS_PER_INCH = 160
NAME_SIZE, CAPTION_SIZE, LABEL_SIZE = 12.5, 11.5, 11


def draw_graph(graph: Graph, format: PictureFormat, spending: RunSpending | None = None) -> bytes:
    """Return the picture of a compiled graph, given its `get_graph()`.

    Nodes stand in the order in which they were added. An edge to the next node goes straight down;
    edges further down bend to the right, edges back up to the left; a condition's answer is
    written beside its edge.

    Args:
        graph: What to draw.
        format: Of the picture.
        spending: What a run has spent: dollars fill the nodes with blue, seconds draw a bar at
            their feet, both stand below the names in numbers; a legend explains it.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    plan = layout(graph)
    rows = _Rows(0.39 if spending else 0.27)
    left, right = (HALF_WIDTH + plan.reach(side) + LABEL_SPACE[side] for side in (LEFT, RIGHT))
    bottom = rows.y(len(plan.names) - 1) - 0.4 - (LEGEND_SPACE if spending else 0.0)
    figure = Figure(figsize=(INCHES_ACROSS * (left + right), INCHES_DOWN * (0.4 - bottom)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-left, right), ylim=(bottom, 0.4))
    axes.axis("off")
    _draw(axes, plan, rows, spending)
    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "costada"}):
        facts = {"Date": None} if format == "svg" else None
        figure.savefig(buffer, format=format, dpi=DOTS_PER_INCH, facecolor="white", metadata=facts)
    return buffer.getvalue()


class _Rows:
    """How high the nodes are, and where."""

    def __init__(self, half_height: float) -> None:
        self.half_height = half_height

    def y(self, row: int) -> float:
        return -(2 * self.half_height + GAP) * row

    def half(self, name: str) -> float:
        return END_HALF_HEIGHT if name in ENDS else self.half_height


def _draw(axes: Axes, plan: Layout, rows: _Rows, spending: RunSpending | None) -> None:
    for edge in plan.straight:
        _draw_straight(axes, edge, plan.names, rows)
    for arc in plan.arcs:
        _draw_arc(axes, arc, plan.names, rows)
    for row, name in enumerate(plan.names):
        if name in ENDS:
            _draw_end(axes, rows.y(row), name)
        else:
            shade = shade_of(name, spending) if spending else Shade(CALM, INK, "", 0.0)
            _draw_node(axes, rows.y(row), name, shade, rows.half_height)
    if spending:
        draw_legend(axes, spending)


def _draw_end(axes: Axes, y: float, name: str) -> None:
    half = END_HALF_WIDTH, END_HALF_HEIGHT
    _draw_box(axes, y, half, fill="white", edge=INK, rounding=END_HALF_HEIGHT)
    _write(axes, y, ENDS[name], INK, NAME_SIZE)


def _draw_node(axes: Axes, y: float, name: str, shade: Shade, half_height: float) -> None:
    _draw_box(axes, y, (HALF_WIDTH, half_height), fill=shade.fill, edge=BLUE, rounding=0.1)
    if not shade.caption:
        _write(axes, y, name, shade.ink, NAME_SIZE, "monospace")
        return
    _write(axes, y + 0.2, name, shade.ink, NAME_SIZE, "monospace")
    # A dollar sign would begin a formula.
    _write(axes, y - 0.09, shade.caption.replace("$", r"\$"), shade.ink, CAPTION_SIZE)
    width = HALF_WIDTH - BAR_INSET
    draw_bar(axes, (-width, y - half_height + 0.085), 2 * width, shade.bar)


def _write(
    axes: Axes, y: float, text: str, colour: str, size: float, family: str = "sans-serif"
) -> None:
    axes.text(
        0,
        y,
        text,
        color=colour,
        fontsize=size,
        family=family,
        ha="center",
        va="center",
        zorder=4,
    )


def _draw_box(
    axes: Axes, y: float, half: tuple[float, float], *, fill: str, edge: str, rounding: float
) -> None:
    from matplotlib.patches import FancyBboxPatch

    width, height = half
    axes.add_patch(
        FancyBboxPatch(
            (-width, y - height),
            2 * width,
            2 * height,
            boxstyle=f"round,pad=0,rounding_size={rounding}",
            facecolor=fill,
            edgecolor=edge,
            linewidth=1.4,
            zorder=3,
        )
    )


def _draw_straight(axes: Axes, edge: Edge, names: Sequence[str], rows: _Rows) -> None:
    top = rows.y(names.index(edge.source)) - rows.half(edge.source)
    bottom = rows.y(names.index(edge.target)) + rows.half(edge.target)
    _draw_arrow(axes, [(0, top), (0, bottom)], edge.conditional)
    if edge.data:
        _label(axes, 0.1, (top + bottom) / 2 + 0.03, str(edge.data), "left")


def _half_width(name: str) -> float:
    return END_HALF_WIDTH if name in ENDS else HALF_WIDTH


def _draw_arc(axes: Axes, arc: Arc, names: Sequence[str], rows: _Rows) -> None:
    outer = arc.side * (HALF_WIDTH + arc.reach)
    departure = rows.y(arc.start) + PORT * (-1 if arc.side == RIGHT or arc.lane else 1)
    leave = (arc.side * _half_width(names[arc.start]), departure)
    arrival = rows.y(arc.end) + PORT * (1 if arc.side == RIGHT else arc.lane - 1)
    arrive = (arc.side * _half_width(names[arc.end]), arrival)
    _draw_arrow(axes, [leave, (outer, leave[1]), (outer, arrive[1]), arrive], arc.is_conditional)
    if arc.label:
        middle = leave[1] + LABEL_PLACE[arc.side] * (arrive[1] - leave[1])
        text = arc.label.replace(" ", "\n")
        _label(
            axes, outer + arc.side * 0.07, middle, text, "left" if arc.side == RIGHT else "right"
        )


def _label(axes: Axes, x: float, y: float, text: str, side: Literal["left", "right"]) -> None:
    axes.text(x, y, text, ha=side, va="center", fontsize=LABEL_SIZE, color=ORANGE, linespacing=1.05)


def _draw_arrow(axes: Axes, points: Sequence[tuple[float, float]], is_conditional: bool) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    axes.add_patch(
        FancyArrowPatch(
            path=Path(points),
            arrowstyle="-|>",
            mutation_scale=13,
            color=ORANGE if is_conditional else INK,
            linestyle="--" if is_conditional else "-",
            linewidth=1.4,
            joinstyle="round",
            zorder=2,
        )
    )
