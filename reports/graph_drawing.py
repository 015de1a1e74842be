"""A picture of the graph that needs no network: one column of nodes, labelled side arcs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from math import inf
from typing import TYPE_CHECKING, Literal

from costada.reports.node_spending import RunSpending

if TYPE_CHECKING:
    from langchain_core.runnables.graph import Edge, Graph
    from matplotlib.axes import Axes


FIRST_REACH, LANE = 0.45, 0.72
RIGHT, LEFT = 1, -1


@dataclass(frozen=True, slots=True)
class Arc:
    """An edge that leaves the column: from one row to another, on a side, so far out.

    `side` is 1 for the right (downwards) and -1 for the left (upwards); rows count from the top.
    `lane` counts the arcs of that side, one around the other, that it goes around.
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


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes from top to bottom, the edges that go straight down, and the others."""

    names: Sequence[str]
    straight: Sequence[Edge]
    arcs: Sequence[Arc]

    def reach(self, side: int) -> float:
        """Return how far the arcs of a side leave the column, 0 if there are none."""
        return max((arc.reach for arc in self.arcs if arc.side == side), default=0.0)


def layout(graph: Graph) -> Layout:
    """Return where everything stands: nodes in the order in which they were added.

    An edge to the next node goes straight down; edges further down bend to the right, edges back
    up to the left.
    """
    names = [name for name in graph.nodes if name != "__end__"]
    if "__end__" in graph.nodes:
        names.append("__end__")
    row = {name: index for index, name in enumerate(names)}
    straight = [edge for edge in graph.edges if row[edge.target] == row[edge.source] + 1]
    others = [edge for edge in graph.edges if edge not in straight]
    return Layout(names, straight, _arcs(others, row))


def _arcs(edges: Sequence[Edge], row: dict[str, int]) -> list[Arc]:
    """Return the arcs, shortest first; each goes around those of its side that it overlaps."""
    arcs: list[Arc] = []
    for edge in sorted(edges, key=lambda edge: abs(row[edge.target] - row[edge.source])):
        start, end = row[edge.source], row[edge.target]
        side = RIGHT if end > start else LEFT
        inner = [arc.lane for arc in arcs if arc.side == side and _overlap(arc, start, end)]
        lane = 1 + max(inner, default=-1)
        arcs.append(Arc(start, end, str(edge.data or ""), edge.conditional, side, lane))
    return arcs


def _overlap(arc: Arc, start: int, end: int) -> bool:
    return min(start, end) <= max(arc.start, arc.end) and min(arc.start, arc.end) <= max(start, end)


PALE, FULL = (0xFF, 0xFF, 0xFF), (0x21, 0x66, 0xAC)
DARK_FROM = 0.88
"""Share of the dearest node's dollars from which a text must be white to be read."""

UNITS = ((100, 1, "s"), (6000, 60, "min"), (inf, 3600, "h"))
"""Below how many seconds a time is told in units of so many seconds."""

INK, PAPER = "#000000", "#ffffff"


@dataclass(frozen=True, slots=True)
class Shade:
    """How a node looks: its colour, the colour of its text, and the line below its name.

    `bar` is how long its bar of seconds is, as a share of the slowest node's, in [0, 1].
    """

    fill: str
    ink: str
    caption: str
    bar: float


def shade_of(node: str, spending: RunSpending) -> Shade:
    """Return how a node looks; the fuller its blue, the more dollars it has spent.

    White is no dollar, full blue the dearest node of the run; between them colour is proportional.
    """
    spent = spending.of(node)
    dearest, slowest = spending.dearest, spending.slowest
    share = float(spent.dollars / dearest) if dearest else 0.0
    bar = (spent.seconds or 0.0) / slowest if slowest else 0.0
    caption = " · ".join(numbers(spent.dollars, spent.seconds))
    return Shade(fill(share), PAPER if share >= DARK_FROM else INK, caption, bar)


