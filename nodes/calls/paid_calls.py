"""One paid call: the prompt goes out if the budget allows it, and every request is journaled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast
from urllib.parse import quote

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from costada.models.asking import (
    MAX_MARKERS,
    FailureKind,
    ModelFailure,
    RequestNotSent,
    ask,
    journals_of,
    needs_markers,
    with_call_key,
    with_limited_answers,
    with_markers,
)
from costada.models.chat_models import TICKET
from costada.models.errors import ModelUnusable, UncountedAnswer
from costada.models.event_loop import run
from costada.models.metering import CallMeter
from costada.models.reply_content import (
    answer_text,
    message_from_text,
    message_to_text,
    text_with_tool_calls,
)
from costada.models.retries import may_send_again, sleep_between_requests
from costada.models.runnable_tree import OutgoingRequest
from costada.nodes.calls.budget import (
    FUNDS_POLL_SECONDS,
    WaitingForFunds,
    affordable_answer,
    expected_left,
    leave_queue,
    left_of_step,
    money_left,
    reserve_share,
    share_of_money,
)
from costada.nodes.calls.health import Pause, health_of, outlast, sleep_interruptibly
from costada.nodes.calls.journal import CallJournal, Reserve
from costada.nodes.context import (
    ChatModel,
    PricedModel,
    RunContext,
    guides_of,
    is_sequential,
    models_left,
)
from costada.nodes.generator_command import WITH_TOOLS
from costada.nodes.state import SearchState
from costada.prompts.render import Prompt, cacheable_parts
from costada.store.call_log import CallKey
from costada.values.roles import GUIDE


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a request sends: a prompt, and the messages since."""

    prompt: Prompt
    later: tuple[BaseMessage, ...] = ()

    def followed_by(self, messages: Sequence[BaseMessage]) -> "Conversation":
        """The conversation with more messages at its end."""
        return replace(self, later=(*self.later, *messages))

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages that are sent."""
        data = self.prompt.data
        user = HumanMessage(self.prompt.user, additional_kwargs=data.kwargs if data else {})
        return [SystemMessage(self.prompt.system), user, *self.later]

    @property
    def as_prompt(self) -> Prompt:
        """The conversation as two texts for the journal, the same whenever it is repeated."""
        texts = [self.prompt.user]
        for message in self.later:
            speaker = (
                f"[tool] {message.name}" if isinstance(message, ToolMessage) else "[assistant]"
            )
            texts.append(f"{speaker}\n{text_with_tool_calls(message)}")
        return Prompt(self.prompt.system, "\n\n".join(texts))


@dataclass(frozen=True, slots=True)
class Unaffordable(ModelFailure):
    """A call that was not made because what is left cannot buy even a minimal answer."""


@dataclass(frozen=True, slots=True)
class StepCapReached(ModelFailure):
    """A call that was not made because its step, or the run, has cost what it may cost."""


@dataclass(frozen=True, slots=True)
class ModelUnavailable(ModelFailure):
    """A model of a menu is of no further use, and another model is left."""


NOT_ATTEMPTED = (ModelUnavailable, Unaffordable)
"""Why an attempt is not made by its model, so that another model of the menu may make it."""


class _OverStepCap(RequestNotSent):
    """A request was not sent, because the step's cap cannot buy it."""


Check = Callable[[bool], ModelFailure | None]
"""Why a call must not be made, if so; its argument says whether it is repeated in a pause."""


def ask_within_budget(
    asked: PricedModel,
    text: Prompt | Conversation,
    key: CallKey,
    state: SearchState,
    config: RunnableConfig,
    context: RunContext,
    *,
    step_cap: float | None = None,
    is_further: bool = False,
    is_last: bool = False,
) -> AIMessage | ModelFailure:
    """Ask a model under the run's budget policy; returns its answer, or why there is none.

    Hard: every request, retries and fallbacks included, may be answered at the length that can be
    bought with what is left at that moment, of the budget and of `step_cap` dollars. With several
    steps in flight that is its share of what is left; a request that its share cannot pay for waits
    until others have ended, the oldest first. What a request can cost at most is reserved in the
    transaction that journals it.

    Crossing: a call that begins below the step's cap completes. A further request of a conversation
    (`is_further`) is not sent if the dollars spent and those expected of the steps in flight reach
    the budget.

    A call that was made before is answered as before. A model that refuses all further requests, or
    whose answer comes without token counts, is `ModelUnavailable` where another model of the menu
    is left; with `is_last`, none is.

    Raises:
        UnmeteredCall: An answer came without token counts and estimates are not allowed, or what it
            counts is impossible.
        ValueError: As for `ask_model`, or the answers of the model cannot be limited.
    """
    frontier = None if key.role == GUIDE else state["step"].allocation.frontier
    others = models_left(state, context) if context.has_choice and asked.name else []
    has_others = not is_last and any(each.name != asked.name for each in others)
    ask_once = partial(
        ask_model,
        text=text,
        key=key,
        config=config,
        context=context,
        frontier=frontier,
        has_others=has_others,
    )

    def check(is_repeated: bool) -> StepCapReached | None:
        left_of_cap = left_of_step(key, step_cap, context, gateways=journals_of(asked.model))
        if left_of_cap is not None and left_of_cap <= 0:
            return StepCapReached("not asked: the step has cost its cap")
        is_lost = _is_lost(asked, key, state, context)
        if is_lost and money_left(key, state, context, counts_sent=False) <= 0:
            return StepCapReached("not asked again: the budget is used up")
        if not (is_further or is_repeated):
            return None
        left_for = money_left if is_repeated else expected_left
        left = left_for(key, state, context, gateways=journals_of(asked.model))
        return StepCapReached("not asked: the budget is used up") if left <= 0 else None

    try:
        if context.is_hard:
            return _ask_within_hard_budget(asked, key, state, context, step_cap, ask_once)
        return ask_once(asked, check=check)
    except (ModelUnusable, UncountedAnswer) as error:
        if not has_others:
            raise
        return ModelUnavailable(str(error))


