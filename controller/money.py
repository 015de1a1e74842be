"""Money of a run: what is left, what the controller sees of it, and a step's cost in references."""

from dataclasses import dataclass
from math import isfinite

from costada.controller.constants import Constants


def remaining(budget: float, spent: float) -> float:
    """Dollars left, negative after an overshoot (B - C_t, Sec. 3.1)."""
    return budget - spent


def remaining_ratio(budget: float, spent: float) -> float:
    """Unspent part of the budget in [0, 1] (rho_t, Sec. 3.1)."""
    return max(0.0, 1.0 - spent / budget)


def visible_ratio(remaining_ratio: float, hidden_value: float, constants: Constants) -> float:
    """The ratio that credit and control see: the remaining one, or a stand-in.

    The ablation without remaining budget replaces the ratio by `hidden_value`.
    """
    return remaining_ratio if constants.conditions_on_budget else hidden_value


def normalized_cost(step_cost: float, constants: Constants) -> float:
    """A step's dollars in reference costs (c~_t, Sec. 3.1)."""
    return step_cost / (constants.reference_cost + constants.cost_stabilizer)


def has_crossed(budget: float, spent: float) -> bool:
    """Whether the budget is used up (C_t >= B; tau_B is the first such t, Sec. 3.1)."""
    return spent >= budget


@dataclass(frozen=True, slots=True)
class Balance:
    """Dollars a run may spend and has spent (B and C_t, Sec. 3.1).

    Raises:
        ValueError: The budget is not above 0, or one of the two is negative or not finite.
    """

    budget: float
    spent: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.budget) and self.budget > 0):
            raise ValueError(f"budget: got {self.budget}, expected finite dollars above 0")
        if not (isfinite(self.spent) and self.spent >= 0):
            raise ValueError(f"spent: got {self.spent}, expected finite dollars of at least 0")

    @property
    def ratio(self) -> float:
        """Unspent part of the budget in [0, 1] (rho_t)."""
        return remaining_ratio(self.budget, self.spent)
