"""The routes between nodes: each function reads the state and names the next edge.

They read from the state what is in flight, so every execution takes the same route.
"""

from typing import Literal

from costada.nodes.context import RunContext
from costada.nodes.parallel.launching import can_launch, can_repeat, has_room, needs_guide
from costada.nodes.state import SearchState, has_current_step
from costada.nodes.user_steps import is_submission


def after_allocation(
    state: SearchState, context: RunContext
) -> Literal["approval", "preparation", "attempt"]:
    """`"preparation"` when a call is bought before the step begins; the caller may approve it."""
    if not needs_guide(state):
        return "attempt"
    return "approval" if context.settings.approve_guides else "preparation"


def after_context(
    state: SearchState, context: RunContext
) -> Literal["proposal", "choice", "submission"]:
    """`"choice"` when a router chooses the model; a program of a user needs none."""
    if is_submission(state["step"]):
        return "submission"
    return "choice" if context.has_choice else "proposal"


def after_choice(state: SearchState, context: RunContext) -> Literal["proposal", "unaffordable"]:
    """`"unaffordable"` when no model can be paid for."""
    return "unaffordable" if state["step"].attempt.is_out_of_money else "proposal"


def after_generation(state: SearchState, context: RunContext) -> Literal["another", "landing"]:
    """`"another"` when one more step may be launched beside those in flight."""
    return "another" if state["flight"].tickets and can_launch(state, context) else "landing"


def after_evaluation(state: SearchState, context: RunContext) -> str:
    """`"retry"` when the attempt failed and another one is allowed, and can be paid for.

    An attempt that its model refused is not a failed one: another model may make it. A program that
    a user submitted is evaluated once. `"prepared"` when a guide has landed, whose step begins now.
    `"no step"` when no money was left for the one that has landed. A method
    with nodes of its own is named where the step would be charged.
    """
    if not has_current_step(state):
        if not state["flight"].guide_ticket:
            return "no step"
        return "charge" if state["stopping"] else "prepared"
    step, attempt, settings = state["step"], state["step"].attempt, context.settings
    made = attempt.number - attempt.is_refused
    is_last = made >= settings.constants.max_attempts
    is_failing = state["failures"] + made >= settings.max_failures
    is_out_of_money = attempt.is_out_of_money or attempt.is_cut_short
    is_over = is_last or is_failing or is_out_of_money or state["stopping"] or is_submission(step)
    if is_over or not attempt.failure or not can_repeat(state, context):
        return context.method.name if context.method.inner else "charge"
    return "other model" if attempt.is_refused else "retry"


NextStep = Literal["stop", "approval", "intervention", "next step", "landing"]


def next_step(state: SearchState, context: RunContext) -> NextStep:
    """Whether the run is over, buys a guide, takes its next step, or lands one in flight.

    A caller is asked about a guide when nothing is in flight. A guide waits while the money in
    flight leaves no room for it.
    """
    asks = context.settings.approve_guides
    if state["stop_reason"]:
        return "stop"
    if state["stopping"]:
        return "landing"
    if needs_guide(state):
        if not state["flight"].tickets or (has_room(state, context) and not asks):
            return "approval" if asks else "intervention"
        return "landing"
    return "next step" if can_launch(state, context) else "landing"


def after_gate(state: SearchState, context: RunContext) -> NextStep | Literal["question"]:
    """`"question"` when the caller may grant more budget to continue, otherwise as `next_step`."""
    is_out_of_money = state["stop_reason"] == "budget"
    can_continue = is_out_of_money and state["iterations"] < context.constants.max_iterations
    asks = can_continue and context.settings.on_exhausted == "interrupt"
    return "question" if asks else next_step(state, context)


def after_answer(state: SearchState, context: RunContext) -> NextStep | Literal["question"]:
    """`"question"` when the answer was refused, otherwise as `next_step`."""
    return "question" if state["refused_answer"] else next_step(state, context)


def after_guide(state: SearchState, context: RunContext) -> Literal["next step", "landing"]:
    """After a launch, `"landing"` when no other step may be launched beside the guide."""
    return "next step" if can_launch(state, context) else "landing"


def after_approval(
    state: SearchState, context: RunContext
) -> Literal["question", "buy", "next step", "landing"]:
    """`"buy"` when the guide was approved, otherwise as `after_guide` without one."""
    if state["refused_answer"]:
        return "question"
    return "buy" if state["controller"].pending else after_guide(state, context)
