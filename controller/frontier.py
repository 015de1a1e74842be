"""What one frontier remembers, and the moving average behind both of its statistics."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costada.controller.constants import Constants


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


def visits_in_flight(frontiers: tuple[Frontier, ...], in_flight: Sequence[int]) -> list[int]:
    """The visits of each frontier, completed and in flight (n^(k), Sec. 4.3); N is their sum.

    Args:
        frontiers: Statistics of the completed steps.
        in_flight: The frontier of each step that was launched and has not landed.
    """
    return [each.visits + in_flight.count(index) for index, each in enumerate(frontiers)]


def with_frontier(
    frontiers: tuple[Frontier, ...], index: int, frontier: Frontier
) -> tuple[Frontier, ...]:
    """The frontiers with one replaced; the others stay the same objects."""
    return (*frontiers[:index], frontier, *frontiers[index + 1 :])
