"""The moving averages behind CostAda's decisions, step by step.

A run file keeps what each step earned, and the averages only as of its last checkpoint. They follow
from what was earned by the controller's own rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.frontier import Frontier, visited
from costada.controller.methods import METHODS


class Averages:
    """Follows the frontiers of a run through its steps."""

    def __init__(self, method: str) -> None:
        """Begin before the first step; methods with averages of their own kind have none here."""
        self._is_known = METHODS[method].kind is CostAda
        self._constants = METHODS[method].adjusted(Constants())
        self._frontiers: dict[int, Frontier] = {}

    def after(self, step: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Return both averages of a step's frontier at its end (H and R, Sec. 4.2 and 4.3).

        To be called with each step once, in order. Both are ratios, at least 0, or `None` for a
        method that does not go by them.
        """
        if not self._is_known:
            return None, None
        number = step["frontier"]
        now = visited(
            self._frontiers.get(number, Frontier(best_score=0.0)),
            step["score"],
            step["utility"],
            step["allocation_reward"],
            self._constants,
        )
        self._frontiers[number] = now
        return now.smoothed_utility, now.allocation_estimate
