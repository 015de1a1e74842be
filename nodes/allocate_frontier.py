"""Node: choose the frontier, the action and the intensity of the next step."""

from costada.controller.allocation import Allocation
from costada.controller.intensity import Action
from costada.controller.step import ask_step
from costada.nodes.calls.purse import draw_budget
from costada.nodes.context import RunContext, balance_of
from costada.nodes.open_run import open_run
from costada.nodes.state import SearchState, StepRecord


def allocate_frontier(state: SearchState, *, context: RunContext) -> SearchState:
    """Begin a step: its frontier, action and intensity (k_t, a_t, I_t, Sec. 4.3).

    Opens a run at the first step, and when a thread whose run is over gets a new input. Where the
    method buys a call before its first step, that step begins when the call has been made.
    """
    is_running = "run_id" in state and not state["stop_reason"]
    opening = draw_budget(state["run_id"], context) if is_running else open_run(state, context)
    current = SearchState(**{**state, **opening})
    controller, balance = current["controller"], balance_of(current, context)
    if controller.pending:
        return opening
    allocation = ask_step(controller, balance, current["run_seed"], context.constants)
    iteration = controller.iteration + 1
    return SearchState(**{**opening, "iteration": iteration, "step": _new_step(allocation)})


def allocation_of(step: StepRecord) -> Allocation:
    """What the controller chose for a step."""
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
