"""One call of a model: what is bound to it for the call, and its answer or failure as data."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar
from uuid import uuid4

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig

from costada.models.connection import CALL_HEADER, EXECUTION_HEADER
from costada.models.errors import (
    AccountRefused,
    ModelRefused,
    ModelUnusable,
    UnmeteredCall,
    describe,
)
from costada.models.event_loop import CallTimeout, ModelWrapper, deadline
from costada.models.langchain_openai import request_facts
from costada.models.provider_errors import (
    http_status,
    is_not_chat_api,
    is_out_of_quota,
    is_provider_failure,
    is_timeout,
    is_unavailable,
)
from costada.models.providers import RetryPolicy
from costada.models.reply_content import answer_text, calls_tools, encodable_message
from costada.models.runnable_tree import (
    JOURNAL,
    OUTPUT_CAPS,
    STANDARD_CAP,
    UPSTREAM,
    AskedModel,
    OutgoingRequest,
    asked_models,
    bounded_request,
    underlying_models,
    with_every_model_changed,
    with_models_changed,
)
from costada.values.provider_error import retry_after

_REQUEST_REMEDY = "check the model's parameters and that the prompt fits its context window"
_CREDIT_REMEDY = "add credit to the provider's account"
_ADDRESS_REMEDY = "check the model's name and base_url"
_REMEDIES: dict[int | None, str] = {
    400: _REQUEST_REMEDY,
    401: "put a valid API key into the environment",
    402: _CREDIT_REMEDY,
    403: "ask the provider for access to this model",
    404: _ADDRESS_REMEDY,
    422: _REQUEST_REMEDY,
}


class FailureKind(StrEnum):
    """What a failure says about further requests.

    `REFUSED`: the provider rejected the request (status 400 or 422) because of this prompt or, if
    no request was ever answered, because of the model's settings. `NO_PROTOCOL`: the server is no
    chat API; without an earlier answer the address is wrong. `DOWN`: the provider is unavailable.
    `TIMEOUT`: no complete answer came in time, for this prompt or for any.
    """

    OTHER = "other"
    REFUSED = "refused"
    NO_PROTOCOL = "no protocol"
    DOWN = "down"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A call without a usable answer; another call may succeed.

    Attributes:
        reason: What happened, in one short text without secrets.
        kind: What that says about further requests.
        retry_after: Seconds that the provider asks to wait before the next one, if it does.
    """

    reason: str
    kind: FailureKind = FailureKind.OTHER
    retry_after: float | None = None


async def ask(
    model: Runnable[Any, Any],
    messages: Sequence[BaseMessage],
    config: RunnableConfig,
    policy: RetryPolicy | None = None,
) -> AIMessage | ModelFailure:
    """The model's answer, or why there is none.

    Rate limits, server errors, timeouts, lost connections, unreadable and empty answers are
    failures: data. Permanent errors are raised.

    Args:
        model: A chat model, bare or wrapped.
        messages: The prompt.
        config: Its callbacks carry the meter.
        policy: The deadline of the call, and the longest wait that a provider may ask for.

    Raises:
        UnmeteredCall: If an answer came without token counts and the meter allows no estimate.
        ModelUnusable: If the provider refuses the caller for good (status 401, 402, 403 or 404, or
            a quota that is used up), or asks for a longer wait than the policy allows.
        ValueError: If the model returns something that is not a chat message.
    """
    policy, failed = policy or RetryPolicy(), None
    try:
        async with deadline(policy.call_timeout):
            answer: object = await model.ainvoke(list(messages), config)
    except CallTimeout as error:
        return ModelFailure(describe(error), FailureKind.TIMEOUT)
    except BaseException as error:  # raised again unless it is the provider's
        if isinstance(error, UnmeteredCall) or not is_provider_failure(error):
            raise
        failed = error
    if failed is not None:  # what is raised here must not lead to the provider's own words
        return failure_of(failed, model, policy)
    if not isinstance(answer, AIMessage):
        raise ValueError(
            f"model must return an AIMessage, got {type(answer).__name__} from {_names(model)}"
        )
    return checked_answer(encodable_message(answer))


