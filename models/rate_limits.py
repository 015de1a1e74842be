"""How many requests to one model may be in flight: fewer after a 429, slowly more again.

The rule is that of TCP (RFC 5681), additive increase and multiplicative decrease, with a refusal in
the place of a lost packet. It holds for all calls of the process to a model at an address; models
at the same address do not slow each other down, as providers limit each by itself. Requests wait
for a slot before any callback sees them, so what waits is neither journaled nor charged.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import PrivateAttr

from costada.models.event_loop import ModelWrapper, off_the_clock, seconds_left
from costada.models.provider_errors import is_rate_limit
from costada.models.providers import NO_PROVIDER, RetryPolicy
from costada.models.retries import (
    growing_wait,
    may_send_again,
    sleep_between_requests,
    with_jitter,
)
from costada.models.runnable_tree import AskedModel, with_models_changed
from costada.values.provider_error import retry_after

Result = TypeVar("Result")

POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 0.5
"""Seconds between two looks of a waiting request at whether it may leave: next, and far behind."""

NAMING_PARAMETERS = {"extra_body", "model", "model_name"}
"""Parameters of a request by which another model may be asked."""

_LOG = logging.getLogger("costada.rate")


@dataclass(slots=True)
class Refusals:
    """The refusals that a request has got so far.

    Attributes:
        answers_before: How many requests its model had answered before it was to leave, or when
            it was refused last.
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
        self._num_sent = 0
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
        slot = object()
        with self._lock:
            self._waiting.append(slot)
        return slot

    def leave(self, slot: object) -> None:
        """Give up a place in the queue, if it is still held."""
        with self._lock:
            if slot in self._waiting:
                self._waiting.remove(slot)

    def take(self, slot: object) -> int | None:
        """The number of the request that may leave now, from 1, or `None`: it has to wait.

        Requests leave in the order in which they entered the queue.
        """
        with self._lock:
            if monotonic() < self._paused_until:
                return None
            if self._allowed is not None:
                free = self._allowed - self._in_flight
                # Several may leave, whichever of them looks first: each of the first `free`.
                if self._waiting.index(slot) >= free:
                    return None
            self._waiting.remove(slot)
            self._in_flight += 1
            self._num_sent += 1
            return self._num_sent

    def poll_interval(self, slot: object) -> float:
        """Seconds until a waiting request should look again; fewer near the front."""
        with self._lock:
            return min(MAX_POLL_SECONDS, POLL_SECONDS * (1 + self._waiting.index(slot) // 8))

    def release(self) -> None:
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
            # With fewer, a burst as large as the one that was refused would be refused again.
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
            # A request that left before the last halving says nothing about the lower limit.
            if number > self._last_before_limit:
                self._last_before_limit = self._num_sent
                if self._allowed is None:
                    self._lifted_above = self._in_flight
                allowed = max(1, self._in_flight // 2)
                self._allowed, self._answers_of_limit = allowed, 0
                # It rises and falls from now on; only what is new is worth a line.
                if self._in_flight > 1 and (self._told is None or allowed < self._told):
                    self._tell(allowed, pause)
            return self._in_flight > 1 or self._num_answers > answers_before

    def forget_inherited(self) -> None:
        """Count no request of a parent process; what is known of the provider stays."""
        self._lock, self._in_flight = Lock(), 0
        self._waiting.clear()

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


def _forget_inherited() -> None:
    """In a forked process: no thread of the parent will release its requests, or the locks."""
    global _LIMITS_LOCK
    _LIMITS_LOCK = Lock()
    for limit in _LIMITS.values():
        limit.forget_inherited()


os.register_at_fork(after_in_child=_forget_inherited)


def rate_limit(model: BaseChatModel, bound: Mapping[str, Any] | None = None) -> RateLimit:
    """The limit of what a model asks with bound parameters, the same for all calls of the process.

    It goes by the name that is asked and the address without secrets, otherwise the provider.
    """
    asked = AskedModel(model, bound or {})
    address = asked.shown_url
    place = asked.provider if address is None else address.rstrip("/")
    full = f"{asked.name} at {place}" if place else asked.name
    with _LIMITS_LOCK:
        return _LIMITS.setdefault(full, RateLimit(full))


@dataclass(frozen=True, slots=True)
class RequestQueue:
    """Sends the requests of a model when a slot is free.

    A request that is refused while its model serves others is sent again, after waits as between
    retries; that is not a failed attempt. It ends when the deadline of its call would pass, or the
    call may send nothing again (`may_send_again`). The time that a request waits for its slot does
    not count towards that deadline.
    """

    limit: RateLimit
    policy: RetryPolicy = field(default_factory=RetryPolicy)

    async def send(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """What a request returns, or raises.

        Raises:
            InterruptedError: The run was asked to stop while the request waited.
        """
        refusals = Refusals(self.limit.num_answers)
        while True:
            number = await self._wait_for_slot()
            try:
                answer = await request()
            except BaseException as error:  # raised again unless the request can be repeated
                if not (is_rate_limit(error) and await self._can_repeat(error, number, refusals)):
                    raise
            else:
                self.limit.note_answer()
                return answer
            finally:
                self.limit.release()
            # After the release: a request that waits takes no slot from another one.
            await sleep_between_requests.get()(refusals.wait)

    async def _wait_for_slot(self) -> int:
        slot = self.limit.enter()
        try:
            number = self.limit.take(slot)
            if number is None:
                with off_the_clock():
                    while (number := self.limit.take(slot)) is None:
                        await sleep_between_requests.get()(self.limit.poll_interval(slot))
            return number
        finally:
            self.limit.leave(slot)

    async def _can_repeat(self, error: BaseException, number: int, refusals: Refusals) -> bool:
        """Note a refusal; returns whether the request can be repeated after `refusals.wait`."""
        asked, longest, left = retry_after(error), self.policy.longest_wait, seconds_left()
        is_too_long = asked is not None and asked > longest
        pause = None if is_too_long else asked
        is_serving = self.limit.note_refusal(number, pause, refusals.answers_before)
        # An answer to another request allows one repetition. Otherwise a model that serves no
        # more would be asked until the deadline of each call that its last answers have overtaken.
        refusals.answers_before = self.limit.num_answers
        refusals.number += 1
        if asked is None:
            refusals.wait = growing_wait(self.policy.retry_wait, longest, refusals.number)
        else:
            refusals.wait = with_jitter(asked)
        is_in_time = left is None or refusals.wait < left
        can_repeat = is_serving and is_in_time and not is_too_long
        return can_repeat and await asyncio.to_thread(may_send_again.get())


class RateLimitedModel(ModelWrapper):  # type: ignore[no-redef]
    """One chat model; each request to it waits for its slot. Its streams do not wait.

    `bound` is the chat model (`asked`), perhaps with something bound to it since.
    """

    asked: BaseChatModel
    policy: RetryPolicy
    _limit: RateLimit | None = PrivateAttr(default=None)

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Ask when a slot is free."""
        ask = super().ainvoke
        if kwargs.keys() & NAMING_PARAMETERS:
            limit = rate_limit(self.asked, kwargs)
        else:  # who is asked takes long to find out, and is the same each time
            limit = self._limit = self._limit or rate_limit(self.asked)
        queue = RequestQueue(limit, self.policy)
        return await queue.send(lambda: ask(input, config, **kwargs))


def request_queue(
    model: BaseChatModel, policy: RetryPolicy, bound: Mapping[str, Any] | None = None
) -> RequestQueue:
    """The queue of a model's requests with bound parameters."""
    return RequestQueue(rate_limit(model, bound), policy)


def with_rate_limits(
    runnable: Runnable[Any, Any], policy: RetryPolicy | None = None
) -> Runnable[Any, Any]:
    """A runnable that asks like the given one, each request when a slot is free.

    A model without a provider, or one that cannot be replaced in its runnable, asks at any time.
    """

    def change(model: BaseChatModel) -> Runnable[Any, Any]:
        if AskedModel(model).provider == NO_PROVIDER:
            return model
        return RateLimitedModel(bound=model, asked=model, policy=policy or RetryPolicy())

    return with_models_changed(runnable, change)
