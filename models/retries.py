"""Retries that a meter can see: which request is sent again, and after which wait."""

import time
from collections.abc import Callable
from contextvars import ContextVar
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