def checked_answer(answer: AIMessage) -> AIMessage | ModelFailure:
    """An answer, or a failure if it has neither text nor tool calls."""
    if answer_text(answer).strip() or calls_tools(answer):
        return answer
    reason = answer.response_metadata.get("finish_reason")
    return ModelFailure(f"the answer holds no text (finish reason: {reason})")


def failure_of(
    error: BaseException, model: Runnable[Any, Any], policy: RetryPolicy
) -> ModelFailure:
    """What an error of a provider says.

    Raises:
        ModelUnusable: The provider refuses the caller for good, as in `ask`.
    """
    description = describe(error)
    # First: some report it with status 429, which would be waited for.
    if is_out_of_quota(error):
        raise AccountRefused(
            f"the quota of model {_names(model)} is used up: {_CREDIT_REMEDY} ({description})"
        )
    status, wait = http_status(error), retry_after(error)
    if wait is not None and wait > policy.longest_wait and is_unavailable(error):
        moment = (datetime.now().astimezone() + timedelta(seconds=wait)).isoformat(" ", "seconds")
        raise ModelUnusable(
            f"model {_names(model)} asks to wait {wait:.0f} s, longer than longest_wait"
            f" ({policy.longest_wait:g} s); resume after {moment} ({description})"
        )
    if is_not_chat_api(error):
        reason = f"model {_names(model)} did not answer as a chat model: {_ADDRESS_REMEDY}"
        return ModelFailure(f"{reason} ({description})", FailureKind.NO_PROTOCOL)
    if status in _REMEDIES:
        reason = f"model {_names(model)} refused the request with status {status}: "
        reason += f"{_REMEDIES[status]} ({description})"
        if _REMEDIES[status] is _REQUEST_REMEDY:
            return ModelFailure(reason, FailureKind.REFUSED)
        raise AccountRefused(reason) if status in (401, 402) else ModelRefused(reason)
    if status is None and is_unavailable(error):
        description += _addresses(model)
    if is_timeout(error):
        return ModelFailure(description, FailureKind.TIMEOUT, wait)
    kind = FailureKind.DOWN if is_unavailable(error) else FailureKind.OTHER
    return ModelFailure(description, kind, wait)


def _names(model: Runnable[Any, Any]) -> str:
    names = dict.fromkeys(asked.name for asked in asked_models(model))
    return " or ".join(map(repr, names)) or type(model).__name__


def _addresses(model: Runnable[Any, Any]) -> str:
    found = filter(None, dict.fromkeys(asked.shown_url for asked in asked_models(model)))
    return f" (asked {' or '.join(known)})" if (known := [*found]) else ""


Limit = Callable[[OutgoingRequest], int]
"""Takes a request that is about to leave and returns the most tokens its answer may have."""


class RequestNotSent(Exception):
    """A request was not sent: its limit left no room for a useful answer."""


