"""Credit of one step: mixture of gains, weight of cost, cost divisor, utility."""

from dataclasses import dataclass
from math import log1p

from costada.controller.constants import Constants
from costada.controller.ledger import visible_ratio


@dataclass(frozen=True, slots=True)
class Credit:
    """What one step earned; all five are ratios, at least 0.

    Attributes:
        local_gain: Gain over the best of the selected frontier (delta_t).
        global_gain: Gain over the incumbent (g_t).
        cost_divisor: What the gains are divided by, at least 1 (d_t).
        utility: Credit for local control (u_t).
        allocation_reward: Credit for allocation (r_t).
    """

    local_gain: float
    global_gain: float
    cost_divisor: float
    utility: float
    allocation_reward: float


def global_weight(remaining_ratio: float, constants: Constants) -> float:
    """Return the share of global gain in the credit, in [0, 1] (lambda_t, Sec. 4.2)."""
    return 1.0 - visible_ratio(remaining_ratio, 1.0 - constants.fixed_global_weight, constants)


def cost_weight(remaining_ratio: float, constants: Constants) -> float:
    """Return how much cost counts in the divisor, in [lambda_min, 1] (lambda^c_t, Sec. 4.2)."""
    return max(global_weight(remaining_ratio, constants), constants.min_cost_weight)


def log_cost(normalized_cost: float) -> float:
    """Return the compressed cost of a step, at least 0 (phi_t, Sec. 4.2)."""
    return log1p(normalized_cost)


def cost_divisor(normalized_cost: float, remaining_ratio: float, constants: Constants) -> float:
    """Return what credit is divided by, at least 1 (d_t, Sec. 4.2).

    The ablation without cost calibration divides by 1.
    """
    if not constants.calibrates_cost:
        return 1.0
    return 1.0 + cost_weight(remaining_ratio, constants) * log_cost(normalized_cost)


def utility(local_gain: float, global_gain: float, global_weight: float, divisor: float) -> float:
    """Return the credit for local control, at least 0 (u_t, Sec. 4.2, Eq. 1)."""
    return (global_weight * global_gain + (1.0 - global_weight) * local_gain) / divisor
