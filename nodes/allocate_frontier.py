"""Node: choose the frontier, the action and the intensity of the next step."""

from dataclasses import replace

from costada.controller.step import ask_step
from costada.nodes.calls.budget import draw_budget
from costada.nodes.context import RunContext, SearchRuntime, balance_of, next_ticket
from costada.nodes.open_run import open_run
from costada.nodes.state import SearchState, Step, needs_guide
from costada.values.numbering import START_TICKET, next_iteration


def allocate_frontier(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Begin a step: its frontier, action and intensity (k_t, a_t, I_t, Sec. 4.3).

    Opens a run at the first step, and when a thread whose run is over gets a new input. Where the
    method buys a call before its first step, that step begins when the call has been made. Steps in
    flight count as visits. The step that a guide was bought for has the number of its ticket.

    Raises:
        ValueError: The run did not begin with the models and the router of this graph; or as
            `open_run` does.
    """
    context = runtime.context
    is_running = "run" in state and not state["stop_reason"]
    if is_running:
        _check_menu(state, context)
        opening: SearchState = {}
        # An execution that was aborted has returned what was left to the purse: drawn again here.
        if (granted := draw_budget(state["run"].id, context)) is not None:
            opening["account"] = replace(state["account"], granted=granted)
    else:
        opening = open_run(state, context)
    current: SearchState = {**state, **opening}
    controller, balance = current["controller"], balance_of(current, context)
    if needs_guide(current):
        return opening
    flight = current["flight"]
    ticket = flight.guide_ticket or next_ticket(current)
    allocation = ask_step(
        controller,
        balance,
        current["run"].seed,
        context.constants,
        ticket=ticket,
        in_flight=[each.allocation for each in flight.steps],
    )
    flight = replace(
        flight,
        # the ticket of a guide may be older than others that were launched beside it
        last_ticket=max(flight.last_ticket, ticket),
        open_tickets=tuple(sorted({*flight.open_tickets, ticket})),
        guide_ticket=START_TICKET,
        parallel=context.parallel,
    )
    step = Step(ticket, allocation, next_iteration(controller.iteration))
    return {**opening, "flight": flight, "step": step}


def _check_menu(state: SearchState, context: RunContext) -> None:
    """Refuse to continue a run with another router, or other models than its router knows.

    Raises:
        ValueError: Naming the models, or the router, of the run and those of the graph.
    """
    router = state.get("router")
    known = [each.name for each in router.records] if router else []
    given = [each.name for each in context.menu] if context.has_choice else []
    if sorted(known) != sorted(given):
        raise ValueError(
            f"models: got {', '.join(given) or 'one'} for a run with"
            f" {', '.join(known) or 'one model'}, expected those it began with"
        )
    if known and router and router.rule != context.router:
        raise ValueError(
            f"router: got {context.router!r} for a run with {router.rule!r}, expected the one it"
            " began with"
        )
