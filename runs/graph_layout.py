"""Where the nodes and edges of a graph stand in its picture: one column, arcs at its sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_core.runnables.graph import Edge, Graph

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