def _is_lost(asked: PricedModel, key: CallKey, state: SearchState, context: RunContext) -> bool:
    """Whether a killed process made this call beside others, and lost it at its upper bound.

    It is not lost where the gateway that the call goes through reports it again.
    """
    if not context.counts_lost or is_sequential(state, context):
        return False
    last = context.store.call_log.last_call(key, context.entry_of(asked))
    return last is not None and last.gateway not in journals_of(asked.model)


def _ask_within_hard_budget(
    asked: PricedModel,
    key: CallKey,
    state: SearchState,
    context: RunContext,
    step_cap: float | None,
    ask_once: Callable[..., AIMessage | ModelFailure],
) -> AIMessage | ModelFailure:
    # Called for each request: retries and fallbacks differ in model, price and length, and what is
    # left may have changed since the one before.
    def limit(request: OutgoingRequest) -> int:
        share = share_of_money(request, asked, key, state, context)
        longest = affordable_answer(request, share, asked.prices)
        left = left_of_step(key, step_cap, context, gateways=journals_of(asked.model))
        if left is None:
            return longest
        try:
            return min(longest, affordable_answer(request, left, asked.prices))
        except RequestNotSent as error:
            raise _OverStepCap(f"{error} of the step's cap") from None

    limited = replace(asked, model=cast(ChatModel, with_limited_answers(asked.model, limit)))
    reserve = partial(reserve_share, asked=asked, key=key, state=state, context=context)
    try:
        while True:
            try:
                return ask_once(limited, reserve=reserve)
            except _OverStepCap as error:
                return StepCapReached(str(error))
            # Waits out here: in the transaction that refused the request it would hold up the calls
            # whose ends it waits for.
            except WaitingForFunds:
                run(sleep_interruptibly(FUNDS_POLL_SECONDS))
            except RequestNotSent as error:
                return Unaffordable(str(error))
    finally:
        # a ticket that failed or was interrupted must not keep later ones waiting
        leave_queue(key, context)


def ask_for_guide(
    prompt: Prompt,
    key: CallKey,
    state: SearchState,
    config: RunnableConfig,
    context: RunContext,
    *,
    is_further: bool = False,
) -> AIMessage | ModelFailure:
    """Ask the guide model, or else the first model of the menu that does not refuse.

    Raises:
        ValueError: As `ask_within_budget`; the last model's where every one refuses.
    """
    *first, last = guides_of(state, context)
    ask_one = partial(
        ask_within_budget,
        text=prompt,
        key=key,
        state=state,
        config=config,
        context=context,
        is_further=is_further,
    )
    for asked in first:
        answer = ask_one(asked)
        if not isinstance(answer, ModelUnavailable):
            return answer
    return ask_one(last, is_last=True)