def fill(share: float) -> str:
    """Return the colour of a share of the dearest node's dollars, in [0, 1]."""
    mixed = (round(pale + share * (full - pale)) for pale, full in zip(PALE, FULL, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def headline(spending: RunSpending) -> str:
    """Return how far a run has come, and for what."""
    count = spending.iterations
    steps = f"{count} iteration" if count == 1 else f"{count} iterations"
    return f"{steps}, {', '.join(numbers(spending.dollars, spending.seconds))}"


def numbers(amount: Decimal, time: float | None) -> list[str]:
    """Return dollars and seconds in few characters, dollars alone where no time is known."""
    return [dollars(amount)] if time is None else [dollars(amount), duration(time)]


def dollars(amount: Decimal) -> str:
    """Return an amount with two digits that count, cents at least."""
    if amount == 0:
        return "$0"
    if amount < Decimal("0.0001"):
        return "<$0.0001"
    digits = 2 if amount >= Decimal("0.095") else 1 - amount.adjusted()
    return f"${amount:,.{digits}f}"


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours with two digits that count."""
    if seconds < 0.01:
        return "0 s" if seconds == 0 else "<0.01 s"
    size, unit = next((size, unit) for limit, size, unit in UNITS if seconds < limit)
    value = seconds / size
    digits = 0 if value >= 9.95 else 1 if value >= 0.95 else 2
    return f"{value:,.{digits}f} {unit}"


AMBER = "#e08e0b"
BAR_HEIGHT = 0.075
CELLS, CELL_WIDTH, CELL_HEIGHT = 24, 0.07, 0.17
WIDTH = CELLS * CELL_WIDTH
TEXT_SIZE = 11


def draw_legend(axes: Axes, spending: RunSpending) -> None:
    """Write below the picture what the run has spent, and how a node shows its part of that."""
    bottom, _ = axes.get_ylim()
    _write(axes, 0, bottom + 0.97, headline(spending), "center")
    _write(axes, -WIDTH / 2 - 0.1, bottom + 0.57, "dollars of a node:  $0", "right")
    _draw_ramp(axes, bottom + 0.57)
    _write(axes, WIDTH / 2 + 0.1, bottom + 0.57, dollars(spending.dearest), "left")
    if spending.slowest:
        _write(axes, -WIDTH / 2 - 0.1, bottom + 0.23, "time of a node:  0 s", "right")
        draw_bar(axes, (-WIDTH / 2, bottom + 0.23), WIDTH, 1.0)
        _write(axes, WIDTH / 2 + 0.1, bottom + 0.23, duration(spending.slowest), "left")


def draw_bar(axes: Axes, start: tuple[float, float], width: float, share: float) -> None:
    """Draw a share in [0, 1] of a width as a bar that begins at the middle of its left end."""
    from matplotlib.patches import Rectangle

    left, y = start
    place = left, y - BAR_HEIGHT / 2
    axes.add_patch(Rectangle(place, share * width, BAR_HEIGHT, color=AMBER, linewidth=0, zorder=4))


def _draw_ramp(axes: Axes, y: float) -> None:
    from matplotlib.patches import Rectangle

    left, low = -WIDTH / 2, y - CELL_HEIGHT / 2
    for cell in range(CELLS):
        colour = fill(cell / (CELLS - 1))
        place = left + cell * CELL_WIDTH, low
        axes.add_patch(Rectangle(place, CELL_WIDTH, CELL_HEIGHT, color=colour, linewidth=0.4))
    frame = Rectangle((left, low), WIDTH, CELL_HEIGHT, fill=False, edgecolor=INK, linewidth=0.6)
    axes.add_patch(frame)


def _write(
    axes: Axes, x: float, y: float, text: str, side: Literal["left", "center", "right"]
) -> None:
    # A dollar sign would begin a formula.
    plain = text.replace("$", r"\$")
    axes.text(x, y, plain, ha=side, va="center", fontsize=TEXT_SIZE, color=INK)


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
    _write_drawing(axes, y, ENDS[name], INK, NAME_SIZE)


def _draw_node(axes: Axes, y: float, name: str, shade: Shade, half_height: float) -> None:
    _draw_box(axes, y, (HALF_WIDTH, half_height), fill=shade.fill, edge=BLUE, rounding=0.1)
    if not shade.caption:
        _write_drawing(axes, y, name, shade.ink, NAME_SIZE, "monospace")
        return
    _write_drawing(axes, y + 0.2, name, shade.ink, NAME_SIZE, "monospace")
    # A dollar sign would begin a formula.
    _write_drawing(axes, y - 0.09, shade.caption.replace("$", r"\$"), shade.ink, CAPTION_SIZE)
    width = HALF_WIDTH - BAR_INSET
    draw_bar(axes, (-width, y - half_height + 0.085), 2 * width, shade.bar)


def _write_drawing(
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
