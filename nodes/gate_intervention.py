"""Node: end the step, decide whether the next one buys a guide, and whether there is a next one."""

from langgraph.types import StreamWriter

from costada.controller.contract import stop_reason
from costada.graph.state import SearchState
from costada.nodes.allocate_frontier import allocation_of
from costada.nodes.context import RunContext, controller_of
from costada.nodes.trace import trace_row


def gate_intervention(
    state: SearchState, writer: StreamWriter, *, context: RunContext
) -> SearchState:
    """Return the controller after the step's end (B.4), and the results when the run stops.

    The finished step's trace row goes into the store and to the custom stream. A step that still
    buys a call for itself is not finished.
    """
    before = controller_of(state, context)
    controller, decided = before.intervene(allocation_of(state["step"]))
    if controller.iteration < state["iteration"]:
        return SearchState(controller=controller.record())
    best = context.store.candidates.get(state["run_id"], state["best"])
    row = trace_row(state, controller, decided, best, context)
    context.store.put_step(state["run_id"], state["iteration"], row)
    writer(row)
    max_iterations = context.settings.constants.max_iterations
    reason = stop_reason(context.budget, state["spent"], controller.iteration, max_iterations)
    after = controller.record()
    results = SearchState(
        controller=after if reason is None else {**after, "pending": None},
        iterations=state["iteration"],
        best_score=best.score,
        best_objective=best.objective,
        best_metrics=dict(best.metrics),
    )
    if reason is None:
        return results
    return SearchState(**results, best_program=best.code, stop_reason=reason)
