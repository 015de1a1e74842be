"""Calls under a hard budget: no request leaves unless its worst case fits into what is left."""

from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal
from typing import cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from costada.graph.state import SearchState
from costada.models.announcements import Announcement
from costada.models.capping import HeldBack, capped
from costada.models.failures import ModelFailure
from costada.nodes.asking import CallKey, ask_model
from costada.nodes.bounds import DEFAULT_OUTPUT_CAP
from costada.nodes.context import ChatModel, RunContext, budget_of
from costada.prompts.render import Prompt

MINIMAL_ANSWER = 256
"""Tokens of the shortest answer that is worth its money."""


@dataclass(frozen=True, slots=True)
class Unaffordable(ModelFailure):
    """A call held back because what is left cannot buy even a minimal answer."""


def ask_within_budget(
    model: ChatModel,
    prompt: Prompt,
    key: CallKey,
    state: SearchState,
    config: RunnableConfig,
    context: RunContext,
) -> AIMessage | ModelFailure:
    """Return the model's answer, or why there is none; `ask_model` under the run's budget policy.

    Under a hard budget each request, also one that repeats another after a passing error or goes
    to a fallback, may be answered at such a length as can be bought with what is left at that
    moment. A call that was made before is answered as before.

    Raises:
        UnmeteredCall: An answer came without token counts and estimates are not allowed.
        ValueError: As for `ask_model`, or the answers of the model cannot be limited.
    """
    if context.settings.budget_policy != "hard":
        return ask_model(model, prompt, key, config, context)

    def limit(asked: Announcement) -> int:
        return affordable_answer(asked, money_left(key, state, context), context)

    try:
        return ask_model(cast(ChatModel, capped(model, limit)), prompt, key, config, context)
    except HeldBack as error:
        return Unaffordable(str(error))


def money_left(key: CallKey, state: SearchState, context: RunContext) -> Decimal:
    """Return the dollars left (B - C_t, and less the step's calls so far), below 0 if overspent.

    Requests of the step whose bill is unknown count at their upper bound.
    """
    ledger = context.store.ledger
    before = ledger.spent(key.run_id, key.iteration - 1)
    step = ledger.step_cost(key.run_id, key.iteration, counts_lost=True)
    return Decimal(str(budget_of(state, context))) - before - step


def affordable_answer(asked: Announcement, left: Decimal, context: RunContext) -> int:
    """Return the most answer tokens that a request may get: its own limit, or what can be bought.

    Raises:
        HeldBack: Not even `MINIMAL_ANSWER` tokens can be bought, or the whole limit if it is lower.
    """
    quote, cap = context.prices.quotes[asked.model], asked.output_cap or DEFAULT_OUTPUT_CAP

    def worst(tokens: int) -> Decimal:
        return quote.cost(asked.input_bound, tokens * asked.choices, 0)

    if worst(cap) <= left:
        return cap
    affordable = bisect_right(range(cap), left, key=worst) - 1
    least = min(MINIMAL_ANSWER, cap)
    if affordable < least:
        raise HeldBack(f"not asked: it may cost ${worst(least):.6f}, and ${left:.6f} are left")
    return affordable
