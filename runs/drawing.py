"""A picture of the graph that needs no network: one column of nodes, labelled side arcs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from langchain_core.runnables.graph import Edge, Graph
    from matplotlib.axes import Axes

PictureFormat = Literal["png", "svg"]
ENDS = {"__start__": "start", "__end__": "end"}
HALF_WIDTH, END_HALF_WIDTH, HALF_HEIGHT, STEP = 1.25, 0.5, 0.27, 1.0
PORT = 0.13
FIRST_REACH, LANE, LABEL_SPACE = 0.75, 0.85, 1.0
BLUE, ORANGE, PAPER, INK = "#2166ac", "#c2620a", "#eef4fa", "#1a1a1a"
DOTS_PER_INCH = 160


@dataclass(frozen=True, slots=True)
class Arc:
    """An edge that leaves the column: from one row to another, on a side, so far out.

    `side` is 1 for the right (downwards) and -1 for the left (upwards); rows count from the top.
    `lane` counts the arcs of that side that it goes around.
    """

    start: int
    end: int
    label: str
    is_conditional: bool
    side: int
    lane: int

    @property
    def reach(self) -> float:
        """How far the arc leaves the column."""
        return FIRST_REACH + LANE * self.lane


def draw_graph(graph: Graph, format: PictureFormat) -> bytes:
    """Return the picture of a compiled graph, given its `get_graph()`.

    Nodes stand in the order in which they were added. An edge to the next node goes straight down;
    edges further down bend to the right, edges back up to the left; a condition's answer is
    written beside its edge.
    """
    from matplotlib.figure import Figure

    names = _column(graph)
    straight, arcs = _placed(graph.edges, names)
    reach = {side: max((a.reach for a in arcs if a.side == side), default=0.0) for side in (-1, 1)}
    left, right = -HALF_WIDTH - reach[-1] - LABEL_SPACE, HALF_WIDTH + reach[1] + LABEL_SPACE
    bottom = -STEP * (len(names) - 1) - 0.5
    figure = Figure(figsize=(0.95 * (right - left), 0.78 * (0.5 - bottom)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(left, right), ylim=(bottom, 0.5))
    axes.axis("off")
    for edge in straight:
        _draw_straight(axes, edge, names)
    for arc in arcs:
        _draw_arc(axes, arc, names)
    for row, name in enumerate(names):
        _draw_node(axes, row, name)
    buffer = BytesIO()
    figure.savefig(buffer, format=format, dpi=DOTS_PER_INCH, facecolor="white")
    return buffer.getvalue()


def _column(graph: Graph) -> list[str]:
    names = [name for name in graph.nodes if name != "__end__"]
    return [*names, "__end__"] if "__end__" in graph.nodes else names


def _placed(edges: Sequence[Edge], names: Sequence[str]) -> tuple[list[Edge], list[Arc]]:
    """Split the edges into straight ones and arcs; nested arcs of a side get wider outwards."""
    row = {name: index for index, name in enumerate(names)}
    straight = [edge for edge in edges if row[edge.target] == row[edge.source] + 1]
    others = [edge for edge in edges if edge not in straight]
    others.sort(key=lambda edge: abs(row[edge.target] - row[edge.source]))
    lanes: dict[int, list[range]] = {1: [], -1: []}
    arcs = []
    for edge in others:
        start, end = row[edge.source], row[edge.target]
        side = 1 if end > start else -1
        span = range(min(start, end), max(start, end) + 1)
        lane = sum(bool(set(span) & set(taken)) for taken in lanes[side])
        lanes[side].append(span)
        arcs.append(Arc(start, end, str(edge.data or ""), edge.conditional, side, lane))
    return straight, arcs


def _draw_node(axes: Axes, row: int, name: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    y = -STEP * row
    is_end = name in ENDS
    half = _half_width(name)
    style = f"round,pad=0,rounding_size={HALF_HEIGHT if is_end else 0.1}"
    box = FancyBboxPatch(
        (-half, y - HALF_HEIGHT),
        2 * half,
        2 * HALF_HEIGHT,
        boxstyle=style,
        facecolor="white" if is_end else PAPER,
        edgecolor=INK if is_end else BLUE,
        linewidth=1.4,
        zorder=3,
    )
    axes.add_patch(box)
    font = "sans-serif" if is_end else "monospace"
    axes.text(
        0, y, ENDS.get(name, name), ha="center", va="center", family=font, fontsize=11, zorder=4
    )


def _draw_straight(axes: Axes, edge: Edge, names: Sequence[str]) -> None:
    top = -STEP * names.index(edge.source) - HALF_HEIGHT
    bottom = -STEP * names.index(edge.target) + HALF_HEIGHT
    _arrow(axes, [(0, top), (0, bottom)], edge.conditional)
    if edge.data:
        axes.text(0.1, (top + bottom) / 2, str(edge.data), va="center", fontsize=9, color=ORANGE)


def _half_width(name: str) -> float:
    return END_HALF_WIDTH if name in ENDS else HALF_WIDTH


def _draw_arc(axes: Axes, arc: Arc, names: Sequence[str]) -> None:
    outer = arc.side * (HALF_WIDTH + arc.reach)
    departure = -STEP * arc.start + PORT * (-1 if arc.side > 0 or arc.lane else 1)
    leave = (arc.side * _half_width(names[arc.start]), departure)
    arrival = -STEP * arc.end + PORT * (1 if arc.side > 0 else arc.lane - 1)
    arrive = (arc.side * _half_width(names[arc.end]), arrival)
    corners = [(outer, leave[1]), (outer, arrive[1])]
    _arrow(axes, [leave, *corners, arrive], arc.is_conditional)
    if arc.label:
        axes.text(
            outer + arc.side * 0.08,
            (leave[1] + arrive[1]) / 2,
            arc.label.replace(" ", "\n"),
            ha="left" if arc.side > 0 else "right",
            va="center",
            fontsize=9,
            color=ORANGE,
        )


def _arrow(axes: Axes, points: Sequence[tuple[float, float]], is_conditional: bool) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    axes.add_patch(
        FancyArrowPatch(
            path=Path(points),
            arrowstyle="-|>",
            mutation_scale=12,
            color=ORANGE if is_conditional else INK,
            linestyle="--" if is_conditional else "-",
            linewidth=1.3,
            joinstyle="round",
            zorder=2,
        )
    )
