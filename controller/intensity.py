"""Exploration intensity, the bootstrap action, and the draw of a local action."""

from enum import StrEnum
from math import sqrt
from random import Random

from costada.controller.constants import Constants
from costada.controller.money import visible_ratio


class Action(StrEnum):
    """How a step searches its frontier (a_t, Sec. 4.3)."""

    EXPLORATION = "exploration"
    EXPLOITATION = "exploitation"
    BALANCED = "balanced"


def intensity(smoothed_utility: float, remaining_ratio: float, constants: Constants) -> float:
    """The probability of exploring, in [I_min, I_max] (I_t, Sec. 4.3).

    It falls as the frontier earns utility and as the budget runs out.

    Args:
        smoothed_utility: Of the selected frontier before the step, at least 0.
        remaining_ratio: Before the step, in [0, 1].
        constants: Source of the bounds and the stabilizer.
    """
    ratio = visible_ratio(remaining_ratio, 1.0, constants)
    span = constants.max_intensity - constants.min_intensity
    damping = 1.0 + sqrt(smoothed_utility + constants.intensity_stabilizer)
    return constants.min_intensity + span * ratio / damping


def bootstrap_action(visits: int, total_visits: int) -> Action | None:
    """The action a first visit prescribes, None on later visits (B.2).

    The first step of a run explores; the first step on any other frontier is balanced.
    """
    if total_visits == 0:
        return Action.EXPLORATION
    return Action.BALANCED if visits == 0 else None


def sample_action(intensity: float, rng: Random, constants: Constants) -> Action:
    """One drawn action (pi_local, B.2).

    Exploration has probability `intensity`; the rest is split by the exploitation share.
    """
    exploit_until = intensity + constants.exploitation_share * (1.0 - intensity)
    draw = rng.random()
    if draw < intensity:
        return Action.EXPLORATION
    return Action.EXPLOITATION if draw < exploit_until else Action.BALANCED
