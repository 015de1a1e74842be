"""Node: choose the frontier, the action and the intensity of the next step."""

from costada.controller.allocation import Allocation
from costada.controller.step import ask_step
from costada.nodes.calls.purse import draw_budget
from costada.nodes.context import RunContext, balance_of
from costada.nodes.model_choice import check_menu
from costada.nodes.open_run import open_run
from costada.nodes.parallel.tickets import allocations_in_flight, needs_guide
from costada.nodes.state import SearchState, StepRecord
from costada.values.numbering import START_TICKET, TicketNumber, next_iteration


def allocate_frontier(state: SearchState, *, context: RunContext) -> SearchState:
    """Begin a step: its frontier, action and intensity (k_t, a_t, I_t, Sec. 4.3).

    Opens a run at the first step, and when a thread whose run is over gets a new input. Where the
    method buys a call before its first step, that step begins when the call has been made. Steps in
    flight count as visits. The step that a guide was bought for has the number of its ticket.

    Raises:
        ValueError: The run did not begin with the models and the router of this graph; or as
            `open_run` does.
    """
    is_running = "run_id" in state and not state["stop_reason"]
    if is_running:
        check_menu(state, context)
    opening = draw_budget(state["run_id"], context) if is_running else open_run(state, context)
    current = SearchState(**{**state, **opening})
    controller, balance = current["controller"], balance_of(current, context)
    if needs_guide(current):
        return opening
    number = current["prepared"] or TicketNumber(current["launched"] + 1)
    allocation = ask_step(
        controller,
        balance,
        current["run_seed"],
        context.constants,
        ticket=number,
        in_flight=allocations_in_flight(current),
    )
    begun = SearchState(
        iteration=next_iteration(controller.iteration),
        launched=max(current["launched"], number),
        open=sorted({*current["open"], number}),
        prepared=START_TICKET,
        parallel=context.parallel,
        step=_new_step(number, allocation),
    )
    return SearchState(**{**opening, **begun})


def _new_step(number: TicketNumber, allocation: Allocation) -> StepRecord:
    return StepRecord(
        number=number,
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
        models=[],
        first_call=1,
        is_refused=False,
        refused=[],
        refusal="",
        disabled=[],
        failed=[],
        is_guided=False,
        is_launched=False,
        is_credited=False,
        is_out_of_money=False,
        requests=0,
        is_cut_short=False,
    )
