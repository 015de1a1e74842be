"""When a run under way will end, if it goes on as it did so far."""

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is left of a run: iterations, and the seconds they will take."""

    iterations: int
    seconds: float


def outlook(
    budget: float,
    spent: float,
    iteration: int,
    max_iterations: int,
    seconds_per_iteration: float,
) -> Outlook:
    """Return what is left of a run at the mean step cost and the mean pace so far.

    Args:
        budget: Dollars the run may spend (B).
        spent: Dollars it has spent (C_t).
        iteration: Iterations finished (t), at least 1.
        max_iterations: Iterations after which it ends (T_max).
        seconds_per_iteration: How long one took on average.
    """
    mean_cost, left = spent / iteration, max_iterations - iteration
    if mean_cost > 0:
        left = min(left, ceil((budget - spent) / mean_cost))
    left = max(0, left)
    return Outlook(left, left * seconds_per_iteration)
