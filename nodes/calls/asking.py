"""One search-side call: the prompt goes out, every request it causes is journaled and priced."""

from collections.abc import Callable
from functools import partial

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from costada.models.asking import FailureKind, ModelFailure, ask
from costada.models.gateway.client import with_call_key
from costada.models.metering import CallMeter
from costada.models.replies import answer_text, message_from_text, message_to_text
from costada.models.requests import RequestNotSent
from costada.models.retries import is_probe, sleep_between_requests
from costada.nodes.calls.conversation import Conversation
from costada.nodes.calls.journal import CallJournal
from costada.nodes.calls.outage import Pause, sleep_interruptibly
from costada.nodes.context import ChatModel, RunContext
from costada.prompts.render import Prompt
from costada.store.call_log import CallKey
from costada.store.rows import OutcomeKind

__all__ = ["CallKey", "ask_model"]

MAX_UNANSWERED = 3
"""Requests after which a run that never got a usable answer ends as failed."""


def _not_held_back(is_repeated: bool) -> ModelFailure | None:
    return None


def ask_model(
    model: ChatModel,
    asked: Prompt | Conversation,
    key: CallKey,
    config: RunnableConfig,
    context: RunContext,
    *,
    held_back: Callable[[bool], ModelFailure | None] = _not_held_back,
) -> AIMessage | ModelFailure:
    """Return the model's answer, or why there is none.

    A call that was made before, by a process that died or was stopped, is answered from the
    journal and costs nothing more. While the provider is unavailable the run is paused, and the
    call is repeated after growing waits.

    Args:
        model: Who is asked.
        asked: A prompt, or a conversation in which the model called tools.
        key: Which logical call this is.
        config: Of the node that asks.
        context: Of the run.
        held_back: Called before a call is made that was not made before, with whether it is made
            again in a pause; returns why it must not be, if so.

    Raises:
        UnmeteredCall: An answer came without token counts and estimates are not allowed, or no
            request for it was seen.
        ValueError: The provider refused in a way that no retry can cure, none of the run's
            requests was ever answered usably, a pause lasted too long or reached the budget, or the
            journal holds another request for the same call.
        InterruptedError: The run was asked to stop while it waited.
    """
    conversation = asked if isinstance(asked, Conversation) else Conversation(asked)
    journal = CallJournal(key, conversation.as_prompt, context)
    known = journal.known(model)
    if known is not None:
        return known if isinstance(known, ModelFailure) else message_from_text(answer_text(known))
    refused = held_back(False)
    if refused is not None:
        return refused
    keyed = with_call_key(model, "/".join(map(str, key)))
    make = partial(_made, keyed, conversation, journal, key, config, context)
    answer = make()
    pause = Pause(context.settings.retry_policy)
    while isinstance(answer, ModelFailure) and _is_outage(answer, key, context, pause):
        pause.wait(answer)
        answer = _made_again(make, held_back, answer)
    pause.end()
    if isinstance(answer, ModelFailure):
        journal.conclude(answer)
        return answer
    kept = message_to_text(answer)
    journal.conclude(AIMessage(kept))
    return message_from_text(kept)


def _made(
    model: ChatModel,
    conversation: Conversation,
    journal: CallJournal,
    key: CallKey,
    config: RunnableConfig,
    context: RunContext,
) -> AIMessage | ModelFailure:
    """Return what the model answers to one execution of the call, every request on record."""
    settings = context.settings
    meter = CallMeter(
        journal.finish, on_start=journal.begin, on_missing_usage=settings.on_missing_usage
    )
    merged = merge_configs(config, _call_config(meter, key))
    sleep = sleep_between_requests.set(sleep_interruptibly)
    try:
        with meter:
            answer = ask(model, conversation.messages, merged, settings.retry_policy)
    finally:
        sleep_between_requests.reset(sleep)
    if isinstance(answer, AIMessage):
        meter.check_seen()
    return answer


def _made_again(
    make: Callable[[], AIMessage | ModelFailure],
    held_back: Callable[[bool], ModelFailure | None],
    failure: ModelFailure,
) -> AIMessage | ModelFailure:
    """Return what one more request brings in a pause.

    Raises:
        ValueError: What lost requests of the outage may have cost has used up the budget.
    """
    probe = is_probe.set(True)
    try:
        refused = held_back(True)
        if refused is None:
            return make()
        reason = refused.reason
    except RequestNotSent as error:
        reason = str(error)
    finally:
        is_probe.reset(probe)
    raise ValueError(
        f"the provider does not answer, and its lost requests may have been billed: {reason}"
        f" (last failure: {failure.reason})"
    )


def _is_outage(failure: ModelFailure, key: CallKey, context: RunContext, pause: Pause) -> bool:
    """Return whether the run has to wait for a provider that answered it before.

    A call that timed out may have been too long to answer; after another one, and within a pause,
    the provider is down.
    A separate guide model is judged by its own requests.

    Raises:
        ValueError: The model has given no usable answer so far, and further requests would not
            bring one.
    """
    of_guides = None if context.guide_model is context.model else key.role == "guide"
    call_log = context.store.call_log
    if call_log.has_answer(key.run_id, of_guides=of_guides):
        if failure.kind is FailureKind.TIMEOUT:
            return pause.has_begun or call_log.last_kind(key.run_id) is OutcomeKind.TIMEOUT
        return failure.kind is FailureKind.DOWN
    if failure.kind in (FailureKind.REFUSED, FailureKind.NO_PROTOCOL):
        raise ValueError(failure.reason)
    number = call_log.num_requests(key.run_id, of_guides=of_guides)
    if number >= MAX_UNANSWERED:
        raise ValueError(
            f"none of the {number} requests so far was answered usably; last failure:"
            f" {failure.reason}"
        )
    return False


def _call_config(meter: CallMeter, key: CallKey) -> RunnableConfig:
    return RunnableConfig(
        callbacks=[meter],
        metadata={"costada_iteration": key.iteration, "costada_role": key.role},
    )