def ask_model(
    asked: PricedModel,
    text: Prompt | Conversation,
    key: CallKey,
    config: RunnableConfig,
    context: RunContext,
    *,
    check: Check = lambda is_repeated: None,
    reserve: Reserve | None = None,
    frontier: int | None = None,
    has_others: bool = False,
) -> AIMessage | ModelFailure:
    """Ask a model; returns its answer, or why there is none.

    A call that was made before, by a process that died or was stopped, is answered from the
    journal and costs nothing more. While the provider is unavailable the run is paused, and the
    call is repeated after growing waits.

    Args:
        asked: Who is asked.
        text: A prompt, or a conversation in which the model called tools.
        key: Which logical call this is.
        config: Of the node that asks.
        context: Of the run.
        check: Called before a call that is not in the journal is made, or made again in a pause.
        reserve: Called with the most that a request can cost, in the transaction that journals it.
        frontier: Index of the step's frontier; `None` for a guide.
        has_others: Whether other models of the menu are left; one that was given up is not asked.

    Raises:
        UnmeteredCall: An answer came without token counts and estimates are not allowed, or no
            request for it was seen.
        ValueError: The provider refused in a way that no retry can cure, none of the run's
            requests was ever answered usably, a pause lasted too long or reached the budget, or the
            journal holds another request for the same call.
        InterruptedError: The run was asked to stop while it waited.
    """
    conversation = text if isinstance(text, Conversation) else Conversation(text)
    # The journal before anything that could refuse the call: what was paid for is used, whatever
    # the budget and the health of the model are by now.
    journal = CallJournal(key, conversation.as_prompt, asked, context, frontier, reserve)
    known = journal.replay()
    if known is not None:
        return known if isinstance(known, ModelFailure) else message_from_text(answer_text(known))
    health = health_of(asked, key, context, has_others=has_others)
    health.check_usable()
    refused = check(False)
    if refused is not None:
        return refused
    entry = context.entry_of(asked)
    words = [*map(str, key), *([quote(entry, safe="")] if entry else [])]
    keyed = replace(asked, model=with_call_key(asked.model, "/".join(words)))
    make = partial(_make_call, keyed, conversation, journal, key, config, context)
    pause = Pause(context.retry_policy, health.pause_text)

    def outage_in(found: AIMessage | ModelFailure) -> ModelFailure | None:
        if isinstance(found, ModelFailure) and health.is_outage(found, is_paused=pause.has_begun):
            return found
        return None

    try:
        answer = outlast(
            partial(_with_repeats, make, health.may_send_again),
            partial(_repeat_call, make, check),
            outage_in,
            health.outages,
            pause,
        )
    except ModelUnusable as error:
        health.give_up(error)
        raise
    if isinstance(answer, ModelFailure):
        journal.record_outcome(answer)
        return answer
    # The caller gets what the journal would give it, so that a repeated call is answered the same.
    kept = message_to_text(answer)
    journal.record_outcome(AIMessage(kept))
    return message_from_text(kept)


def _make_call(
    asked: PricedModel,
    conversation: Conversation,
    journal: CallJournal,
    key: CallKey,
    config: RunnableConfig,
    context: RunContext,
) -> AIMessage | ModelFailure:
    """Execute the call once, with every request in the journal."""
    settings, policy = context.settings, context.retry_policy
    if asked.call_timeout is not None:
        policy = policy.model_copy(update={"call_timeout": asked.call_timeout})
    meter = CallMeter(
        journal.finish, on_start=journal.begin, on_missing_usage=settings.on_missing_usage
    )
    metadata = {TICKET: key.ticket, "costada_role": key.role}
    merged = merge_configs(config, RunnableConfig(callbacks=[meter], metadata=metadata))
    sleep = sleep_between_requests.set(sleep_interruptibly)
    try:
        with meter:
            messages = _messages(conversation, asked, context)
            answer = run(ask(asked.model, messages, merged, policy))
    finally:
        sleep_between_requests.reset(sleep)
    if isinstance(answer, AIMessage):
        meter.check_seen()
    elif answer.kind is FailureKind.NO_PROTOCOL and meter.has_counted_answer:
        return ModelFailure("the answer holds no choice")
    return answer


def _messages(
    conversation: Conversation, asked: PricedModel, context: RunContext
) -> list[BaseMessage]:
    """What is sent: marked where the provider's prompt cache asks for it and the order helps it."""
    system, user, *later = conversation.messages
    has_tools = context.settings.generator == WITH_TOOLS
    if context.settings.prompt_order == "paper" or not needs_markers(asked.model):
        return conversation.messages
    if isinstance(user, HumanMessage):
        parts = cacheable_parts(conversation.prompt.user, MAX_MARKERS)
        user = with_markers(user, parts, is_repeated=has_tools)
    return [system, user, *later]


def _with_repeats(
    make: Callable[[], AIMessage | ModelFailure], may_repeat: Callable[[], bool]
) -> AIMessage | ModelFailure:
    """Execute the call; its failed requests are repeated only where that is allowed."""
    outer = may_send_again.set(may_repeat)
    try:
        return make()
    finally:
        may_send_again.reset(outer)


def _repeat_call(
    make: Callable[[], AIMessage | ModelFailure], check: Check, failure: ModelFailure
) -> AIMessage | ModelFailure:
    """Execute the call again during a pause, as one request: it shows whether the pause is over.

    Raises:
        ValueError: What lost requests of the outage may have cost has used up the budget.
    """
    try:
        refused = check(True)
        if refused is None:
            return _with_repeats(make, lambda: False)
        reason = refused.reason
    except RequestNotSent as error:
        reason = str(error)
    raise ValueError(
        f"the provider does not answer, and its lost requests may have been billed: {reason}"
        f" (last failure: {failure.reason})"
    )
