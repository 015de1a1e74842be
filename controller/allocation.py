"""Allocation: the reward of a visit, and which frontier is next."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

from costada.controller.constants import Constants
from costada.controller.frontier import Frontier, visits_in_flight
from costada.controller.intensity import Action
from costada.controller.money import visible_ratio


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where and how one step searches.

    Attributes:
        frontier: Index of the selected frontier, from 0 (k_t).
        action: Local action (a_t).
        intensity: Exploration intensity, also where the action was not drawn from it (I_t).
    """

    frontier: int
    action: Action
    intensity: float


def allocation_reward(global_gain: float, cost_divisor: float) -> float:
    """The cost-calibrated global gain of a step, at least 0 (r_t, Sec. 4.3)."""
    return global_gain / cost_divisor


def optimism_bonus(
    visits: int, total_visits: int, remaining_ratio: float, constants: Constants
) -> float:
    """What a frontier gains for being rarely visited (bonus term, Sec. 4.3, B.3).

    It shrinks with the remaining ratio, so that the last dollars go where rewards came from.
    """
    ratio = visible_ratio(remaining_ratio, 1.0, constants)
    return ratio * constants.optimism_scale * sqrt(log(total_visits + 1) / (visits + 1))


def select_frontier(
    frontiers: tuple[Frontier, ...],
    remaining_ratio: float,
    constants: Constants,
    in_flight: Sequence[int] = (),
) -> int:
    """The index of the next frontier, the lowest on a tie (k_t, Sec. 4.3, B.3).

    A step in flight is a visit without a reward: it lowers the bonus of its frontier and leaves
    the estimate alone.

    Args:
        frontiers: Statistics before the step.
        remaining_ratio: Ratio before the step, in [0, 1].
        constants: Source of the optimism scale.
        in_flight: The frontier of each step that was launched and has not landed.
    """
    visits = visits_in_flight(frontiers, in_flight)
    total = sum(visits)
    ucb_scores = [
        frontier.allocation_estimate + optimism_bonus(count, total, remaining_ratio, constants)
        for frontier, count in zip(frontiers, visits, strict=True)
    ]
    return ucb_scores.index(max(ucb_scores))
