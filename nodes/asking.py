"""One search-side call: the prompt goes out, every request it causes is journaled and priced."""

from collections.abc import Callable

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from costada.models.call_key import with_call_key
from costada.models.failures import ModelFailure, ask
from costada.models.metering import CallMeter
from costada.models.replies import answer_text, read_back, written
from costada.nodes.context import ChatModel, RunContext
from costada.nodes.conversation import Conversation
from costada.nodes.journal import CallJournal
from costada.prompts.render import Prompt
from costada.store.ledger import CallKey

__all__ = ["CallKey", "ask_model"]


def ask_model(
    model: ChatModel,
    asked: Prompt | Conversation,
    key: CallKey,
    config: RunnableConfig,
    context: RunContext,
    *,
    held_back: Callable[[], ModelFailure | None] = lambda: None,
) -> AIMessage | ModelFailure:
    """Return the model's answer, or why there is none.

    A call that was made before, by a process that died or was stopped, is answered from the
    journal and costs nothing more.

    Args:
        model: Who is asked.
        asked: A prompt, or a conversation in which the model called tools.
        key: Which logical call this is.
        config: Of the node that asks.
        context: Of the run.
        held_back: Called before a call is made that was not made before; returns why it must not
            be, if so.

    Raises:
        UnmeteredCall: An answer came without token counts and estimates are not allowed, or no
            request for it was seen.
        ValueError: The provider refused in a way that no retry can cure, or the journal holds
            another request for the same call.
    """
    conversation = asked if isinstance(asked, Conversation) else Conversation(asked)
    journal = CallJournal(key, conversation.as_prompt, context)
    known = journal.known(model)
    if known is not None:
        return known if isinstance(known, ModelFailure) else read_back(answer_text(known))
    refused = held_back()
    if refused is not None:
        return refused
    meter = CallMeter(
        journal.finish,
        on_start=journal.begin,
        on_missing_usage=context.settings.on_missing_usage,
    )
    with meter:
        answer = ask(
            with_call_key(model, "/".join(map(str, key))),
            conversation.messages,
            merge_configs(config, _call_config(meter, key)),
        )
    return _concluded(answer, journal, meter, key, context)


def _concluded(
    answer: AIMessage | ModelFailure,
    journal: CallJournal,
    meter: CallMeter,
    key: CallKey,
    context: RunContext,
) -> AIMessage | ModelFailure:
    """Return what the call came to, as it will be told when it is asked for again."""
    if isinstance(answer, ModelFailure):
        _check_not_hopeless(answer, key.run_id, context)
        journal.conclude(answer)
        return answer
    meter.check_heard()
    kept = written(answer)
    journal.conclude(AIMessage(kept))
    return read_back(kept)


def _check_not_hopeless(failure: ModelFailure, run_id: str, context: RunContext) -> None:
    """Raise `ValueError` for a refused request when no request of the run was ever answered."""
    if failure.is_refusal and not context.store.ledger.has_answer(run_id):
        raise ValueError(failure.reason)


def _call_config(meter: CallMeter, key: CallKey) -> RunnableConfig:
    return RunnableConfig(
        callbacks=[meter],
        metadata={"costada_iteration": key.iteration, "costada_role": key.role},
    )
