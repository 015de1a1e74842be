"""One search-side call: the prompt goes out, every request it caused is priced and recorded."""

from collections.abc import Callable
from dataclasses import dataclass
from time import time

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from costada.models.failures import ModelFailure, ask
from costada.models.metering import CallMeter, MeteredCall
from costada.nodes.context import ChatModel, RunContext
from costada.nodes.pricing import UNPRICED, Quote, no_price
from costada.prompts.render import Prompt
from costada.store.rows import CallRow


@dataclass(frozen=True, slots=True)
class CallKey:
    """Which call of a run this is; `role` is generation, retry or guide, `attempt` from 1."""

    run_id: str
    iteration: int
    role: str
    attempt: int


def ask_model(
    model: ChatModel, prompt: Prompt, key: CallKey, config: RunnableConfig, context: RunContext
) -> AIMessage | ModelFailure:
    """Return the model's answer, or why there is none; the ledger's rows come from callbacks.

    Raises:
        UnmeteredCall: An answer came without token counts and estimates are not allowed.
        ValueError: The provider refused in a way that no retry can cure.
    """
    meter = CallMeter(
        _recorder(prompt, key, context), on_missing_usage=context.settings.on_missing_usage
    )
    try:
        messages = [SystemMessage(prompt.system), HumanMessage(prompt.user)]
        answer = ask(model, messages, merge_configs(config, _call_config(meter, key)))
    finally:
        meter.close()
    if isinstance(answer, ModelFailure):
        _check_not_hopeless(answer, key.run_id, context)
    return answer


def _check_not_hopeless(failure: ModelFailure, run_id: str, context: RunContext) -> None:
    """Raise `ValueError` for a refused request when no request of the run was ever answered."""
    if failure.is_refusal and not context.store.ledger.has_answer(run_id):
        raise ValueError(failure.reason)


def _call_config(meter: CallMeter, key: CallKey) -> RunnableConfig:
    return RunnableConfig(
        callbacks=[meter],
        metadata={"costada_iteration": key.iteration, "costada_role": key.role},
    )


def _recorder(prompt: Prompt, key: CallKey, context: RunContext) -> Callable[[MeteredCall], None]:
    def record(call: MeteredCall) -> None:
        quote = context.prices.quote(call)
        context.store.ledger.put_call(key.run_id, _row(call, quote, prompt, key))
        if quote is UNPRICED:
            raise ValueError(no_price(call.model))

    return record


def _row(call: MeteredCall, quote: Quote, prompt: Prompt, key: CallKey) -> CallRow:
    return CallRow(
        iteration=key.iteration,
        role=key.role,
        attempt=key.attempt,
        model=call.model,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cached_tokens=call.cached_tokens,
        reasoning_tokens=call.reasoning_tokens,
        cost=quote.cost(call.input_tokens, call.output_tokens, call.cached_tokens),
        price_in=f"{quote.input_per_million:f}",
        price_out=f"{quote.output_per_million:f}",
        price_source=quote.source,
        is_cache_hit=call.is_cache_hit,
        is_estimated=call.is_estimated,
        provider=call.provider,
        provider_id=call.provider_id,
        finish_reason=call.finish_reason,
        ended_at=time(),
        seconds=call.duration,
        prompt=prompt.user,
        answer=call.answer,
        error=call.error,
    )
