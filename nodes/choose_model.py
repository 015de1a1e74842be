"""Node: choose the model of the next attempt, in a run with several."""

from dataclasses import replace
from decimal import Decimal

from costada.controller.router import ModelOption, Money
from costada.controller.step import draws
from costada.nodes.attempts import load_prompt
from costada.nodes.calls.budget import minimal_bound
from costada.nodes.context import RunContext, SearchRuntime, budget_of
from costada.nodes.state import SearchState, Step


def choose_model(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Give the attempt a model; it is out of money where none can be paid for.

    The choice depends on the state and on calls that have ended, so it is the same on every
    execution. Money that is expected in flight is not left.
    """
    context, step, prompt = runtime.context, state["step"], load_prompt(state, runtime.context)
    attempt, left = step.attempt, money_for_attempt(step, state, context)
    in_flight = [model for each in state["flight"].steps for model in each.models[-1:]]
    is_hard = context.settings.budget_policy == "hard"
    options = [
        ModelOption(
            each.name,
            each.expected,
            launched=in_flight.count(each.name),
            is_payable=each.name not in step.refused
            and (not is_hard or minimal_bound(each, prompt) <= left),
        )
        for each in context.menu
    ]
    rng = draws(state["run"].seed, step.ticket, f"model of attempt {attempt.number}")
    money = Money(budget_of(state, context), float(left))
    name = state["router"].choose(options, money, attempt.number, rng)
    attempt = replace(attempt, model=name or "", failure="", is_refused=False, refusal="")
    if name is not None:
        return {"step": replace(step, attempt=attempt)}
    reason = f"not asked: no model of the menu can answer for the ${left:.6f} that are left"
    failure = context.store.put_text(reason)
    attempt = replace(attempt, failure=failure, is_out_of_money=True)
    return {"step": replace(step, attempt=attempt)}


def money_for_attempt(step: Step, state: SearchState, context: RunContext) -> Decimal:
    """Dollars that are neither spent, by this step so far too, nor expected in flight."""
    counts_lost = context.settings.lost_calls == "count"
    so_far = context.store.call_log.cost_before(
        state["run"].id, step.ticket, step.attempt.first_call, counts_lost=counts_lost
    )
    expected = sum(Decimal(str(ticket.expected)) for ticket in state["flight"].tickets)
    spent = Decimal(str(state.get("spent", 0.0)))
    return Decimal(str(budget_of(state, context))) - spent - so_far - expected
