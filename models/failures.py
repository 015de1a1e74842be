"""Asking a model once, with provider failures as data and everything else as an exception."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig

from costada.models.errors import UnmeteredCall, describe
from costada.models.identity import asked_models
from costada.models.provider_errors import http_status, is_providers
from costada.models.replies import answer_text, calls_tools

_REQUEST_REMEDY = "check the model's parameters and that the prompt fits its context window"
_ABOUT_THE_REQUEST = (400, 422)
_REMEDIES: dict[int | None, str] = {
    400: _REQUEST_REMEDY,
    401: "put a valid API key into the environment",
    402: "add credit to the provider's account",
    403: "ask the provider for access to this model",
    404: "check the model's name and base_url",
    422: _REQUEST_REMEDY,
}


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A request that brought no usable answer, though the next one may.

    Attributes:
        reason: What happened, in one short text without secrets.
        is_refusal: The provider found fault with the request (status 400 or 422): with this
            prompt, or with every request if none was ever answered.
    """

    reason: str
    is_refusal: bool = False


def ask(
    model: Runnable[Any, Any], messages: Sequence[BaseMessage], config: RunnableConfig
) -> AIMessage | ModelFailure:
    """Return the model's answer, or why there is none.

    Rate limits, server errors, timeouts, lost connections, unreadable and empty answers are
    failures: data. What another attempt cannot cure is raised.

    Args:
        model: A chat model, bare or wrapped.
        messages: The prompt.
        config: Handed to the model; its callbacks carry the meter.

    Raises:
        UnmeteredCall: If an answer came without token counts and the meter allows no estimate.
        ValueError: If the provider refuses the caller for good (status 401, 402, 403 or 404), or
            the model returns something that is not a chat message.
    """
    outcomes: list[object] = model.batch([list(messages)], config, return_exceptions=True)
    outcome = outcomes[0]
    if isinstance(outcome, BaseException):
        return _failure(outcome, model)
    if not isinstance(outcome, AIMessage):
        raise ValueError(
            f"model must return an AIMessage, got {type(outcome).__name__} from {_names(model)}"
        )
    return judged(outcome)


def judged(answer: AIMessage) -> AIMessage | ModelFailure:
    """Return an answer, or the failure that one without text and tool calls is."""
    if answer_text(answer).strip() or calls_tools(answer):
        return answer
    reason = answer.response_metadata.get("finish_reason")
    return ModelFailure(f"the answer holds no text (finish reason: {reason})")


def _failure(error: BaseException, model: Runnable[Any, Any]) -> ModelFailure:
    if isinstance(error, UnmeteredCall) or not is_providers(error):
        raise error
    status = http_status(error)
    if status not in _REMEDIES:
        return ModelFailure(describe(error))
    reason = (
        f"model {_names(model)} refused the request with status {status}: "
        f"{_REMEDIES[status]} ({describe(error)})"
    )
    if status in _ABOUT_THE_REQUEST:
        return ModelFailure(reason, is_refusal=True)
    raise ValueError(reason)


def _names(model: Runnable[Any, Any]) -> str:
    names = dict.fromkeys(asked.identity.name for asked in asked_models(model))
    return " or ".join(map(repr, names)) or type(model).__name__
