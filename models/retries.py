"""Retries that a meter can see: each is a separate request, none is hidden in a client."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig

from costada.models.event_loop import ModelWrapper, seconds_left
from costada.models.langchain_openai import (
    client_retries,
    is_safe_in_loop,
    loses_response_ids,
    safe_in_loop,
    with_response_ids,
    without_client_retries,
)
from costada.models.provider_errors import is_transient
from costada.models.providers import RetryPolicy
from costada.models.runnable_tree import AskedModel, underlying_models, with_models_changed
from costada.values.provider_error import retry_after

Result = TypeVar("Result")

JITTER = 0.2
"""The largest part by which a wait is made longer at random, so that clients spread out."""

_REPORTS_COST_IN_WHOLE_ANSWERS = "openrouter.ai"
# A generator of its own: waits must not change what a program draws from the shared one.
_RANDOM = Random()

sleep_between_requests: ContextVar[Callable[[float], Awaitable[None]]] = ContextVar(
    "sleep_between_requests", default=asyncio.sleep
)
"""How a wait between two requests is spent, in seconds; a run can interrupt it."""

may_send_again: ContextVar[Callable[[], bool]] = ContextVar("may_send_again", default=lambda: True)
"""Whether a call may repeat a request that has just failed; a run can forbid it. Called in a
thread, as it may read a database."""


def growing_wait(first: float, longest: float, number: int) -> float:
    """Seconds to wait after the `number`-th failure in a row, from 1, with jitter."""
    # 2.0 ** 1024 is an OverflowError.
    return with_jitter(min(longest, first * 2.0 ** min(number - 1, 60)))


def with_jitter(seconds: float) -> float:
    """A wait that is longer by up to `JITTER` of it, never shorter."""
    return seconds * (1 + JITTER * _RANDOM.random())


@dataclass(frozen=True, slots=True)
class Retries:
    """How a request is sent again after a transient error of any provider.

    Attributes:
        max_attempts: Number of requests, the first included.
        first_wait: Seconds to wait after the first failure; they double from failure to failure.
        longest_wait: Longest wait, in seconds. Nothing is sent again to a provider that asks for a
            longer one.
    """

    max_attempts: int
    first_wait: float
    longest_wait: float = RetryPolicy().longest_wait

    async def send(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """What a request returns, or raises in its last attempt."""
        number = 0
        while True:
            number += 1
            try:
                return await request()
            except BaseException as error:  # raised again unless another attempt may succeed
                # Without a repeat the original error is raised, with the traceback by which
                # `provider_errors` tells whether anything was sent.
                wait = self._wait_after(error, number)
                if wait is None or not await asyncio.to_thread(may_send_again.get()):
                    raise
            await sleep_between_requests.get()(wait)

    def _wait_after(self, error: BaseException, number: int) -> float | None:
        """Seconds to wait after the `number`-th failure, `None` if it is the last.

        It is where the wait would pass the deadline of the call.
        """
        if number >= self.max_attempts or not is_transient(error):
            return None
        asked, left = retry_after(error), seconds_left()
        if asked is None:
            wait = growing_wait(self.first_wait, self.longest_wait, number)
        elif asked > self.longest_wait:
            return None
        else:
            wait = with_jitter(asked)
        return wait if left is None or wait < left else None


class RetriedModel(ModelWrapper):  # type: ignore[no-redef]
    """A chat model that sends a request again after a transient error."""

    retries: Retries

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Ask, and ask again."""
        ask = super().ainvoke
        return await self.retries.send(lambda: ask(input, config, **kwargs))


def with_retries(
    model: BaseChatModel,
    max_attempts: int,
    wait_seconds: float,
    longest_wait: float = RetryPolicy().longest_wait,
) -> Runnable[LanguageModelInput, AIMessage]:
    """A model that sends a request again after a transient error, see `Retries`."""
    return RetriedModel(bound=model, retries=Retries(max_attempts, wait_seconds, longest_wait))


def with_visible_requests(
    runnable: Runnable[Any, Any], policy: RetryPolicy | None = None
) -> Runnable[Any, Any]:
    """A runnable that asks like the given one, with nothing hidden from a meter.

    Clients of the OpenAI, Anthropic and similar SDKs send a failed request again by themselves,
    two times by default, and each of these may be billed. The returned runnable retries as often
    outside of the client, where a meter sees each request. Streams report their token counts and
    the id of their response; where they would lose the reported cost, answers are not streamed.
    Requests can be made in the loop of paid calls, see `safe_in_loop`. The given runnable is not
    modified, and is returned itself where nothing has to change.

    Raises:
        ValueError: If a model retries by itself and cannot be replaced or configured not to.
    """
    if not any(
        hidden_retries(model)
        or _loses_cost(model)
        or _loses_counts(model)
        or loses_response_ids(model)
        or not is_safe_in_loop(model)
        for model in underlying_models(runnable)
    ):
        return runnable
    waits = policy or RetryPolicy()

    def change(model: BaseChatModel) -> Runnable[Any, Any]:
        hidden, reporting = hidden_retries(model), _with_whole_reports(model)
        if not hidden:
            return safe_in_loop(reporting)
        sending_once = safe_in_loop(without_client_retries(reporting))
        return with_retries(sending_once, 1 + hidden, waits.retry_wait, waits.longest_wait)

    changed = with_models_changed(runnable, change)
    for model in underlying_models(changed):
        _refuse_hidden_retries(model)
    return changed


def without_hidden_retries(model: BaseChatModel) -> tuple[BaseChatModel, int]:
    """A chat model with nothing hidden from a meter, and how often it used to retry.

    The retries are left to the caller. Streams report their token counts and the id of their
    response.

    Raises:
        ValueError: If the model retries by itself and cannot be configured not to.
    """
    hidden = hidden_retries(model)
    changed = _with_whole_reports(without_client_retries(model) if hidden else model)
    _refuse_hidden_retries(changed)
    return changed, hidden


def hidden_retries(model: BaseChatModel) -> int:
    """How often a model's client may send a failed request again by itself."""
    if (of_clients := client_retries(model)) is not None:
        return of_clients
    stated = getattr(model, "max_retries", None)
    return stated if isinstance(stated, int) else 0


def _refuse_hidden_retries(model: BaseChatModel) -> None:
    if hidden := hidden_retries(model):
        raise ValueError(
            f"model {AskedModel(model).name!r} sends a failed request again by itself, up"
            f" to {hidden} times, so what it costs cannot be known; expected max_retries=0"
        )


def _with_whole_reports(model: BaseChatModel) -> BaseChatModel:
    if _loses_cost(model):
        model = model.model_copy(update={"disable_streaming": True})
    if _loses_counts(model):
        model = model.model_copy(update={"stream_usage": True})
    return with_response_ids(model) if loses_response_ids(model) else model


def _loses_counts(model: BaseChatModel) -> bool:
    """Whether the model's streams do not ask for token counts, as LangChain may choose."""
    return getattr(model, "stream_usage", True) is not True


def _loses_cost(model: BaseChatModel) -> bool:
    """Whether the provider reports what it charged, and LangChain drops it from streams."""
    return (
        _REPORTS_COST_IN_WHOLE_ANSWERS in (AskedModel(model).base_url or "")
        and hasattr(model, "root_client")
        and model.disable_streaming is not True
    )
