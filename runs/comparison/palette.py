"""The look of each method, the same in every figure and table of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costada.runs.comparison.sections import ordered_methods


@dataclass(frozen=True, slots=True)
class Look:
    """How a method is drawn.

    Attributes:
        colour: Distinguishable without colour vision, on a light ground.
        dashes: Line style; tells the kinds of method apart.
        width: Line width in points.
    """

    colour: str
    dashes: str
    width: float


SOLID, DASHED, DOTTED, MIXED = "-", "--", ":", "-."
LOOKS = {
    "costada": Look("#0072b2", SOLID, 2.6),
    "adaevolve": Look("#d55e00", SOLID, 1.8),
    "evox": Look("#009e73", SOLID, 1.8),
    "no-cost-calibration": Look("#e69f00", DASHED, 1.5),
    "no-remaining-budget": Look("#56b4e9", DASHED, 1.5),
    "no-intervention-gating": Look("#cc79a7", DASHED, 1.5),
    "uniform": Look("#7f7f7f", DOTTED, 1.8),
    "best-of-n": Look("#000000", DOTTED, 1.8),
}
"""Colours after Okabe and Ito, grey in place of yellow."""
OTHER_COLOURS = ("#882255", "#44aa99", "#999933", "#332288", "#aa4499", "#661100")


def looks_of(methods: Sequence[str]) -> Mapping[str, Look]:
    """Return the look of each method; those that are not ours share further colours in turn."""
    others = [name for name in ordered_methods(set(methods)) if name not in LOOKS]
    further = {
        name: Look(OTHER_COLOURS[number % len(OTHER_COLOURS)], MIXED, 1.5)
        for number, name in enumerate(others)
    }
    return {name: LOOKS.get(name) or further[name] for name in ordered_methods(set(methods))}
