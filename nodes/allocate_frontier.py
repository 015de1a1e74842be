"""Node: choose the frontier, the action and the intensity of the next step."""

from dataclasses import replace

from costada.controller.allocation import Allocation
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.experiment import Toss, is_within, toss, toss_calibration, window
from costada.controller.step import TARGET, ask_step
from costada.nodes.calls.run_account import draw_budget
from costada.nodes.context import (
    RunContext,
    SearchRuntime,
    balance_of,
    has_reached_target,
    next_ticket,
)
from costada.nodes.open_run import open_run
from costada.nodes.state import SearchState, Step, needs_guide
from costada.nodes.step_end import end_run
from costada.values.numbering import START, START_TICKET, TicketNumber, next_iteration


def allocate_frontier(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Begin a step: its frontier, action and intensity (k_t, a_t, I_t, Sec. 4.3).

    Opens a run at the first step, and when a thread whose run is over gets a new input. Where the
    method buys a call before its first step, that step begins when the call has been made. Steps in
    flight count as visits. The step that a guide was bought for has the number of its ticket. None
    begins where the best program reaches the target already.

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
    if has_reached_target(current, context):
        iterations = current.get("iterations", START)
        stopping: SearchState = {**opening, "stopping": TARGET, "iterations": iterations}
        return {**stopping, **end_run({**current, **stopping}, context)}
    controller = current["controller"]
    if needs_guide(current):
        return opening
    flight = current["flight"]
    ticket = flight.guide_ticket or next_ticket(current)
    allocation, tossed = _allocate(current, ticket, context)
    flight = replace(
        flight,
        # the ticket of a guide may be older than others that were launched beside it
        last_ticket=max(flight.last_ticket, ticket),
        open_tickets=tuple(sorted({*flight.open_tickets, ticket})),
        guide_ticket=START_TICKET,
        parallel=context.parallel,
    )
    iteration = next_iteration(controller.iteration)
    step = Step(ticket, allocation, iteration, toss=tossed)
    return {**opening, "flight": flight, "step": step}


def _allocate(
    state: SearchState, ticket: TicketNumber, context: RunContext
) -> tuple[Allocation, Toss | None]:
    """What the controller chooses for a ticket, and the toss that its step belongs to."""
    controller, flight, run_seed = state["controller"], state["flight"], state["run"].seed
    balance = balance_of(state, context)

    def ask(constants: Constants) -> Allocation:
        launched = [each.allocation for each in flight.steps]
        return ask_step(controller, balance, run_seed, constants, ticket=ticket, in_flight=launched)

    match context.settings.experiment:
        case "calibration":
            if not (isinstance(controller, CostAda) and controller.undivided):
                raise ValueError(
                    "experiment: got 'calibration' for a run that began without it, expected the"
                    " settings it began with"
                )
            return toss_calibration(ask, context.constants, run_seed, ticket)
        case "router":
            return ask(context.constants), toss("router", run_seed, ticket)
        case "guides":
            last, num_steps = flight.toss, window(context.constants, context.parallel)
            return ask(context.constants), last if is_within(last, ticket, num_steps) else None
        case None:
            return ask(context.constants), None


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
