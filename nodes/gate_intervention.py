"""Node: end the step, and decide whether the next one buys a guide."""

from langgraph.types import StreamWriter

from costada.nodes.context import RunContext, balance_of
from costada.nodes.end_step import end_run, end_step, why_it_stops
from costada.nodes.parallel.tickets import allocation_of
from costada.nodes.state import SearchState


def gate_intervention(
    state: SearchState, writer: StreamWriter, *, context: RunContext
) -> SearchState:
    """Let the controller intervene (B.4); end the step unless it still buys a call for itself.

    A run that stops waits for its calls in flight. A guide among them is charged and is no step.
    """
    if state["iteration"] == state["controller"].iteration:
        return end_run(state, context)
    stop = why_it_stops(state, context)
    allocation, balance = allocation_of(state["step"]), balance_of(state, context)
    controller, decided = state["controller"].decide(
        allocation, balance, context.constants, is_last=bool(stop)
    )
    if controller.iteration < state["iteration"]:
        return SearchState(controller=controller)
    return end_step(state, controller, decided, stop, writer, context)
