"""Node: end the step, decide whether the next one buys a guide, and whether there is a next one."""

from dataclasses import replace

from langgraph.types import StreamWriter

from costada.controller.algorithm import intervene, stop_reason
from costada.controller.state import from_record, to_record
from costada.graph.state import SearchState
from costada.nodes.allocate_frontier import allocation_of
from costada.nodes.context import RunContext
from costada.nodes.trace import trace_row


def gate_intervention(
    state: SearchState, writer: StreamWriter, *, context: RunContext
) -> SearchState:
    """Return the controller after the step's end (B.4), and the results when the run stops.

    The finished step's trace row goes into the store and to the custom stream.
    """
    constants, before = context.settings.constants, from_record(state["controller"])
    controller, decided = intervene(before, allocation_of(state["step"]), constants)
    best = context.store.candidates.get(state["run_id"], state["best"])
    row = trace_row(state, controller, decided, best, context)
    context.store.put_step(state["run_id"], state["iteration"], row)
    writer(row)
    reason = stop_reason(controller, constants)
    after = controller if reason is None else replace(controller, pending=None)
    results = SearchState(
        controller=to_record(after),
        iterations=state["iteration"],
        best_score=best.score,
        best_objective=best.objective,
        best_metrics=dict(best.metrics),
    )
    if reason is None:
        return results
    return SearchState(**results, best_program=best.code, stop_reason=reason)
