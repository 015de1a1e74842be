"""The routes between nodes: each function reads the state and names the next edge.

They read from the state what is in flight, so every execution takes the same route.
"""

from typing import Literal

from costada.nodes.context import RunContext
from costada.nodes.parallel.tickets import can_launch, can_repeat, has_room, needs_guide
from costada.nodes.state import SearchState
from costada.nodes.steering import is_submission


def after_allocation(state: SearchState) -> Literal["preparation", "attempt"]:
    """`"preparation"` when a call is bought before the step begins."""
    return "preparation" if needs_guide(state) else "attempt"


def after_generation(state: SearchState, *, context: RunContext) -> Literal["another", "landing"]:
    """`"another"` when one more step may be launched beside those in flight.

    A step that no model can be paid for is not in flight and ends first.
    """
    if state["step"]["is_out_of_money"]:
        return "landing"
    return "another" if state["tickets"] and can_launch(state, context) else "landing"


def after_evaluation(
    state: SearchState, *, context: RunContext
) -> Literal["retry", "charge", "prepared", "no step"]:
    """`"retry"` when the attempt failed and another one is allowed, and can be paid for.

    An attempt that its model did not make is no failed one: another model may make it. A program
    that a user submitted is judged once. `"prepared"`
    when a guide has landed, whose step begins now. `"no step"` when no money was left for the one
    that has landed.
    """
    if state["iteration"] == state["controller"].iteration:
        if not state["prepared"]:
            return "no step"
        return "charge" if state["stopping"] else "prepared"
    step, settings = state["step"], context.settings
    made = step["attempt"] - step["is_refused"]
    is_last = made >= settings.constants.max_attempts
    is_failing = state["failures"] + made >= settings.max_failures
    is_out_of_money = step["is_out_of_money"] or step["is_cut_short"]
    is_over = is_last or is_failing or is_out_of_money or state["stopping"] or is_submission(step)
    can_retry = not is_over and can_repeat(state, context)
    return "retry" if step["failure"] and can_retry else "charge"


def next_step(
    state: SearchState, *, context: RunContext
) -> Literal["stop", "intervention", "next step", "landing"]:
    """Whether the run is over, buys a guide, takes its next step, or lands one in flight.

    A step that still buys a call for itself comes first, as only one step is current at a time.
    A caller is asked about any other guide when nothing is in flight. A guide waits while the money
    in flight leaves no room for it.
    """
    if state["stop_reason"]:
        return "stop"
    if state["iteration"] > state["controller"].iteration:
        return "intervention"
    if state["stopping"]:
        return "landing"
    if needs_guide(state):
        is_free = has_room(state, context) and not context.settings.approve_guides
        return "intervention" if is_free or not state["tickets"] else "landing"
    return "next step" if can_launch(state, context) else "landing"


def step_or_question(
    state: SearchState, *, context: RunContext
) -> Literal["stop", "question", "intervention", "next step", "landing"]:
    """`"question"` when the run could continue with more budget, otherwise as `next_step`."""
    is_out_of_money = state["stop_reason"] == "budget"
    can_continue = is_out_of_money and state["iterations"] < context.constants.max_iterations
    return "question" if can_continue else next_step(state, context=context)


def after_answer(
    state: SearchState, *, context: RunContext
) -> Literal["stop", "question", "intervention", "next step", "landing"]:
    """`"question"` when the answer was refused, otherwise as `next_step`."""
    return "question" if state["refused_answer"] else next_step(state, context=context)


def after_guide(
    state: SearchState, *, context: RunContext
) -> Literal["next step", "settle", "landing"]:
    """`"settle"` when the call belongs to a step that has not ended yet.

    After a launch, `"landing"` when no other step may be launched beside the guide.
    """
    if state["iteration"] != state["controller"].iteration:
        return "settle"
    return "next step" if can_launch(state, context) else "landing"


def after_approval(
    state: SearchState, *, context: RunContext
) -> Literal["question", "buy", "next step", "settle", "landing"]:
    """`"buy"` when the guide was approved, otherwise as `after_guide` without one."""
    if state["refused_answer"]:
        return "question"
    return "buy" if state["controller"].pending else after_guide(state, context=context)
