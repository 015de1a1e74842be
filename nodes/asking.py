"""One search-side call: the prompt goes out, every request it caused is priced and recorded."""

from collections.abc import Callable
from dataclasses import dataclass

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from costada.models.failures import ModelFailure, ask
from costada.models.metering import CallMeter, MeteredCall
from costada.nodes.context import ChatModel, RunContext
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
        return ask(model, messages, merge_configs(config, _call_config(meter, key)))
    finally:
        meter.close()


def _call_config(meter: CallMeter, key: CallKey) -> RunnableConfig:
    return RunnableConfig(
        callbacks=[meter],
        metadata={"costada_iteration": key.iteration, "costada_role": key.role},
    )


def _recorder(prompt: Prompt, key: CallKey, context: RunContext) -> Callable[[MeteredCall], None]:
    def record(call: MeteredCall) -> None:
        cost, source = context.prices.cost(call)
        row = CallRow(
            iteration=key.iteration,
            role=key.role,
            attempt=key.attempt,
            model=call.model,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            cached_tokens=call.cached_tokens,
            reasoning_tokens=call.reasoning_tokens,
            cost=cost,
            price_source=source,
            is_cache_hit=call.is_cache_hit,
            is_estimated=call.is_estimated,
            seconds=call.duration,
            prompt=prompt.user,
            answer=call.answer,
            error=call.error,
        )
        context.store.ledger.put_call(key.run_id, row)

    return record
