"""Whether another step, or a guide, may be launched beside those in flight."""

from costada.nodes.context import RunContext, budget_of
from costada.nodes.state import SearchState


def needs_guide(state: SearchState) -> bool:
    """Whether a call was decided on that has not been launched yet."""
    is_in_flight = any(ticket.step is None for ticket in state["flight"].tickets)
    return bool(state["controller"].pending) and not is_in_flight


def can_launch(state: SearchState, context: RunContext) -> bool:
    """Whether another step may be launched beside those in flight.

    No more than `parallel`, nor than the iterations left. Where nothing is in flight, the reasons
    to stop have been looked at already.
    """
    tickets = state["flight"].tickets
    if not tickets:
        return True
    if state["stopping"] or needs_guide(state) or len(tickets) >= context.parallel:
        return False
    return has_room(state, context)


def has_room(state: SearchState, context: RunContext) -> bool:
    """Whether iterations and money are left for one more step beside those in flight.

    Not while one of them waits for money.
    """
    flight = state["flight"]
    if flight.awaits_money:
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
