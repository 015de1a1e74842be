"""What the colours and bars of a run's picture mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from costada.runs.node_shades import INK, dollars, duration, fill, headline
from costada.runs.node_spending import RunSpending

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
