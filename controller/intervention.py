"""Patience, the tests on evidence and money, and the decision to buy a guide."""

from dataclasses import dataclass
from math import ceil

from costada.controller.constants import Constants
from costada.controller.guidance import GuidanceCycle, Mode
from costada.controller.money import remaining

CEILING_TOLERANCE = 1e-9
"""Keeps rounding in the ratio from lifting a whole patience to the next number."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """What the end of one step decided.

    Attributes:
        scheduled: Mode of the guide the next step calls, None for no guide (m_t).
        opened_consolidation: Whether guidance succeeded in this step (zeta_t).
        backed_off: Whether guidance came to nothing in this step (Backoff_t).
        notes: Events that only one method knows, for the trace.
    """

    scheduled: Mode | None
    opened_consolidation: bool
    backed_off: bool
    notes: tuple[str, ...] = ()


def required_patience(remaining_ratio: float, num_frontiers: int, constants: Constants) -> int:
    """The stagnant steps that justify a guide (nu_req, B.4.1).

    Patience grows as money runs out, and never falls below two visits per frontier.
    """
    patience = constants.base_patience * (1.0 - remaining_ratio)
    return max(ceil(patience - CEILING_TOLERANCE), 2 * num_frontiers)


def is_stagnant(
    stagnation: int, remaining_ratio: float, num_frontiers: int, constants: Constants
) -> bool:
    """Whether stagnation has used up the patience (P_t, B.4.1)."""
    return stagnation >= required_patience(remaining_ratio, num_frontiers, constants)


def has_low_yield(
    stagnation: int,
    low_yield_cost: float,
    remaining_ratio: float,
    num_frontiers: int,
    constants: Constants,
) -> bool:
    """Whether early money goes nowhere (Y_t, B.4.1).

    Half of the budget must be left, each frontier must have had a chance, and the fruitless
    spending must have reached the price of a guide.
    """
    return (
        remaining_ratio >= 0.5
        and stagnation >= num_frontiers
        and low_yield_cost >= constants.guide_cost_estimate
    )


def can_afford_guide(budget: float, spent: float, constants: Constants) -> bool:
    """Whether a guide and one step after it fit into what is left (A_t, B.4.1)."""
    return remaining(budget, spent) >= constants.guide_cost_estimate + constants.reference_cost


def is_free_for_guide(
    consolidation_left: int, cycle: GuidanceCycle | None, backed_off: bool
) -> bool:
    """Whether no consolidation, cycle or backoff stands in the way (B.4.6)."""
    return consolidation_left == 0 and cycle is None and not backed_off


def should_intervene(
    is_free: bool, can_afford: bool, is_stagnant: bool, has_low_yield: bool, constants: Constants
) -> bool:
    """Whether to buy a guide for the next step (the decision of B.4.6).

    The ablation without gating asks for stagnation only.
    """
    if not constants.gates_intervention:
        return is_free and is_stagnant
    return is_free and can_afford and (is_stagnant or has_low_yield)
