"""Price of a call, money spent and left, remaining ratio, normalised cost, crossing."""

from costada.controller.constants import Constants


def remaining(budget: float, spent: float) -> float:
    """Return the dollars left, negative after an overshoot (B - C_t, Sec. 3.1)."""
    return budget - spent


def remaining_ratio(budget: float, spent: float) -> float:
    """Return the unspent part of the budget in [0, 1] (rho_t, Sec. 3.1)."""
    return max(0.0, 1.0 - spent / budget)


def visible_ratio(remaining_ratio: float, hidden_value: float, constants: Constants) -> float:
    """Return the ratio that credit and control see: the remaining one, or a stand-in.

    The ablation without remaining budget replaces the ratio by `hidden_value`.
    """
    return remaining_ratio if constants.conditions_on_budget else hidden_value


def normalized_cost(step_cost: float, constants: Constants) -> float:
    """Return a step's dollars in reference costs (c~_t, Sec. 3.1)."""
    return step_cost / (constants.reference_cost + constants.cost_stabilizer)


def has_crossed(budget: float, spent: float) -> bool:
    """Return whether the budget is used up (C_t >= B; tau_B is the first such t, Sec. 3.1)."""
    return spent >= budget
