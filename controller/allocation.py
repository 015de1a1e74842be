"""Allocation: which frontier is next, and how it is searched (Sec. 4.3).

What the steps on a frontier earned and cost sets its exploration intensity, from which the local
action is drawn, and together with its visits decides when it is selected again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import log, sqrt
from random import Random

from costada.controller.constants import Constants
from costada.controller.credit import visible_ratio


@dataclass(frozen=True, slots=True)
class Frontier:
    """Statistics of one frontier; they keep their values while it is not selected.

    Attributes:
        best_score: Highest score in its archive (b^(k), Sec. 3).
        smoothed_utility: Moving average of utility, at least 0 (H^(k), Sec. 4.2).
        allocation_estimate: Moving average of allocation reward, at least 0 (R^(k), Sec. 4.3).
        visits: Steps spent here, consolidation included (n^(k), Sec. 4.3).
    """

    best_score: float
    smoothed_utility: float = 0.0
    allocation_estimate: float = 0.0
    visits: int = 0


@dataclass(frozen=True, slots=True)
class Averages:
    """Moving averages of a frontier by credit that is not divided by cost, both at least 0.

    Attributes:
        utility: Of utility (H^(k) with d_t = 1).
        reward: Of allocation reward (R^(k) with d_t = 1).
    """

    utility: float = 0.0
    reward: float = 0.0

    def after(self, utility: float, reward: float, constants: Constants) -> "Averages":
        """The averages after a step on the frontier."""
        return Averages(
            moving_average(self.utility, utility, constants.utility_smoothing),
            moving_average(self.reward, reward, constants.allocation_smoothing),
        )


def moving_average(previous: float, value: float, smoothing: float) -> float:
    """The exponential average, keeping `smoothing` of the old one (H: alpha, R: gamma)."""
    return smoothing * previous + (1.0 - smoothing) * value


def higher_score(best_score: float, score: float | None) -> float:
    """The best score so far after one more, None being none (b^(k)_t and y_t, Sec. 3)."""
    return best_score if score is None else max(best_score, score)


def after_visit(
    frontier: Frontier,
    score: float | None,
    utility: float,
    allocation_reward: float,
    constants: Constants,
) -> Frontier:
    """The frontier after a step on it (H, R and n updates, Sec. 4.2 and 4.3)."""
    return Frontier(
        best_score=higher_score(frontier.best_score, score),
        smoothed_utility=moving_average(
            frontier.smoothed_utility, utility, constants.utility_smoothing
        ),
        allocation_estimate=moving_average(
            frontier.allocation_estimate, allocation_reward, constants.allocation_smoothing
        ),
        visits=frontier.visits + 1,
    )


def with_best(frontier: Frontier, score: float) -> Frontier:
    """The frontier after migrants came: only its best score may rise."""
    return replace(frontier, best_score=score) if score > frontier.best_score else frontier


def with_frontier(
    frontiers: tuple[Frontier, ...], index: int, frontier: Frontier
) -> tuple[Frontier, ...]:
    """The frontiers with one replaced; the others stay the same objects."""
    return (*frontiers[:index], frontier, *frontiers[index + 1 :])


def visits_in_flight(frontiers: tuple[Frontier, ...], in_flight: Sequence[int]) -> list[int]:
    """The visits of each frontier, completed and in flight (n^(k), Sec. 4.3); N is their sum.

    Args:
        frontiers: Statistics of the completed steps.
        in_flight: The frontier of each step that was launched and has not landed.
    """
    return [each.visits + in_flight.count(index) for index, each in enumerate(frontiers)]


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
