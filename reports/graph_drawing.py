"""A picture of the graph without network access, and what a run has spent in each node.

Nodes stand in one column in the order in which they were added. An edge to the next node goes
straight down; edges further down bend to the right, edges back up to the left. Their labels stand
outside of their lines, where no other line passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from costada.reports.formats import counted, duration, short_dollars
from costada.store.address import is_there
from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from langchain_core.runnables.graph import Edge, Graph
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from costada.reports.run_view import RunView

PictureFormat = Literal["png", "svg"]
Side = Literal["left", "center", "right"]

CALLING_NODES = {"guide": "guide"}
OTHER_CALLS = "generate"
"""Makes the calls of every role but the guide's."""

ENDS = {"__start__": "start", "__end__": "end"}
RIGHT, LEFT = 1, -1
FIRST_REACH, MIN_LANE, EDGE_SPACE = 0.45, 0.3, 0.25
HALF_WIDTH, END_HALF_WIDTH, END_HALF_HEIGHT = 1.35, 0.5, 0.25
GAP, PORT, BAR_INSET, BAR_HEIGHT = 0.48, 0.13, 0.12, 0.075
LABEL_GAP = 0.07
"""Between a label and the lines beside it."""

LEGEND_SPACE = 1.1
CELLS, CELL_WIDTH, CELL_HEIGHT = 24, 0.07, 0.17
RAMP_WIDTH = CELLS * CELL_WIDTH
INCHES_ACROSS, INCHES_DOWN, DOTS_PER_INCH = 0.95, 0.8, 160
NAME_SIZE, CAPTION_SIZE, TEXT_SIZE = 12.5, 11.5, 11

PALE, FULL = (0xFF, 0xFF, 0xFF), (0x21, 0x66, 0xAC)
INK, PAPER, BLUE, ORANGE, AMBER = "#000000", "#ffffff", "#2166ac", "#b35506", "#e08e0b"
UNSPENT = "#eef4fa"
LINE_SPACING = 1.05
LABEL: Any = {"color": ORANGE, "linespacing": LINE_SPACING}
WHITE_TEXT_FROM = 0.88
"""Share of the largest node's dollars from which text is white, for contrast."""


@dataclass(frozen=True, slots=True)
class NodeSpending:
    """What a node has spent; `seconds` is `None` if its run was not timed."""

    dollars: Decimal = Decimal(0)
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunSpending:
    """What a run has spent after so many iterations, by node; a missing node has spent nothing."""

    iterations: int
    nodes: Mapping[str, NodeSpending]

    @property
    def dollars(self) -> Decimal:
        """Dollars of all nodes: what the run's ledger says."""
        return sum((node.dollars for node in self.nodes.values()), Decimal(0))

    @property
    def seconds(self) -> float | None:
        """Seconds of all nodes, `None` if the run was not timed."""
        known = [node.seconds for node in self.nodes.values() if node.seconds is not None]
        return sum(known) if known else None

    @property
    def most_dollars(self) -> Decimal:
        """Dollars of the node that has spent the most."""
        return max((node.dollars for node in self.nodes.values()), default=Decimal(0))

    @property
    def most_seconds(self) -> float:
        """Seconds of the slowest node, 0 if the run was not timed."""
        return max((node.seconds or 0.0 for node in self.nodes.values()), default=0.0)

    def headline(self) -> str:
        """How far the run has come, and at what cost."""
        return f"{counted(self.iterations, 'iteration')}, {', '.join(self._numbers(self))}"

    def style_of(self, node: str) -> NodeStyle:
        """How a node looks: white for no dollars, full blue for the node with the most."""
        untimed = None if self.seconds is None else 0.0
        spent = self.nodes.get(node, NodeSpending(seconds=untimed))
        share = float(spent.dollars / self.most_dollars) if self.most_dollars else 0.0
        bar = (spent.seconds or 0.0) / self.most_seconds if self.most_seconds else 0.0
        ink = PAPER if share >= WHITE_TEXT_FROM else INK
        return NodeStyle(fill_colour(share), ink, " · ".join(self._numbers(spent)), bar)

    @staticmethod
    def _numbers(spent: NodeSpending | RunSpending) -> list[str]:
        dollars = short_dollars(spent.dollars)
        return [dollars] if spent.seconds is None else [dollars, duration(spent.seconds)]


@dataclass(frozen=True, slots=True)
class NodeStyle:
    """Fill, text colour and caption of a node; `bar` is its share of the slowest node's seconds."""

    fill: str
    ink: str
    caption: str
    bar: float


