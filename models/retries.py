"""Retries that a meter can see: none hidden in a client, each a request of its own."""

import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import cached_property
from random import Random
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.runnables.retry import RunnableRetry
from tenacity import RetryCallState, Retrying, retry_if_exception

from costada.models.deadline import seconds_left
from costada.models.errors import is_passing, retry_after
from costada.models.retry_policy import RetryPolicy
from costada.models.runnable_tree import model_identity, underlying_models, with_models_changed

JITTER = 0.2
"""The largest part by which a wait is made longer at random, so that clients spread out."""

_RANDOM = Random()

sleep_between_requests: ContextVar[Callable[[float], None]] = ContextVar(
    "sleep_between_requests", default=time.sleep
)
"""How a wait between two requests is spent, in seconds; a run can interrupt it."""

is_probe: ContextVar[bool] = ContextVar("is_probe", default=False)
"""Whether one request is enough to see that a provider still does not answer."""


def growing_wait(first: float, longest: float, number: int) -> float:
    """Return the seconds to wait after the `number`-th failure in a row, from 1, with jitter."""
    return with_jitter(min(longest, first * 2.0 ** min(number - 1, 60)))


def with_jitter(seconds: float) -> float:
    """Return a wait that is longer by up to `JITTER` of it, never shorter."""
    return seconds * (1 + JITTER * _RANDOM.random())


def retry_options(max_attempts: int, first_wait: float, longest_wait: float) -> dict[str, Any]:
    """Return the options of a retry by tenacity for passing errors of any provider.

    It waits as long as the provider asks, otherwise a growing time. It stops after the last
    attempt, of a probe the first, where the provider asks for more than the longest wait, and where
    the wait would pass the deadline of the call.

    Args:
        max_attempts: Requests sent for one answer at most.
        first_wait: Seconds after the first failure.
        longest_wait: Most seconds between two requests.
    """

    def wait(state: RetryCallState) -> float:
        asked = _asked_wait(state)
        if asked is not None:
            return with_jitter(asked)
        return growing_wait(first_wait, longest_wait, state.attempt_number)

    def is_over(state: RetryCallState) -> bool:
        asked, left = _asked_wait(state), seconds_left()
        return (
            is_probe.get()
            or state.attempt_number >= max_attempts
            or (asked is not None and asked > longest_wait)
            or (left is not None and state.upcoming_sleep >= left)
        )

    return {"wait": wait, "stop": is_over, "retry": retry_if_exception(is_passing)}


class SteadyRetry(RunnableRetry[LanguageModelInput, AIMessage]):  # type: ignore[no-redef]
    """LangChain's retry for passing errors of any provider, with waits as `retry_options` says.

    Each attempt is a request of its own, unlike a retry inside a provider's client.

    Attributes:
        wait_seconds: Seconds before the second request.
        longest_wait: Most seconds between two requests.
    """

    wait_seconds: float
    longest_wait: float = RetryPolicy().longest_wait

    @property
    def _kwargs_retrying(self) -> dict[str, Any]:
        return retry_options(self.max_attempt_number, self.wait_seconds, self.longest_wait)

    def _sync_retrying(self, **kwargs: Any) -> Retrying:
        return Retrying(**self._kwargs_retrying, sleep=sleep_between_requests.get(), **kwargs)


def with_retries(
    model: BaseChatModel,
    max_attempts: int,
    wait_seconds: float,
    longest_wait: float = RetryPolicy().longest_wait,
) -> Runnable[LanguageModelInput, AIMessage]:
    """Return a model that sends a request again after a passing error.

    Args:
        model: The model to ask.
        max_attempts: Requests sent for one answer at most.
        wait_seconds: Seconds before the second of them; later waits grow.
        longest_wait: Most seconds between two of them, also where the provider asks for more.
    """
    return SteadyRetry(
        bound=model,
        max_attempt_number=max_attempts,
        wait_seconds=wait_seconds,
        longest_wait=longest_wait,
    )


def _asked_wait(state: RetryCallState) -> float | None:
    error = state.outcome.exception() if state.outcome else None
    return None if error is None else retry_after(error)


_CLIENTS = ("root_client", "root_async_client", "client", "async_client")
_TELLS_COST_IN_WHOLE_ANSWERS = "openrouter.ai"