class LimitedModel(ModelWrapper):  # type: ignore[no-redef]
    """One chat model; each request to it is given a limit first.

    Retries and fallbacks around it cause further requests. `limit` is called before any callback of
    the request, in a thread, as it may read a database, and may raise `RequestNotSent`. `bound` is
    the chat model (`asked`), perhaps with something bound to it since.
    """

    asked: BaseChatModel
    limit: Limit

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Ask for an answer within the limit."""
        request = bounded_request(self.asked, input, kwargs)
        cap = await asyncio.to_thread(self.limit, request)
        limited = {**kwargs, **limit_parameters(self.asked, kwargs, cap)}
        return await super().ainvoke(input, config, **limited)


def with_limited_answers(model: Runnable[Any, Any], limit: Limit) -> Runnable[Any, Any]:
    """Limit the answer of each request that a model, or a model inside it, sends.

    Raises:
        ValueError: If the model is composed in a way that no limit can be bound in.
    """
    return with_every_model_changed(
        model,
        lambda part: LimitedModel(bound=part, asked=part, limit=limit),
        "answers cannot be limited",
    )


def limit_parameters(model: BaseChatModel, bound: Mapping[str, Any], cap: int) -> dict[str, Any]:
    """The parameters that limit an answer, under every name that the model has for it.

    The OpenAI client reads one of its names in one of its protocols and the other in the other.
    Limits in the request's `extra_body`, which would win, are replaced there.
    """
    fields = type(model).model_fields
    known = {name for field, facts in fields.items() for name in (field, facts.alias)}
    names = [name for name in OUTPUT_CAPS if name in known] or [STANDARD_CAP]
    extra = request_facts(model, bound).params.get("extra_body") or {}
    replaced = {name: cap for name in OUTPUT_CAPS if name in extra}
    return dict.fromkeys(names, cap) | ({"extra_body": {**extra, **replaced}} if replaced else {})


def with_tools(
    model: Runnable[Any, Any], tools: Sequence[Mapping[str, object]]
) -> Runnable[Any, Any]:
    """Bind tools, as OpenAI describes them, that a model, or a model inside it, may call.

    Raises:
        ValueError: A model cannot call tools, or is composed in a way that none can be bound in.
    """

    def bind(part: BaseChatModel) -> Runnable[Any, Any]:
        try:
            return part.bind_tools([dict(tool) for tool in tools])
        except NotImplementedError:
            raise ValueError(
                f"model {AskedModel(part).name!r}: cannot call tools, expected a chat model"
                " that can"
            ) from None

    return with_every_model_changed(model, bind, "no tools can be bound")


MARKED_PROVIDERS = frozenset({"anthropic"})
"""Providers, as LangChain names them, that cache a prompt up to each marked block."""

MAX_MARKERS = 4
"""Blocks of a request that Anthropic lets a caller mark."""

MARKER = {"cache_control": {"type": "ephemeral"}}
"""Kept for five minutes after the last use."""


def needs_markers(model: Runnable[Any, Any]) -> bool:
    """Whether every chat model inside a runnable is asked at such a provider.

    Others refuse or ignore a marker, so a fallback elsewhere leaves all requests without.
    """
    providers = {each.provider for each in asked_models(model)}
    return bool(providers) and providers <= MARKED_PROVIDERS


def with_markers(message: HumanMessage, parts: Sequence[str], *, is_repeated: bool) -> HumanMessage:
    """The message in blocks, each marked but the last one.

    Args:
        message: What the user says.
        parts: Its text in pieces, the first of them the same in most calls.
        is_repeated: Whether further requests begin with the whole message; its end is marked too.

    Raises:
        ValueError: If the parts are not the text of the message, or more than may be marked.
    """
    if "".join(parts) != message.content or len(parts) > MAX_MARKERS:
        raise ValueError(
            f"parts: got {len(parts)}, expected the text of the message in at most {MAX_MARKERS}"
        )
    blocks: list[str | dict[Any, Any]] = [
        {"type": "text", "text": part, **(MARKER if is_marked else {})}
        for part, is_marked in zip(parts, [*[True] * (len(parts) - 1), is_repeated], strict=True)
    ]
    return HumanMessage(blocks, additional_kwargs=message.additional_kwargs)


Model = TypeVar("Model", bound=Runnable[Any, Any])


def has_gateway(model: Runnable[Any, Any]) -> bool:
    """Whether a chat model inside a runnable calls through a gateway."""
    return any(map(_has_upstream, underlying_models(model)))


def journals_of(model: Runnable[Any, Any]) -> set[str]:
    """Ids of the journals of the gateways that the chat models inside a runnable call through."""
    parts = underlying_models(model)
    return {(part.metadata or {}).get(JOURNAL, "") for part in parts} - {""}


def with_call_key(model: Model, key: str) -> Model:
    """A model for one execution of a logical call; without a gateway it is the same.

    All requests of the execution carry the key and a number of the execution, drawn here. From the
    two the gateway tells a retry from a repetition after a crash: what an earlier execution
    received is replayed, what this one received is not.

    Args:
        model: A chat model, bare or wrapped.
        key: `run_id/ticket/role/attempt`, followed by the name of one of several models; the
            same whenever the call is executed again.
    """
    if not has_gateway(model):
        return model
    headers = {CALL_HEADER: key, EXECUTION_HEADER: uuid4().hex}

    def keyed(part: BaseChatModel) -> Runnable[Any, Any]:
        return part.bind(extra_headers=headers) if _has_upstream(part) else part

    return with_models_changed(model, keyed)  # type: ignore[return-value]


def _has_upstream(model: BaseChatModel) -> bool:
    return UPSTREAM in (model.metadata or {})
