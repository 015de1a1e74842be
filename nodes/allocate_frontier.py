"""Node: choose the frontier, the action and the intensity of the next step."""

from costada.controller.allocation import Allocation
from costada.controller.intensity import Action
from costada.controller.step import ask_step
from costada.nodes.calls.purse import drawn
from costada.nodes.context import RunContext, balance_of
from costada.nodes.open_run import opened
from costada.nodes.state import SearchState, StepRecord


def allocate_frontier(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the step that begins (k_t, a_t, I_t, Sec. 4.3).

    Opens a run when none is under way: at the first step, and when a thread whose run is over
    gets a new input; an input to a thread whose run is under way goes on with that. Where the
    method buys a call before its first step, that step begins when the call has been made.
    """
    is_under_way = "run_id" in state and not state["stop_reason"]
    opening = drawn(state["run_id"], context) if is_under_way else opened(state, context)
    current = SearchState(**{**state, **opening})
    controller = current["controller"]
    if controller.pending:
        return opening
    balance = balance_of(current, context)
    allocation = ask_step(controller, balance, current["run_seed"], context.constants)
    iteration = controller.iteration + 1
    return SearchState(**{**opening, "iteration": iteration, "step": _new_step(allocation)})


def allocation_of(step: StepRecord) -> Allocation:
    """Return what the controller chose for a step."""
    return Allocation(step["frontier"], Action(step["action"]), step["intensity"])


def _new_step(allocation: Allocation) -> StepRecord:
    return StepRecord(
        frontier=allocation.frontier,
        action=allocation.action.value,
        intensity=allocation.intensity,
        attempt=0,
        parent="",
        prompt="",
        prompt_data="",
        program="",
        changes="",
        candidate="",
        failure="",
        score=None,
        objective=None,
        cost=0.0,
        guide_calls=0,
        inspirations=[],
        label="",
        failed=[],
        is_credited=False,
        is_out_of_money=False,
        requests=0,
        is_cut_short=False,
    )
