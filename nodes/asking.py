"""One search-side call: the prompt goes out, every request it causes is journaled and priced."""

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from costada.models.call_key import with_call_key
from costada.models.failures import ModelFailure, ask
from costada.models.metering import CallMeter
from costada.nodes.context import ChatModel, RunContext
from costada.nodes.journal import CallJournal
from costada.prompts.render import Prompt
from costada.store.ledger import CallKey

__all__ = ["CallKey", "ask_model"]


def ask_model(
    model: ChatModel, prompt: Prompt, key: CallKey, config: RunnableConfig, context: RunContext
) -> AIMessage | ModelFailure:
    """Return the model's answer, or why there is none.

    A call that was made before, by a process that died or was stopped, is answered from the
    journal and costs nothing more.

    Raises:
        UnmeteredCall: An answer came without token counts and estimates are not allowed, or no
            request for it was seen.
        ValueError: The provider refused in a way that no retry can cure, or the journal holds
            another request for the same call.
    """
    journal = CallJournal(key, prompt, context)
    known = journal.known(model)
    if known is not None:
        return known
    meter = CallMeter(
        journal.finish,
        on_start=journal.begin,
        on_missing_usage=context.settings.on_missing_usage,
    )
    with meter:
        messages = [SystemMessage(prompt.system), HumanMessage(prompt.user)]
        answer = ask(
            with_call_key(model, "/".join(map(str, key))),
            messages,
            merge_configs(config, _call_config(meter, key)),
        )
    if isinstance(answer, ModelFailure):
        _check_not_hopeless(answer, key.run_id, context)
    else:
        meter.check_heard()
    journal.conclude(answer)
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
