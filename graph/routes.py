"""Who goes next: the routes between nodes, and whether there is room for another step.

A route reads the state and names the next edge. It reads from the state what is in flight, so every
execution takes the same route.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from langgraph.graph import END

from costada.controller.credit import remaining
from costada.controller.step import max_in_flight, stop_reason
from costada.nodes.charge_ledger import spent_by_ledger
from costada.nodes.context import RunContext, balance_of, budget_of, extension_of
from costada.nodes.state import SearchState, has_current_step, needs_guide


@dataclass(frozen=True, slots=True)
class Branch:
    """Who may go next after a node.

    Attributes:
        route: Names the next edge.
        ends: The node at the end of each edge.
    """

    route: Callable[[SearchState, RunContext], str]
    ends: Mapping[str, str]

    def follow(self, state: SearchState, context: RunContext) -> str:
        """The name of the next node."""
        return self.ends[self.route(state, context)]


def after_allocation(
    state: SearchState, context: RunContext
) -> Literal["approval", "preparation", "attempt", "landing", "stop"]:
    """`"preparation"` when a call is bought before the step begins; the caller may approve it.

    No step has begun in a run that stops, as its target is reached.
    """
    if state["stop_reason"]:
        return "stop"
    if state["stopping"]:
        return "landing"
    if not needs_guide(state):
        return "attempt"
    return "approval" if context.settings.approve_guides else "preparation"


def after_context(
    state: SearchState, context: RunContext
) -> Literal["proposal", "choice", "submission"]:
    """`"choice"` when a router chooses the model; a program of a user needs none."""
    if state["step"].is_submission:
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
    is_last = made >= context.constants.max_attempts
    is_failing = state["failures"] + made >= settings.max_failures
    is_out_of_money = attempt.is_out_of_money or attempt.is_cut_short
    is_over = is_last or is_failing or is_out_of_money or state["stopping"] or step.is_submission
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
    has_iterations = state["iterations"] < context.constants.max_iterations
    asks = is_out_of_money and has_iterations and context.settings.on_exhausted == "interrupt"
    return "question" if asks else next_step(state, context)


AFTER_GATE = Branch(
    after_gate,
    {
        "next step": "allocate_frontier",
        "landing": "evaluate",
        "intervention": "guide",
        "approval": "approve_guide",
        "question": "ask_for_budget",
        "stop": END,
    },
)
"""Who may go next at the end of a step, which is also where a run continues that has stopped."""

AFTER_CALL = {"next step": "allocate_frontier", "landing": "evaluate"}
"""Where a run continues once a guide was bought, or launched."""


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


def can_launch(state: SearchState, context: RunContext) -> bool:
    """Whether another step may be launched beside those in flight.

    No more than `max_in_flight`, nor than the iterations left. Where nothing is in flight, the
    reasons to stop have been looked at already.
    """
    tickets = state["flight"].tickets
    if not tickets:
        return True
    most = max_in_flight(
        context.parallel,
        context.settings.gains_in_flight,
        balance_of(state, context),
        state["account"].spent_at_gain,
        state["controller"].iteration,
    )
    if state["stopping"] or needs_guide(state) or len(tickets) >= most:
        return False
    return has_room(state, context)


def has_room(state: SearchState, context: RunContext) -> bool:
    """Whether iterations and money are left for one more step beside those in flight.

    Not while one of them waits for money.
    """
    flight = state["flight"]
    if flight.is_waiting_for_funds:
        return False
    begun = state["controller"].iteration + len(flight.tickets)
    return begun < context.constants.max_iterations and is_within_budget(state, context)


def is_within_budget(state: SearchState, context: RunContext) -> bool:
    """Whether the budget has room for one more step beside those in flight.

    What is spent counts, what the calls in flight are expected to cost, and one more step at the
    average cost of those that have landed.
    """
    spent, iterations = state.get("spent", 0.0), state["controller"].iteration
    another = spent / iterations if iterations else 0.0
    return spent + state["flight"].expected + another < budget_of(state, context)


def can_repeat(state: SearchState, context: RunContext) -> bool:
    """Whether the budget has room for a further attempt of the step that has landed.

    A run with one step in flight completes its step whatever it costs; several steps in flight
    would cross the budget by all their attempts.
    """
    so_far = state.get("spent", 0.0) + state["step"].cost + state["flight"].expected
    return context.parallel == 1 or so_far < budget_of(state, context)


def can_resume(
    state: SearchState, budget: float, max_iterations: int, target: float | None = None
) -> bool:
    """Whether a stopped run has something left to do.

    It has when its budget or iteration limit was raised, and after too many failures, whose cause
    may have passed. A run that stopped for want of gains needs a higher budget, one that reached
    its target another target.

    Args:
        state: The state of the stopped run.
        budget: Dollars that it may spend now (B).
        max_iterations: Iterations that it may make now (T_max).
        target: The score at which it stops now.
    """
    if stop_reason(budget, state["spent"], state["iterations"], max_iterations):
        return False
    if state["stop_reason"] in ("budget", "flat"):
        return remaining(budget, state["spent"]) > state["remaining"]
    if state["stop_reason"] == "target":
        return target != state["account"].reached
    return True


def can_continue(state: SearchState, context: RunContext) -> bool:
    """Whether a run that stops, or has stopped, has something left to do in this graph."""
    reason = state.get("stop_reason") or state.get("stopping")
    if not reason:
        return False
    budget = max(context.budget, extension_of(state, context))
    state = {**state, "spent": spent_by_ledger(state, context.store)}
    if context.purse and reason == "budget":
        # The purse may not have the whole budget.
        budget = min(budget, state["spent"] + max(0.0, float(context.purse.remaining)))
    stopped: SearchState = {**state, "stop_reason": reason}
    limits = context.constants.max_iterations, context.settings.target
    return can_resume(stopped, budget, *limits)
