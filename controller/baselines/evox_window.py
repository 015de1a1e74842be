"""When EvoX evolves its strategy, and what a strategy's time at work is worth."""

from math import floor, log1p, sqrt

from costada.controller.constants import Constants

IMPROVEMENT_THRESHOLD = 0.01
"""Rise of the best score within one iteration that counts as progress."""

SWITCH_SHARE = 0.1
"""Part of all iterations that may pass without progress before the strategy is replaced."""


def switch_interval(constants: Constants) -> int:
    """Return the stagnant iterations after which the strategy evolves, at least 1 (s)."""
    return max(1, floor(SWITCH_SHARE * constants.max_iterations))


def strategy_stagnation(previous: int, last_score: float | None, score: float) -> int:
    """Return the iterations in a row that raised the best score by the threshold or less.

    Args:
        previous: The count before this iteration.
        last_score: Best score after the iteration before; None after the first one.
        score: Best score after this iteration.
    """
    if last_score is None or score - last_score > IMPROVEMENT_THRESHOLD:
        return 0
    return previous + 1


def window_score(start: float, end: float, horizon: int) -> float:
    """Return what a strategy is worth, at least 0 (J).

    Args:
        start: Best score when the strategy came into use.
        end: Best score since; one below the start counts as the start.
        horizon: The switch interval, however long the window was (s).
    """
    rise = max(start, end) - start
    return rise * (1.0 + log1p(max(0.0, start))) / sqrt(horizon)
