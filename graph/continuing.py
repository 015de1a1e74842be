"""Whether a run that has stopped has something left to do."""

from costada.controller.money import remaining
from costada.controller.step import stop_reason
from costada.nodes.context import RunContext, extension_of
from costada.nodes.state import SearchState


def can_resume(state: SearchState, budget: float, max_iterations: int) -> bool:
    """Whether a stopped run has something left to do.

    It has when its budget or iteration limit was raised, and after too many failures, whose cause
    may have passed. A run that stopped for want of gains needs a higher budget.

    Args:
        state: The state of the stopped run.
        budget: Dollars that it may spend now (B).
        max_iterations: Iterations that it may make now (T_max).
    """
    if stop_reason(budget, state["spent"], state["iterations"], max_iterations):
        return False
    if state["stop_reason"] in ("budget", "flat"):
        return remaining(budget, state["spent"]) > state["remaining"]
    return True


def can_continue(state: SearchState, context: RunContext) -> bool:
    """Whether a run that stops, or has stopped, has something left to do in this graph."""
    reason = state.get("stop_reason") or state.get("stopping")
    if not reason:
        return False
    budget = max(context.budget, extension_of(state, context))
    if context.purse and reason == "budget":
        # The purse may not have the whole budget.
        budget = min(budget, state["spent"] + max(0.0, float(context.purse.remaining)))
    return can_resume({**state, "stop_reason": reason}, budget, context.constants.max_iterations)
