"""The settings of the paper's experiments: prices, budgets and reference costs."""

from dataclasses import dataclass
from decimal import Decimal

from costada.controller.ledger import Price
from costada.runs.suggestion import unknown_name


@dataclass(frozen=True, slots=True)
class Preset:
    """One backbone of the paper's experiments.

    Attributes:
        name: What `--preset` is given.
        price: Dollars per million input and output tokens (App. D.1).
        budget: `B` in dollars (Sec. 5.1).
        reference_cost: `c-bar` in dollars, the cost of an ordinary step (App. B.1).
    """

    name: str
    price: Price
    budget: float
    reference_cost: float


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("glm-5", Price(Decimal("0.60"), Decimal("1.92")), budget=1.0, reference_cost=0.01),
        Preset("gpt-5.4", Price(Decimal("2.50"), Decimal("15.00")), budget=5.0, reference_cost=0.1),
    )
}


def preset_named(name: str) -> Preset:
    """Return the preset of that name.

    Raises:
        ValueError: If there is none; the text proposes the nearest name.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise ValueError(unknown_name("preset", name, PRESETS)) from None
