"""Calls under a hard budget: no request leaves unless its worst case fits into what is left."""

from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal
from typing import cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from costada.models.asking import ModelFailure
from costada.models.prices import PriceBook
from costada.models.requests import OutgoingRequest, RequestNotSent, with_limited_answers
from costada.nodes.calls.asking import CallKey, ask_model
from costada.nodes.calls.bounds import DEFAULT_OUTPUT_CAP
from costada.nodes.calls.conversation import Conversation
from costada.nodes.context import ChatModel, RunContext, budget_of
from costada.nodes.state import SearchState
from costada.prompts.render import Prompt

MINIMAL_ANSWER = 256
"""Tokens of the shortest answer that is worth its money."""


@dataclass(frozen=True, slots=True)
class Unaffordable(ModelFailure):
    """A call held back because what is left cannot buy even a minimal answer."""


@dataclass(frozen=True, slots=True)
class CutShort(ModelFailure):
    """A call held back because its step, or the run, has cost what it may cost."""


class _HeldByStep(RequestNotSent):
    """A request was not sent, because the step's cap cannot buy it."""


def ask_within_budget(
    model: ChatModel,
    asked: Prompt | Conversation,
    key: CallKey,
    state: SearchState,
    config: RunnableConfig,
    context: RunContext,
    *,
    step_cap: float | None = None,
    is_further: bool = False,
) -> AIMessage | ModelFailure:
    """Return the model's answer, or why there is none; `ask_model` under the run's budget policy.

    Under a hard budget each request, also one that repeats another after a passing error or goes
    to a fallback, may be answered at such a length as can be bought with what is left at that
    moment, of the budget and of `step_cap` dollars. Else a call that begins below the step's cap
    completes, and one that only goes on with a conversation (`is_further`) does not begin when the
    budget is used up. A call that was made before is answered as before.

    Raises:
        UnmeteredCall: An answer came without token counts and estimates are not allowed.
        ValueError: As for `ask_model`, or the answers of the model cannot be limited.
    """
    if context.settings.budget_policy != "hard":

        def held_back(is_repeated: bool) -> CutShort | None:
            is_limited = is_further or is_repeated
            left = money_left(key, state, context) if is_limited else None
            return _cut_short(left, left_of_step(key, step_cap, context))

        return ask_model(model, asked, key, config, context, held_back=held_back)

    def limit(request: OutgoingRequest) -> int:
        longest = affordable_answer(request, money_left(key, state, context), context.prices)
        left = left_of_step(key, step_cap, context)
        return longest if left is None else min(longest, _within_step(request, left, context))

    try:
        return ask_model(
            cast(ChatModel, with_limited_answers(model, limit)), asked, key, config, context
        )
    except _HeldByStep as error:
        return CutShort(str(error))
    except RequestNotSent as error:
        return Unaffordable(str(error))


def left_of_step(key: CallKey, step_cap: float | None, context: RunContext) -> Decimal | None:
    """Return the dollars that the step may still cost by its cap, `None` where there is none.

    Guides are charged to the step and do not count. Requests whose bill is unknown count as they
    do against the budget.
    """
    if step_cap is None:
        return None
    cost = context.store.call_log.step_cost(
        key.run_id,
        key.iteration,
        counts_lost=context.settings.lost_calls == "count",
        has_guides=False,
    )
    return Decimal(str(step_cap)) - cost


def _cut_short(left: Decimal | None, left_of_cap: Decimal | None) -> CutShort | None:
    if left_of_cap is not None and left_of_cap <= 0:
        return CutShort("not asked: the step has cost its cap")
    if left is not None and left <= 0:
        return CutShort("not asked: the budget is used up")
    return None


def _within_step(asked: OutgoingRequest, left: Decimal, context: RunContext) -> int:
    """Return the most answer tokens that a request may get by the step's cap."""
    try:
        return affordable_answer(asked, left, context.prices)
    except RequestNotSent as error:
        raise _HeldByStep(f"{error} of the step's cap") from None


def money_left(key: CallKey, state: SearchState, context: RunContext) -> Decimal:
    """Return the dollars left (B - C_t, and less the step's calls so far), below 0 if overspent.

    Requests whose bill is unknown count at their upper bound, under a hard budget always.
    """
    call_log = context.store.call_log
    before = call_log.spent(key.run_id, key.iteration - 1)
    step = call_log.step_cost(
        key.run_id, key.iteration, counts_lost=context.settings.lost_calls == "count"
    )
    return Decimal(str(budget_of(state, context))) - before - step


def affordable_answer(asked: OutgoingRequest, left: Decimal, prices: PriceBook) -> int:
    """Return the most answer tokens that a request may get: its own limit, or what can be bought.

    Raises:
        RequestNotSent: Not even `MINIMAL_ANSWER` tokens can be bought, or the whole limit if it is
            lower.
        ValueError: The model that is asked has no price.
    """
    quote, cap = prices.listed(asked.model), asked.output_cap or DEFAULT_OUTPUT_CAP

    def worst(tokens: int) -> Decimal:
        return quote.worst_cost(asked.input_bound, tokens * asked.choices)

    if worst(cap) <= left:
        return cap
    affordable = bisect_right(range(cap), left, key=worst) - 1
    least = min(MINIMAL_ANSWER, cap)
    if affordable < least:
        raise RequestNotSent(
            f"not asked: it may cost ${worst(least):.6f}, and ${left:.6f} are left"
        )
    return affordable
