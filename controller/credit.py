"""Credit per dollar: the balance of a run, what a step cost and gained, and evidence of a stall.

Costs count in reference costs, gains as ratios. Credit is gain divided by the cost divisor: cost
weighs more as the budget runs out (Sec. 3.1, 4.2, B.4).
"""

from dataclasses import dataclass
from math import isfinite, log1p

from costada.controller.constants import Constants


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


def normalized_gain(score: float | None, reference: float) -> float:
    """How far a score rises above a reference, at least 0.

    The rise is divided by the larger magnitude of the two, or by 1 when both are smaller.
    Against the frontier's best this is the local gain (delta_t, Sec. 4.2), against the
    incumbent the global gain (g_t, Sec. 4.2), and for the incumbent against the baseline of a
    cycle the cycle gain (g^G_t, B.4.3).

    Args:
        score: What was reached; None when nothing was evaluated, which gains nothing.
        reference: What there was before.
    """
    if score is None:
        return 0.0
    return max((score - reference) / max(abs(score), abs(reference), 1.0), 0.0)


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


NO_CREDIT = Credit(0.0, 0.0, 1.0, 0.0, 0.0)
"""The credit before the first step."""


def global_weight(remaining_ratio: float, constants: Constants) -> float:
    """The share of global gain in the credit, in [0, 1] (lambda_t, Sec. 4.2)."""
    return 1.0 - visible_ratio(remaining_ratio, 1.0 - constants.fixed_global_weight, constants)


def cost_weight(remaining_ratio: float, constants: Constants) -> float:
    """How much cost counts in the divisor, in [lambda_min, 1] (lambda^c_t, Sec. 4.2)."""
    return max(global_weight(remaining_ratio, constants), constants.min_cost_weight)


def log_cost(normalized_cost: float) -> float:
    """The compressed cost of a step, at least 0 (phi_t, Sec. 4.2)."""
    return log1p(normalized_cost)


def cost_divisor(normalized_cost: float, remaining_ratio: float, constants: Constants) -> float:
    """What credit is divided by, at least 1 (d_t, Sec. 4.2).

    The ablation without cost calibration divides by 1.
    """
    if not constants.calibrates_cost:
        return 1.0
    return 1.0 + cost_weight(remaining_ratio, constants) * log_cost(normalized_cost)


def utility(local_gain: float, global_gain: float, global_weight: float, divisor: float) -> float:
    """The credit for local control, at least 0 (u_t, Sec. 4.2, Eq. 1)."""
    return (global_weight * global_gain + (1.0 - global_weight) * local_gain) / divisor


def made_progress(global_gain: float, constants: Constants) -> bool:
    """Whether a step raised the incumbent meaningfully (Prog, B.4.2)."""
    return global_gain > constants.progress_threshold


def made_incumbent_progress(cycle_gain: float, constants: Constants) -> bool:
    """Whether a cycle raised the incumbent above its baseline (Inc, B.4.2)."""
    return cycle_gain > constants.incumbent_threshold


def stagnation(previous: int, global_gain: float, constants: Constants) -> int:
    """The steps in a row without meaningful progress (nu_t, B.4.1)."""
    return 0 if made_progress(global_gain, constants) else previous + 1


def is_low_yield(utility: float, allocation_reward: float, constants: Constants) -> bool:
    """Whether a step earned neither utility nor allocation reward (l_t, B.4.1)."""
    return (
        utility <= constants.progress_threshold
        and allocation_reward <= constants.progress_threshold
    )


def low_yield_cost(previous: float, step_cost: float, is_low_yield: bool) -> float:
    """The dollars spent in a row on steps that earned nothing (L_t, B.4.1)."""
    return previous + step_cost if is_low_yield else 0.0
