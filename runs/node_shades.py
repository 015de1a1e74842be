"""How a picture of the graph shows what its nodes have spent: colours and short numbers."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import inf

from costada.runs.node_spending import RunSpending

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