def with_visible_requests(
    runnable: Runnable[Any, Any], policy: RetryPolicy | None = None
) -> Runnable[Any, Any]:
    """Return a runnable that asks like the given one, with nothing hidden from a meter.

    Clients of the OpenAI, Anthropic and similar SDKs send a failed request again by themselves,
    two times by default, and each of these may be billed. In the returned runnable as many retries
    are made outside of the client, so that each is a request of its own. Streams tell their token
    counts; where they would lose what the provider charged, answers arrive in one piece. The given
    runnable stays as it is, and is returned itself where nothing has to change.

    Args:
        runnable: A chat model, bare or in bindings, retries, fallbacks and sequences.
        policy: How long to wait between two requests for one answer.

    Raises:
        ValueError: If a model retries by itself and cannot be replaced or told not to.
    """
    if all(map(_is_accountable, underlying_models(runnable))):
        return runnable
    waits = policy or RetryPolicy()
    changed = with_models_changed(runnable, lambda model: _accountable_model(model, waits))
    for model in underlying_models(changed):
        _check_quiet(model)
    return changed


def without_hidden_retries(model: BaseChatModel) -> tuple[BaseChatModel, int]:
    """Return a chat model with nothing hidden from a meter, and how often it used to retry.

    The retries are left to the caller. Streams tell their token counts.

    Raises:
        ValueError: If the model retries by itself and cannot be told not to.
    """
    hidden = hidden_retries(model)
    quiet = _telling(_without_retries(model) if hidden else model)
    _check_quiet(quiet)
    return quiet, hidden


def hidden_retries(model: BaseChatModel) -> int:
    """Return how often a model's client may send a failed request again by itself."""
    stated = getattr(model, "max_retries", None)
    return max(_told_by_clients(model) or [stated if isinstance(stated, int) else 0])


def _check_quiet(model: BaseChatModel) -> None:
    if hidden := hidden_retries(model):
        raise ValueError(
            f"model {model_identity(model).name!r} sends a failed request again by itself, up"
            f" to {hidden} times, so what it costs cannot be known; expected max_retries=0"
        )


def _is_accountable(model: BaseChatModel) -> bool:
    return not (hidden_retries(model) or _loses_cost(model) or _loses_counts(model))


def _accountable_model(model: BaseChatModel, policy: RetryPolicy) -> Runnable[Any, Any]:
    hidden, told = hidden_retries(model), _telling(model)
    if not hidden:
        return told
    quiet = _without_retries(told)
    return with_retries(quiet, 1 + hidden, policy.retry_wait, policy.longest_wait)


def _telling(model: BaseChatModel) -> BaseChatModel:
    """Return a copy whose streams lose neither counts nor cost, or the model itself if it does."""
    if _loses_cost(model):
        model = model.model_copy(update={"disable_streaming": True})
    return model.model_copy(update={"stream_usage": True}) if _loses_counts(model) else model


def _without_retries(model: BaseChatModel) -> BaseChatModel:
    """Return a copy whose clients say that they do not retry, or else the model as it is."""
    held = {name: _quiet(getattr(model, name, None)) for name in _CLIENTS}
    clients = {name: client for name, client in held.items() if client is not None}
    copied = model.model_copy(update={**clients, "max_retries": 0})
    for name in _built_on_first_use(model):
        vars(copied).pop(name, None)
    return copied if _told_by_clients(copied) else model


def _quiet(held: Any) -> Any:
    """Return an SDK client, or a part of one such as its completions, that does not retry."""
    if hasattr(held, "with_options"):
        return held.with_options(max_retries=0)
    client: Any = getattr(held, "_client", None)
    if hasattr(client, "with_options"):
        return type(held)(client.with_options(max_retries=0))
    return None


def _told_by_clients(model: BaseChatModel) -> list[int]:
    """Return how often each SDK client of a model retries."""
    held = [getattr(model, name, None) for name in (*_CLIENTS, *_built_on_first_use(model))]
    clients = held + [getattr(each, "_client", None) for each in held]
    told = [getattr(client, "max_retries", None) for client in clients]
    return [number for number in told if isinstance(number, int)]


def _built_on_first_use(model: BaseChatModel) -> list[str]:
    """Return the properties in which some classes, Anthropic's for one, build their clients."""
    members = [member for kind in type(model).__mro__ for member in vars(kind).items()]
    return [
        name for name, value in members if isinstance(value, cached_property) and "client" in name
    ]


def _loses_counts(model: BaseChatModel) -> bool:
    """Return whether the model's streams do not ask for token counts, as LangChain may choose."""
    return getattr(model, "stream_usage", True) is not True


def _loses_cost(model: BaseChatModel) -> bool:
    """Return whether the provider tells what it charged, and LangChain drops it from streams."""
    address = model_identity(model).base_url or ""
    return (
        _TELLS_COST_IN_WHOLE_ANSWERS in address
        and hasattr(model, "root_client")
        and model.disable_streaming is not True
    )
