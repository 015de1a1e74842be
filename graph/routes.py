"""The routes between nodes: each function reads the state and names the next edge."""

from typing import Literal

from costada.controller.constants import Constants
from costada.nodes.settings import Settings
from costada.nodes.state import SearchState


def after_allocation(state: SearchState) -> Literal["preparation", "attempt"]:
    """`"preparation"` when a call is bought before the step begins."""
    return "preparation" if state["controller"].pending else "attempt"


def after_evaluation(state: SearchState, *, settings: Settings) -> Literal["retry", "charge"]:
    """`"retry"` when the attempt failed and another one is allowed, and can be paid for."""
    step = state["step"]
    is_last = step["attempt"] >= settings.constants.max_attempts
    is_failing = state["failures"] + step["attempt"] >= settings.max_failures
    is_out_of_money = step["is_out_of_money"] or step["is_cut_short"]
    can_retry = not (is_last or is_failing or is_out_of_money)
    return "retry" if step["failure"] and can_retry else "charge"


def next_step(state: SearchState) -> Literal["stop", "intervention", "next step"]:
    """Whether the run is over, buys a guide, or takes its next step."""
    if state["stop_reason"]:
        return "stop"
    return "intervention" if state["controller"].pending else "next step"


def step_or_question(
    state: SearchState, *, constants: Constants
) -> Literal["stop", "question", "intervention", "next step"]:
    """`"question"` when the run could continue with more budget, otherwise as `next_step`."""
    is_out_of_money = state["stop_reason"] == "budget"
    can_continue = is_out_of_money and state["iterations"] < constants.max_iterations
    return "question" if can_continue else next_step(state)


def after_answer(state: SearchState) -> Literal["stop", "question", "intervention", "next step"]:
    """`"question"` when the answer was refused, otherwise as `next_step`."""
    return "question" if state["refused_answer"] else next_step(state)


def after_guide(state: SearchState) -> Literal["next step", "settle"]:
    """`"settle"` when the call belongs to a step that has not ended yet."""
    is_ended = state["iteration"] == state["controller"].iteration
    return "next step" if is_ended else "settle"


def after_approval(state: SearchState) -> Literal["question", "buy", "next step", "settle"]:
    """`"buy"` when the guide was approved, otherwise as `after_guide` without one."""
    if state["refused_answer"]:
        return "question"
    return "buy" if state["controller"].pending else after_guide(state)
