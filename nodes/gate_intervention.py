"""Node: end the step, decide whether the next one buys a guide, and whether there is a next one."""

from langgraph.types import StreamWriter

from costada.controller.step import stop_reason
from costada.nodes.allocate_frontier import allocation_of
from costada.nodes.calls.purse import settle
from costada.nodes.context import RunContext, balance_of, budget_of
from costada.nodes.end_step import trace_row
from costada.nodes.state import SearchState


def gate_intervention(
    state: SearchState, writer: StreamWriter, *, context: RunContext
) -> SearchState:
    """Return the controller after the step's end (B.4), and the results when the run stops.

    The finished step's trace row goes into the store and to the custom stream. A step that still
    buys a call for itself is not finished.
    """
    stop, balance = _stop(state, context), balance_of(state, context)
    allocation, constants = allocation_of(state["step"]), context.constants
    controller, decided = state["controller"].decide(
        allocation, balance, constants, is_last=bool(stop)
    )
    if controller.iteration < state["iteration"]:
        return SearchState(controller=controller)
    best = context.store.candidates.get(state["run_id"], state["best"])
    row = trace_row(state, controller, decided, best, context)
    context.store.put_step(state["run_id"], state["iteration"], row)
    writer(row)
    ended = SearchState(
        controller=controller,
        iterations=state["iteration"],
        best_score=best.score,
        best_objective=best.objective,
        best_metrics=dict(best.metrics),
        failures=_failures(state),
    )
    if not stop:
        return ended
    settle(state["run_id"], context)
    return SearchState(**{**ended, **stop, "best_program": best.code})


def _failures(state: SearchState) -> int:
    """Return how many attempts in a row yielded no usable program, up to the end of the step."""
    step = state["step"]
    made = step["attempt"] - step["is_out_of_money"]
    return state["failures"] + made if step["failure"] else 0


def _stop(state: SearchState, context: RunContext) -> SearchState:
    """Return why the run stops after this step, nothing if it continues.

    After too many failures the count begins anew, should the run be gone on with.
    """
    reason = stop_reason(
        budget_of(state, context),
        state["spent"],
        state["iteration"],
        context.settings.constants.max_iterations,
        is_out_of_money=state["step"]["is_out_of_money"],
        is_failing=_failures(state) >= context.settings.max_failures,
    )
    call_log, run_id = context.store.call_log, state["run_id"]
    if reason and call_log.num_requests(run_id) and not call_log.has_answer(run_id):
        failure = (
            f"no request was ever answered usably; the last one: {call_log.last_error(run_id)}"
        )
        return SearchState(stop_reason="failures", last_failure=failure, failures=0)
    if reason == "failures":
        failure = context.store.text(state["step"]["failure"])
        return SearchState(stop_reason=reason, last_failure=failure, failures=0)
    return SearchState() if reason is None else SearchState(stop_reason=reason)
