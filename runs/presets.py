"""The models of the paper's experiments, with prices and budgets."""

from dataclasses import dataclass
from decimal import Decimal

from costada.values.usage import Price


@dataclass(frozen=True, slots=True)
class Preset:
    """One model of the paper's experiments.

    Attributes:
        price: Dollars per million input and output tokens (App. D.1).
        budget: `B` in dollars (Sec. 5.1).
        reference_cost: `c-bar` in dollars, the expected cost of a step (App. B.1).
    """

    price: Price
    budget: float
    reference_cost: float


PRESETS = {
    "glm-5": Preset(Price(Decimal("0.60"), Decimal("1.92")), budget=1.0, reference_cost=0.01),
    "gpt-5.4": Preset(Price(Decimal("2.50"), Decimal("15.00")), budget=5.0, reference_cost=0.1),
}
