"""Ask a model once: provider failures are returned as data, everything else is raised."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig

from costada.models.deadline import CallTimeout, deadline
from costada.models.errors import ModelUnusable, UnmeteredCall, describe
from costada.models.provider_errors import (
    http_status,
    is_not_chat_api,
    is_out_of_quota,
    is_provider_failure,
    is_timeout,
    is_unavailable,
)
from costada.models.reply_content import answer_text, calls_tools, encodable_message
from costada.models.retry_policy import RetryPolicy
from costada.models.runnable_tree import asked_models
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
        return _failure(failed, model, policy)
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


def _failure(error: BaseException, model: Runnable[Any, Any], policy: RetryPolicy) -> ModelFailure:
    description = describe(error)
    if is_out_of_quota(error):
        raise ModelUnusable(
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
        if _REMEDIES[status] is not _REQUEST_REMEDY:
            raise ModelUnusable(reason)
        return ModelFailure(reason, FailureKind.REFUSED)
    if is_timeout(error):
        return ModelFailure(description, FailureKind.TIMEOUT, wait)
    kind = FailureKind.DOWN if is_unavailable(error) else FailureKind.OTHER
    return ModelFailure(description, kind, wait)


def _names(model: Runnable[Any, Any]) -> str:
    names = dict.fromkeys(asked.name for asked in asked_models(model))
    return " or ".join(map(repr, names)) or type(model).__name__
