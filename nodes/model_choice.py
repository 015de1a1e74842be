"""The model of each attempt in a run with several: its choice, and what its router learns."""

import logging
from decimal import Decimal

from costada.controller.router import Money, Offer, attempt_price
from costada.controller.step import draws
from costada.models.asking import ModelFailure
from costada.nodes.calls.asking import ModelUnavailable
from costada.nodes.calls.budget import minimal_bound
from costada.nodes.context import (
    PricedModel,
    RunContext,
    budget_of,
    candidate_of,
    models_left,
)
from costada.nodes.state import SearchState, StepRecord
from costada.prompts.render import Prompt

_LOG = logging.getLogger("costada.money")


def check_menu(state: SearchState, context: RunContext) -> None:
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


def refused(step: StepRecord, failure: ModelFailure, context: RunContext) -> StepRecord:
    """The step whose attempt its model did not make, so that another is to make it."""
    reason = context.store.put_text(failure.reason)
    return StepRecord(
        **{
            **step,
            "failure": reason,
            "is_refused": True,
            "refused": [*step["refused"], step["models"][-1]],
            "refusal": reason if isinstance(failure, ModelUnavailable) else "",
        }
    )


def choose_model(
    step: StepRecord, prompt: Prompt, state: SearchState, context: RunContext
) -> StepRecord:
    """The step with the model of its next attempt, or out of money where none can be paid for.

    The choice depends on the state and on calls that have ended, so it is the same on every
    execution. Money that is expected in flight is not left.
    """
    attempt, left = step["attempt"], money_for_attempt(step, state, context)
    steps = [ticket["step"] for ticket in state["tickets"] if ticket["step"]]
    in_flight = [each["models"][-1] for each in steps if each["models"]]
    is_hard = context.settings.budget_policy == "hard"
    offers = [
        Offer(
            each.name,
            each.expected,
            launched=in_flight.count(each.name),
            is_payable=each.name not in step["refused"]
            and (not is_hard or minimal_bound(each, prompt) <= left),
        )
        for each in context.menu
    ]
    rng = draws(state["run_seed"], step["number"], f"model of attempt {attempt}")
    money = Money(budget_of(state, context), float(left))
    name = state["router"].choose(offers, money, attempt, rng)
    step = StepRecord(**{**step, "failure": "", "is_refused": False, "refusal": ""})
    if name is not None:
        return StepRecord(**{**step, "models": [*step["models"][: attempt - 1], name]})
    reason = f"not asked: no model of the menu can answer for the ${left:.6f} that are left"
    failure = context.store.put_text(reason)
    made = step["models"][: attempt - 1]
    return StepRecord(**{**step, "models": made, "failure": failure, "is_out_of_money": True})


def money_for_attempt(step: StepRecord, state: SearchState, context: RunContext) -> Decimal:
    """Dollars that are neither spent, by this step so far too, nor expected in flight."""
    counts_lost = context.settings.lost_calls == "count"
    so_far = context.store.call_log.cost_before(
        state["run_id"], step["number"], step["first_call"], counts_lost=counts_lost
    )
    expected = sum(Decimal(str(ticket["expected"])) for ticket in state["tickets"])
    spent = Decimal(str(state.get("spent", 0.0)))
    return Decimal(str(budget_of(state, context))) - spent - so_far - expected


def expected_price(asked: PricedModel, state: SearchState) -> float:
    """Dollars that an attempt of a model is expected to cost, by list price and experience."""
    record = next(each for each in state["router"].records if each.name == asked.name)
    return attempt_price(record, Offer(asked.name, asked.expected))


def tell_router(state: SearchState, context: RunContext) -> SearchState:
    """The router, and the step, after the current attempt, which has a score or has failed.

    It learns the dollars of exactly that attempt's calls. An attempt without a call teaches it
    nothing, and one that its model refused is no try. The last model that is left is not disabled:
    it is asked again, and its refusal ends the run.
    """
    step, router = state["step"], state["router"]
    name, made = step["models"][-1], step["requests"] or step["attempt"]
    calls = range(step["first_call"], max(made, step["first_call"]) + 1)
    counts_lost = context.settings.lost_calls == "count"
    cost = context.store.call_log.attempt_cost(
        state["run_id"], step["number"], calls, name, counts_lost=counts_lost
    )
    if cost is not None and step["is_refused"]:
        router = router.charge(name, float(cost))
    elif cost is not None:
        router = router.tell(
            name,
            None if step["failure"] else step["score"],
            candidate_of(step["parent"], state, context).score,
            float(cost),
            has_reference=context.problem.reference is not None,
        )
    left = {each.name for each in models_left(state, context)}
    if not step["refusal"] or name not in left:
        return SearchState(router=router)
    if left == {name}:
        others = [each for each in step["refused"] if each != name]
        return SearchState(router=router, step=StepRecord(**{**step, "refused": others}))
    reason = context.store.text(step["refusal"])
    _LOG.warning("Model %s is disabled for the rest of the run: %s", name, reason)
    step = StepRecord(**{**step, "disabled": [*step["disabled"], name]})
    return SearchState(router=router.disable(name), step=step)
