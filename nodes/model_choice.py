"""Several models: which there are, which refuse, and what the router learns."""

import logging
from dataclasses import replace

from langchain_core.runnables import RunnableConfig

from costada.controller.router import ModelOption, attempt_price
from costada.models.asking import ModelFailure
from costada.nodes.calls.paid_calls import ModelUnavailable
from costada.nodes.context import (
    PayingNode,
    PricedModel,
    RunContext,
    SearchRuntime,
    candidate_of,
    models_left,
)
from costada.nodes.state import SearchState, Step, has_current_step
from costada.nodes.user_steps import is_submission

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


def refused(step: Step, failure: ModelFailure, context: RunContext) -> Step:
    """The step whose attempt its model did not make, so that another is to make it."""
    reason = context.store.put_text(failure.reason)
    refusal = reason if isinstance(failure, ModelUnavailable) else ""
    attempt = replace(step.attempt, failure=reason, is_refused=True, refusal=refusal)
    return replace(step, attempt=attempt, refused=(*step.refused, attempt.model))


def expected_price(asked: PricedModel, state: SearchState) -> float:
    """Dollars that an attempt of a model is expected to cost, by list price and experience."""
    record = next(each for each in state["router"].records if each.name == asked.name)
    return attempt_price(record, ModelOption(asked.name, asked.expected))


def taught(evaluate: PayingNode) -> PayingNode:
    """Let the router learn from the attempt that a node has scored, in a run with several models.

    It learns nothing from an attempt that was not made because no model could be paid for, nor
    from a program that a user submitted.
    """

    def evaluate_and_tell(
        state: SearchState, runtime: SearchRuntime, config: RunnableConfig
    ) -> SearchState:
        context, update = runtime.context, evaluate(state, runtime, config)
        after: SearchState = {**state, **update}
        step = after["step"]
        if not context.has_choice or not has_current_step(after) or is_submission(step):
            return update
        if step.attempt.is_out_of_money:
            return update
        return {**update, **tell_router(after, context)}

    return evaluate_and_tell


def tell_router(state: SearchState, context: RunContext) -> SearchState:
    """The router, and the step, after the current attempt, which has a score or has failed.

    It learns the dollars of exactly that attempt's calls. An attempt without a call teaches it
    nothing, and one that its model refused is not a try. The last model that is left is not
    disabled: it is asked again, and its refusal ends the run.
    """
    step, router = state["step"], state["router"]
    attempt = step.attempt
    name, first = attempt.model, attempt.first_call
    calls = range(first, max(step.num_requested, first) + 1)
    counts_lost = context.settings.lost_calls == "count"
    cost = context.store.call_log.attempt_cost(
        state["run"].id, step.ticket, calls, name, counts_lost=counts_lost
    )
    if cost is not None and attempt.is_refused:
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
    _LOG.warning("Model %s is disabled for the rest of the run: %s", name, reason)
    step = replace(step, disabled=(*step.disabled, name))
    return {"router": router.disable(name), "step": step}
