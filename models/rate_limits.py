"""How many requests to one model may be in flight: fewer after a 429, slowly more again.

The rule is that of TCP (RFC 5681), additive increase and multiplicative decrease, with a refusal in
the place of a lost packet. It holds for all calls of the process to a model at an address; models
at the same address do not slow each other down, as providers limit each by itself. Requests wait
for their turn before any callback sees them, so what waits is neither journaled nor charged.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import get_config_list

from costada.models.deadline import check_time_left, off_the_clock, releasing, seconds_left
from costada.models.metering import NO_PROVIDER
from costada.models.provider_errors import is_rate_limit
from costada.models.retries import (
    growing_wait,
    may_send_again,
    sleep_between_requests,
    with_jitter,
)
from costada.models.retry_policy import RetryPolicy
from costada.models.runnable_tree import model_identity, with_models_changed
from costada.values.provider_error import retry_after

Result = TypeVar("Result")

TICK_SECONDS, LONGEST_TICK = 0.05, 0.5
"""Seconds between two looks of a waiting request at whether it may leave: next, and far behind."""

_LOG = logging.getLogger("costada.rate")


@dataclass(slots=True)
class Refusals:
    """The refusals that a request has got so far.

    Attributes:
        answers_before: How many requests its model had answered before it was to leave.
        number: How many refusals.
        wait: Seconds to wait after the last of them.
    """

    answers_before: int
    number: int = 0
    wait: float = 0.0


class RateLimit:
    """The requests in flight to one model, and how many there may be."""

    def __init__(self, name: str) -> None:
        """Begin without a limit; `name` is what the log calls the model."""
        self._name = name
        self._allowed: int | None = None
        self._lifted_above = 0
        self._in_flight = 0
        self._num_turns = 0
        self._num_answers = 0
        self._answers_of_limit = 0
        self._last_before_limit = 0
        self._paused_until = 0.0
        self._told: int | None = None
        self._waiting: deque[object] = deque()
        self._lock = Lock()

    @property
    def allowed(self) -> int | None:
        """How many requests may be in flight, `None` without a limit."""
        return self._allowed

    @property
    def num_answers(self) -> int:
        """How many requests have been answered."""
        return self._num_answers

    def enter(self) -> object:
        """A place at the end of the queue."""
        place = object()
        with self._lock:
            self._waiting.append(place)
        return place

    def leave(self, place: object) -> None:
        """Give a place in the queue up, if it is still held."""
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)

    def take(self, place: object) -> int | None:
        """Let the request of a place leave, or return `None` if it has to wait; first come first.

        Returns:
            The number of the request, from 1.
        """
        with self._lock:
            if monotonic() < self._paused_until:
                return None
            if self._allowed is not None:
                free = self._allowed - self._in_flight
                if self._waiting.index(place) >= free:
                    return None
            self._waiting.remove(place)
            self._in_flight += 1
            self._num_turns += 1
            return self._num_turns

    def seconds_to_look(self, place: object) -> float:
        """Seconds until a place that has to wait should look again; fewer near the front."""
        with self._lock:
            return min(LONGEST_TICK, TICK_SECONDS * (1 + self._waiting.index(place) // 8))

    def give_back(self) -> None:
        """Note that a request has ended, however it did."""
        with self._lock:
            self._in_flight -= 1

    def note_answer(self) -> None:
        """Allow one request more after as many answers as there may be requests in flight.

        The limit is lifted when it exceeds what was in flight before it and keeps no request
        waiting.
        """
        with self._lock:
            self._num_answers += 1
            if self._allowed is None:
                return
            self._answers_of_limit += 1
            if self._answers_of_limit < self._allowed:
                return
            self._answers_of_limit = 0
            self._allowed += 1
            wanted = self._in_flight + len(self._waiting)
            if self._allowed > self._lifted_above and self._allowed >= wanted:
                self._allowed = None
                if self._told is not None:
                    _LOG.warning("Rate limit of %s: recovered, no limit now", self._name)
                self._told = None

    def note_refusal(self, number: int, pause: float | None, answers_before: int) -> bool:
        """Allow half of the requests that are in flight, at least one.

        Of requests that left together only the first that is refused counts.

        Args:
            number: Which request was refused; it is still in flight.
            pause: Seconds in which no request leaves, if the provider names them.
            answers_before: As in `Refusals`.

        Returns:
            Whether the model serves other requests, so that this one can be repeated.
        """
        with self._lock:
            if pause is not None:
                self._paused_until = max(self._paused_until, monotonic() + pause)
            if number > self._last_before_limit:
                self._last_before_limit = self._num_turns
                if self._allowed is None:
                    self._lifted_above = self._in_flight
                allowed = max(1, self._in_flight // 2)
                self._allowed, self._answers_of_limit = allowed, 0
                # It rises and falls from now on; only what is new is worth a line.
                if self._in_flight > 1 and (self._told is None or allowed < self._told):
                    self._tell(allowed, pause)
            return self._in_flight > 1 or self._num_answers > answers_before

    def _tell(self, allowed: int, pause: float | None) -> None:
        self._told = allowed
        _LOG.warning(
            "Rate limit of %s: at most %d request%s at a time now%s",
            self._name,
            allowed,
            "" if allowed == 1 else "s",
            f", the next in {pause:.0f} s" if pause else "",
        )


_LIMITS: dict[str, RateLimit] = {}
_LIMITS_LOCK = Lock()


def rate_limit(model: BaseChatModel, bound: Mapping[str, Any] | None = None) -> RateLimit:
    """The limit of what a model asks with bound parameters, the same for all calls of the process.

    It goes by the name that is asked and the address without secrets, otherwise the provider.
    """
    name, provider, base_url = model_identity(model, bound)
    place = provider
    if base_url is not None:
        parts = urlsplit(base_url)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    full = f"{name} at {place}" if place else name
    with _LIMITS_LOCK:
        return _LIMITS.setdefault(full, RateLimit(full))


@dataclass(frozen=True, slots=True)
class Turns:
    """Sends the requests of a model when it is their turn.

    A request that is refused while its model serves others is sent again, after waits as between
    retries; that is no failed attempt. It ends when the deadline of its call would pass, or the
    call may send nothing again (`may_send_again`). The time that a request waits for its turn does
    not count towards that deadline.
    """

    limit: RateLimit
    policy: RetryPolicy = field(default_factory=RetryPolicy)

    def ask(self, send: Callable[[], Result]) -> Result:
        """What `send` returns, or raises.

        Raises:
            CallTimeout: The call was given up while its request waited.
            InterruptedError: The run was asked to stop while it waited.
        """
        refusals = Refusals(self.limit.num_answers)
        while True:
            with self._sending(self._wait_for_turn(), refusals):
                return send()
            sleep_between_requests.get()(refusals.wait)

    async def aask(self, send: Callable[[], Awaitable[Result]]) -> Result:
        """`ask` without blocking the event loop."""
        refusals = Refusals(self.limit.num_answers)
        while True:
            place = self.limit.enter()
            try:
                while (number := self.limit.take(place)) is None:
                    await asyncio.sleep(self.limit.seconds_to_look(place))
            finally:
                self.limit.leave(place)
            with self._sending(number, refusals):
                return await send()
            await asyncio.sleep(refusals.wait)

    @contextmanager
    def _sending(self, number: int, refusals: Refusals) -> Iterator[None]:
        """Note how a request ends; a refusal is not raised if the request can be repeated."""
        with releasing(self.limit.give_back):
            try:
                yield
            except BaseException as error:  # raised again unless the request can be repeated
                if not (is_rate_limit(error) and self._can_repeat(error, number, refusals)):
                    raise
            else:
                self.limit.note_answer()

    def _wait_for_turn(self) -> int:
        place = self.limit.enter()
        try:
            number = self.limit.take(place)
            if number is None:
                with off_the_clock():
                    while (number := self.limit.take(place)) is None:
                        check_time_left()
                        sleep_between_requests.get()(self.limit.seconds_to_look(place))
            return number
        finally:
            self.limit.leave(place)

    def _can_repeat(self, error: BaseException, number: int, refusals: Refusals) -> bool:
        """Note a refusal; returns whether the request can be repeated after `refusals.wait`."""
        asked, longest, left = retry_after(error), self.policy.longest_wait, seconds_left()
        is_too_long = asked is not None and asked > longest
        pause = None if is_too_long else asked
        is_serving = self.limit.note_refusal(number, pause, refusals.answers_before)
        refusals.number += 1
        if asked is None:
            refusals.wait = growing_wait(self.policy.retry_wait, longest, refusals.number)
        else:
            refusals.wait = with_jitter(asked)
        is_in_time = left is None or refusals.wait < left
        return is_serving and is_in_time and not is_too_long and may_send_again.get()()


class RateLimitedModel(RunnableBindingBase[LanguageModelInput, AIMessage]):  # type: ignore[no-redef]
    """One chat model; each request to it waits for its turn. Its streams do not wait.

    `bound` is the chat model (`asked`), perhaps with something bound to it since.
    """

    asked: BaseChatModel
    policy: RetryPolicy

    def invoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Ask when it is the request's turn."""
        turns = turns_of(self.asked, self.policy, kwargs)
        return turns.ask(partial(super().invoke, input, config, **kwargs))

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """`invoke` without blocking the event loop."""
        turns = turns_of(self.asked, self.policy, kwargs)
        return await turns.aask(partial(super().ainvoke, input, config, **kwargs))

    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """Ask for each input, one after the other; an error may take an answer's place."""
        answers: list[AIMessage] = []
        for each, given in zip(inputs, get_config_list(config, len(inputs)), strict=True):
            answers += Runnable.batch(
                self, [each], given, return_exceptions=return_exceptions, **kwargs
            )
        return answers


def turns_of(
    model: BaseChatModel, policy: RetryPolicy, bound: Mapping[str, Any] | None = None
) -> Turns:
    """The turns of a model's requests with bound parameters."""
    return Turns(rate_limit(model, bound), policy)


def with_rate_limits(
    runnable: Runnable[Any, Any], policy: RetryPolicy | None = None
) -> Runnable[Any, Any]:
    """A runnable that asks like the given one, with each request in its turn.

    A model without a provider, or one that cannot be replaced in its runnable, asks at any time.
    """

    def change(model: BaseChatModel) -> Runnable[Any, Any]:
        if model_identity(model).provider == NO_PROVIDER:
            return model
        return RateLimitedModel(bound=model, asked=model, policy=policy or RetryPolicy())

    return with_models_changed(runnable, change)