def spending_of_run(run: RunView) -> RunSpending:
    """What a run has spent so far, also while it is running.

    Requests whose bill is unknown count as the run's settings say.

    Raises:
        ValueError: If the folder holds no run, or its run has not started.
    """
    settings = run.load()
    if not is_there(run.database):
        raise ValueError(f"{run.place}: its run has not started")
    with RunStore.at(run.database, is_read_only=True) as store:
        run_ids = store.run_ids()
        if not run_ids:
            raise ValueError(f"{run.place}: its run has not started")
        nodes = spending_by_node(store, run_ids[-1], counts_lost=settings.lost_calls == "count")
        return RunSpending(len(store.steps(run_ids[-1])), nodes)


def spending_by_node(
    store: RunStore, run_id: str, *, counts_lost: bool = True
) -> dict[str, NodeSpending]:
    """What each node that was timed or made a call has spent in a run.

    With `counts_lost`, requests whose bill is unknown count at their upper bound.
    """
    seconds = store.timing.by_node(run_id)
    dollars: dict[str, Decimal] = {}
    for call in store.call_log.calls(run_id, with_texts=False):
        node = CALLING_NODES.get(call.role, OTHER_CALLS)
        cost = call.cost + (call.bound if counts_lost else Decimal(0))
        dollars[node] = dollars.get(node, Decimal(0)) + cost
    return {
        node: NodeSpending(dollars.get(node, Decimal(0)), seconds.get(node))
        for node in {**seconds, **dollars}
    }


def fill_colour(share: float) -> str:
    """The colour of a share in [0, 1] of the largest node's dollars."""
    mixed = (round(pale + share * (full - pale)) for pale, full in zip(PALE, FULL, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


@dataclass(frozen=True)
class Arc:
    """An edge that leaves the column: from one row to another, rows counted from the top.

    `side` is 1 for the right (downwards) and -1 for the left (upwards); `lane` counts the arcs of
    that side that it goes around.
    """

    start: int
    end: int
    label: str
    is_conditional: bool
    side: int
    lane: int

    @property
    def words(self) -> str:
        """The label, one word a line."""
        return self.label.replace(" ", "\n")

    @cached_property
    def label_size(self) -> tuple[float, float]:
        """Width and height of the label, with the space that it keeps from other lines."""
        from matplotlib.textpath import TextPath

        lines = self.words.split("\n")
        width = max(TextPath((0, 0), line, size=TEXT_SIZE).get_extents().width for line in lines)
        height = 1.2 * LINE_SPACING * TEXT_SIZE * len(lines)
        across, down = width / 72 / INCHES_ACROSS, height / 72 / INCHES_DOWN
        return across + 2 * LABEL_GAP, down + LABEL_GAP


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes from top to bottom, the edges that go straight down, and the others."""

    names: Sequence[str]
    straight: Sequence[Edge]
    arcs: Sequence[Arc]

    def departure(self, arc: Arc) -> float:
        """Height at which an arc leaves, from the middle of its node."""
        return -PORT if arc.side == RIGHT or arc.lane else 0.0

    def arrival(self, arc: Arc) -> float:
        """Height at which an arc arrives, from the middle of its node: outer above inner arcs."""
        side = [each.lane for each in self.arcs if (each.side, each.end) == (arc.side, arc.end)]
        inner = sum(lane < arc.lane for lane in side)
        return PORT / 3 + inner * PORT / 2 if len(side) > 1 else PORT

    def reach(self, side: int, lane: int | None = None) -> float:
        """How far a lane is from the column, or where the outermost lane of a side ends.

        0 if the side has no arcs. A lane is as wide as its widest label.
        """
        widths: dict[int, float] = {}
        for arc in self.arcs:
            if arc.side == side:
                width = arc.label_size[0] if arc.label else MIN_LANE
                widths[arc.lane] = max(width, widths.get(arc.lane, MIN_LANE))
        if not widths:
            return 0.0
        return FIRST_REACH + sum(
            widths[inner] for inner in range(len(widths) if lane is None else lane)
        )


def layout(graph: Graph) -> Layout:
    """Where nodes and edges stand; an arc goes around the shorter ones that it overlaps."""
    names = [name for name in graph.nodes if name != "__end__"]
    if "__end__" in graph.nodes:
        names.append("__end__")
    row = {name: index for index, name in enumerate(names)}
    straight = [edge for edge in graph.edges if row[edge.target] == row[edge.source] + 1]
    others = [edge for edge in graph.edges if edge not in straight]
    arcs: list[Arc] = []
    # Short edges first, so that longer ones are drawn around them.
    for edge in sorted(others, key=lambda edge: abs(row[edge.target] - row[edge.source])):
        start, end = row[edge.source], row[edge.target]
        low, high = min(start, end), max(start, end)
        side = RIGHT if end > start else LEFT
        inner = [
            arc.lane
            for arc in arcs
            if arc.side == side
            and low <= max(arc.start, arc.end)
            and min(arc.start, arc.end) <= high
        ]
        lane = 1 + max(inner, default=-1)
        arcs.append(Arc(start, end, str(edge.data or ""), edge.conditional, side, lane))
    return Layout(names, straight, arcs)


def edge_id(source: str, label: str, target: str) -> str:
    """The id of an edge's arrow in an SVG picture; the label is that of a route, or empty."""
    return "edge:" + ":".join((source, label.replace(" ", "-"), target))


def draw_graph(graph: Graph, format: PictureFormat, spending: RunSpending | None = None) -> bytes:
    """The picture of a compiled graph, given its `get_graph()`.

    With what a run has spent, dollars fill the nodes with blue, seconds draw a bar at their feet,
    both stand below the names in numbers; a legend explains it.
    """
    from matplotlib import rc_context

    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "costada"}):
        # No date and no random ids: the same graph gives the same file.
        facts = {"Date": None} if format == "svg" else None
        plot_graph(graph, spending).savefig(
            buffer, format=format, dpi=DOTS_PER_INCH, facecolor="white", metadata=facts
        )
    return buffer.getvalue()


