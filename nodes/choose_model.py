"""Node: choose the model of the next attempt, in a run with several; and what the router learns."""

import logging
from dataclasses import replace
from decimal import Decimal

from langchain_core.runnables import RunnableConfig

from costada.controller.arms import ModelOption, Money
from costada.controller.experiment import UNIFORM
from costada.controller.step import draws
from costada.nodes.attempts import load_prompt
from costada.nodes.calls.bounds import evaluation_bound, minimal_bound
from costada.nodes.context import (
    PayingNode,
    RunContext,
    SearchRuntime,
    budget_of,
    candidate_of,
    models_left,
)
from costada.nodes.state import SearchState, Step, has_current_step

_LOG = logging.getLogger("costada.money")


def choose_model(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Give the attempt a model; it is out of money where none can be paid for.

    The choice depends on the state and on calls that have ended, so it is the same on every
    execution. Money that is expected in flight is not left.
    """
    context, step, prompt = runtime.context, state["step"], load_prompt(state, runtime.context)
    attempt, left = step.attempt, money_for_attempt(step, state, context)
    for_call = left - evaluation_bound(context.problem, context.settings)
    in_flight = [model for each in state["flight"].steps for model in each.models[-1:]]
    options = [
        ModelOption(
            each.name,
            each.expected,
            launched=in_flight.count(each.name),
            is_payable=each.name not in step.refused
            and (not context.is_hard or minimal_bound(each.first, each.prices, prompt) <= for_call),
        )
        for each in context.menu
    ]
    rng = draws(state["run"].seed, step.ticket, f"model of attempt {attempt.number}")
    money = Money(budget_of(state, context), float(left))
    is_uniform = step.toss is not None and step.toss.arm == UNIFORM
    name = state["router"].choose(options, money, attempt.number, rng, is_uniform=is_uniform)
    attempt = replace(attempt, model=name or "", failure="", is_refused=False, refusal="")
    if name is not None:
        return {"step": replace(step, attempt=attempt)}
    reason = f"not asked: no model of the menu can answer for the ${left:.6f} that are left"
    failure = context.store.put_text(reason)
    attempt = replace(attempt, failure=failure, is_out_of_money=True)
    return {"step": replace(step, attempt=attempt)}


def money_for_attempt(step: Step, state: SearchState, context: RunContext) -> Decimal:
    """Dollars left of the budget, less the step's calls so far and what is expected in flight."""
    # Calls before this attempt only: after a crash the journal may hold calls of the attempt, and
    # the model must be the one that they were made to.
    so_far = context.store.ledger.cost_before(
        state["run"].id, step.ticket, step.attempt.first_call, counts_lost=context.counts_lost
    )
    expected = sum(Decimal(str(ticket.expected)) for ticket in state["flight"].tickets)
    spent = Decimal(str(state.get("spent", 0.0)))
    return Decimal(str(budget_of(state, context))) - spent - so_far - expected


def teach_router(evaluate: PayingNode) -> PayingNode:
    """Let the router learn from each scored attempt, in a run with several models.

    It learns nothing from an attempt that was not made because no model could be paid for, nor
    from a program that was there before the step.
    """

    def evaluate_and_tell(
        state: SearchState, runtime: SearchRuntime, config: RunnableConfig
    ) -> SearchState:
        context, update = runtime.context, evaluate(state, runtime, config)
        after: SearchState = {**state, **update}
        step = after["step"]
        if not context.has_choice or not has_current_step(after) or step.is_submission:
            return update
        if step.attempt.is_out_of_money and not step.is_unjudged:
            return update
        return {**update, **tell_router(after, context)}

    return evaluate_and_tell


def tell_router(state: SearchState, context: RunContext) -> SearchState:
    """Router and step after the current attempt, which has a score or has failed.

    It learns the dollars of exactly that attempt's calls, those that judged its programs included.
    An attempt without a call teaches it nothing, and one that its model refused, or that could not
    be judged, is not a try. The last model that is left is not disabled: it is asked again, and its
    refusal ends the run.
    """
    step, router = state["step"], state["router"]
    attempt = step.attempt
    name, first = attempt.model, attempt.first_call
    calls = range(first, max(step.num_requested, first) + 1)
    # Refused, it has no program: what the journal may hold judged that of the model asked next.
    cost = context.store.ledger.attempt_cost(
        state["run"].id,
        step.ticket,
        calls,
        name,
        counts_lost=context.counts_lost,
        has_judging=not attempt.is_refused,
    )
    if cost is not None and (attempt.is_refused or step.is_unjudged):
        router = router.charge(name, float(cost))
    elif cost is not None:
        router = router.tell(
            name,
            None if attempt.failure else attempt.score,
            candidate_of(attempt.parent, state, context).score,
            float(cost),
            has_reference=context.problem.reference is not None,
        )
    left = {each.name for each in models_left(state, context)}
    if not attempt.refusal or name not in left:
        return {"router": router}
    if left == {name}:
        others = tuple(each for each in step.refused if each != name)
        return {"router": router, "step": replace(step, refused=others)}
    reason = context.store.text(attempt.refusal)
    text = "Model %s is disabled for the rest of the run: %s"
    _LOG.warning(text, name, reason, extra={"ticket": step.ticket})
    step = replace(step, disabled=(*step.disabled, name))
    return {"router": router.disable(name), "step": step}
