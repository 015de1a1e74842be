"""Who goes next: questions about the state, each with a named answer."""

from typing import Literal

from costada.controller.constants import Constants
from costada.graph.state import SearchState


def after_allocation(state: SearchState) -> Literal["preparation", "attempt"]:
    """Return `"preparation"` when a call is bought before the first step of a run."""
    return "preparation" if state["controller"]["pending"] else "attempt"


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


def after_guide(state: SearchState) -> Literal["next step", "settle"]:
    """Return `"settle"` when the call belongs to a step that has not ended yet."""
    is_ended = state["iteration"] == state["controller"]["iteration"]
    return "next step" if is_ended else "settle"