def plot_graph(graph: Graph, spending: RunSpending | None = None) -> Figure:
    """Plot what `draw_graph` saves."""
    from matplotlib.figure import Figure

    plan = layout(graph)
    half_height = 0.39 if spending else 0.27
    left, right = (HALF_WIDTH + plan.reach(side) + EDGE_SPACE for side in (LEFT, RIGHT))
    drop = (2 * half_height + GAP) * (len(plan.names) - 1)
    bottom = -drop - 0.4 - (LEGEND_SPACE if spending else 0.0)
    figure = Figure(figsize=(INCHES_ACROSS * (left + right), INCHES_DOWN * (0.4 - bottom)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-left, right), ylim=(bottom, 0.4))
    axes.axis("off")
    _Drawing(axes, plan, half_height).draw(spending)
    return figure


class _Drawing:
    """Draws a layout onto axes; the first node is at height 0, later ones below it."""

    def __init__(self, axes: Axes, plan: Layout, half_height: float) -> None:
        self._axes = axes
        self._plan = plan
        self._half_height = half_height

    def draw(self, spending: RunSpending | None) -> None:
        for edge in self._plan.straight:
            self._straight_edge(edge)
        for arc in self._plan.arcs:
            self._arc(arc)
        for row, name in enumerate(self._plan.names):
            if name in ENDS:
                half = END_HALF_WIDTH, END_HALF_HEIGHT
                self._box(self._y(row), half, fill="white", edge=INK, rounding=END_HALF_HEIGHT)
                self._text(0, self._y(row), ENDS[name], fontsize=NAME_SIZE, zorder=4)
            else:
                blank = NodeStyle(UNSPENT, INK, "", 0.0)
                self._node(self._y(row), name, spending.style_of(name) if spending else blank)
        if spending:
            self._legend(spending)

    def _y(self, row: int) -> float:
        return -(2 * self._half_height + GAP) * row

    def _node(self, y: float, name: str, style: NodeStyle) -> None:
        half = HALF_WIDTH, self._half_height
        self._box(y, half, fill=style.fill, edge=BLUE, rounding=0.1)
        look: dict[str, Any] = {"color": style.ink, "zorder": 4}
        above = 0.2 if style.caption else 0.0
        self._text(0, y + above, name, fontsize=NAME_SIZE, family="monospace", **look)
        if style.caption:
            self._text(0, y - 0.09, style.caption, fontsize=CAPTION_SIZE, **look)
            width = HALF_WIDTH - BAR_INSET
            self._bar((-width, y - self._half_height + 0.085), 2 * width, style.bar)

    def _straight_edge(self, edge: Edge) -> None:
        names = self._plan.names
        halves = [
            END_HALF_HEIGHT if name in ENDS else self._half_height
            for name in (edge.source, edge.target)
        ]
        top = self._y(names.index(edge.source)) - halves[0]
        bottom = self._y(names.index(edge.target)) + halves[1]
        name = edge_id(edge.source, str(edge.data or ""), edge.target)
        self._arrow([(0, top), (0, bottom)], edge.conditional, name)
        if edge.data:
            self._text(0.1, (top + bottom) / 2 + 0.03, str(edge.data), "left", **LABEL)

    def _arc(self, arc: Arc) -> None:
        starts, ends = (
            arc.side * (END_HALF_WIDTH if self._plan.names[row] in ENDS else HALF_WIDTH)
            for row in (arc.start, arc.end)
        )
        outer = arc.side * (HALF_WIDTH + self._plan.reach(arc.side, arc.lane))
        departure, arrival = self._ends(arc)
        leave, arrive = (starts, departure), (ends, arrival)
        line = [leave, (outer, departure), (outer, arrival), arrive]
        source, target = (self._plan.names[row] for row in (arc.start, arc.end))
        self._arrow(line, arc.is_conditional, edge_id(source, arc.label, target))
        if arc.label:
            side: Side = "left" if arc.side == RIGHT else "right"
            place = outer + arc.side * LABEL_GAP, self._label_height(arc)
            self._text(*place, arc.words, side, **LABEL)

    def _ends(self, arc: Arc) -> tuple[float, float]:
        """The heights at which an arc leaves and arrives."""
        plan = self._plan
        return self._y(arc.start) + plan.departure(arc), self._y(arc.end) + plan.arrival(arc)

    def _label_height(self, arc: Arc) -> float:
        """Where along an arc its label stands: as near to its middle as outer arcs leave room."""
        half = arc.label_size[1] / 2
        low, high = sorted(self._ends(arc))
        middle = (low + high) / 2
        outer = (each for each in self._plan.arcs if each.side == arc.side and each.lane > arc.lane)
        crossing = {y for each in outer for y in self._ends(each) if low - half < y < high + half}
        gaps = list(pairwise(sorted({low - half, high + half} | crossing)))
        widest = max(gaps, key=lambda gap: gap[1] - gap[0])
        places = [
            min(max(middle, bottom + half), top - half)
            for bottom, top in gaps
            if top - bottom >= 2 * half
        ]
        return min(places, key=lambda y: abs(y - middle), default=sum(widest) / 2)

    def _legend(self, spending: RunSpending) -> None:
        """What the run has spent, and how a node shows its part of that."""
        from matplotlib.patches import Rectangle

        bottom, _ = self._axes.get_ylim()
        left, y = -RAMP_WIDTH / 2, bottom + 0.57
        self._text(0, bottom + 0.97, spending.headline())
        self._text(left - 0.1, y, "dollars of a node:  $0", "right")
        low = y - CELL_HEIGHT / 2
        for cell in range(CELLS):
            colour = fill_colour(cell / (CELLS - 1))
            place = left + cell * CELL_WIDTH, low
            patch = Rectangle(place, CELL_WIDTH, CELL_HEIGHT, color=colour, linewidth=0.4)
            self._axes.add_patch(patch)
        frame = (left, low), RAMP_WIDTH, CELL_HEIGHT
        self._axes.add_patch(Rectangle(*frame, fill=False, edgecolor=INK, linewidth=0.6))
        self._text(-left + 0.1, y, short_dollars(spending.most_dollars), "left")
        if spending.most_seconds:
            self._text(left - 0.1, bottom + 0.23, "time of a node:  0 s", "right")
            self._bar((left, bottom + 0.23), RAMP_WIDTH, 1.0)
            self._text(-left + 0.1, bottom + 0.23, duration(spending.most_seconds), "left")

    def _bar(self, start: tuple[float, float], width: float, share: float) -> None:
        from matplotlib.patches import Rectangle

        place = start[0], start[1] - BAR_HEIGHT / 2
        bar = Rectangle(place, share * width, BAR_HEIGHT, color=AMBER, linewidth=0, zorder=4)
        self._axes.add_patch(bar)

    def _box(
        self, y: float, half: tuple[float, float], *, fill: str, edge: str, rounding: float
    ) -> None:
        from matplotlib.patches import FancyBboxPatch

        width, height = half
        style = f"round,pad=0,rounding_size={rounding}"
        look: dict[str, Any] = {"facecolor": fill, "edgecolor": edge, "linewidth": 1.4, "zorder": 3}
        corner = (-width, y - height)
        self._axes.add_patch(FancyBboxPatch(corner, 2 * width, 2 * height, style, **look))

    def _arrow(
        self, points: Sequence[tuple[float, float]], is_conditional: bool, name: str
    ) -> None:
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path

        colour, line = (ORANGE, "--") if is_conditional else (INK, "-")
        look: dict[str, Any] = {"color": colour, "linestyle": line, "linewidth": 1.4, "zorder": 2}
        ends: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 13, "joinstyle": "round"}
        self._axes.add_patch(FancyArrowPatch(path=Path(points), gid=name, **ends, **look))

    def _text(self, x: float, y: float, text: str, side: Side = "center", **look: Any) -> None:
        """Write a string; a dollar sign would begin a formula in matplotlib."""
        look = {"fontsize": TEXT_SIZE, **look}
        self._axes.text(x, y, text.replace("$", r"\$"), ha=side, va="center", **look)
