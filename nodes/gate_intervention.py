"""Node: let the controller intervene, and end the step."""

from dataclasses import replace

from costada.controller.experiment import toss_guide, window
from costada.nodes.context import SearchRuntime, balance_of
from costada.nodes.state import SearchState, has_current_step
from costada.nodes.step_end import end_run, end_step, why_it_stops


def gate_intervention(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Let the controller intervene (B.4), and end the step.

    A run that stops waits for its calls in flight. A guide among them is charged, but makes no
    iteration.
    """
    context = runtime.context
    if not has_current_step(state):
        return end_run(state, context)
    stop = why_it_stops(state, context)
    step, balance = state["step"], balance_of(state, context)
    controller, decided = state["controller"].decide(
        step.allocation, balance, context.constants, is_last=bool(stop)
    )
    if context.settings.experiment == "guides":
        flight, seed = state["flight"], state["run"].seed
        num_steps = window(context.constants, flight.parallel)
        controller, decided, toss = toss_guide(
            controller, decided, seed, flight.last_ticket, flight.toss, num_steps
        )
        state = {**state, "flight": replace(flight, toss=toss)}
    return end_step(state, controller, decided, stop, runtime)
