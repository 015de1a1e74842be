"""Who goes next: questions about the state, each with a named answer."""

from typing import Literal

from costada.controller.constants import Constants
from costada.graph.state import SearchState


def after_evaluation(state: SearchState, *, constants: Constants) -> Literal["retry", "charge"]:
    """Return `"retry"` when the attempt failed and another one is allowed."""
    step = state["step"]
    can_retry = step["attempt"] < constants.max_attempts
    return "retry" if step["failure"] and can_retry else "charge"


def next_step(state: SearchState) -> Literal["stop", "intervention", "next step"]:
    """Return whether the run is over, buys a guide, or goes straight on."""
    if state["stop_reason"]:
        return "stop"
    return "intervention" if state["controller"]["pending"] else "next step"
