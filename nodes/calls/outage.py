"""Waiting for an unavailable provider: logged, interruptible, and limited in time."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from time import monotonic
from typing import TypeVar

from langgraph.runtime import get_runtime

from costada.evaluators.sandbox.concurrency import is_cancelled
from costada.models.asking import ModelFailure
from costada.models.errors import ModelUnusable
from costada.models.event_loop import run
from costada.models.providers import RetryPolicy
from costada.models.retries import growing_wait, with_jitter

Found = TypeVar("Found")

POLL_SECONDS = 0.2
"""Longest time until a waiting run notices that it is asked to stop."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PauseText:
    """What a pause says in the log.

    Attributes:
        provider: Who does not answer.
        end: What happens when the pause has lasted as long as it may.
        advice: What a user can do then; empty where the run continues.
    """

    provider: str
    end: str = "the run stops, saved,"
    advice: str = ", so the run stops here; resume it when the provider answers again"


class Pause:
    """The pause of a run, from the first failed call of an outage to the first answer."""

    def __init__(self, policy: RetryPolicy, text: PauseText) -> None:
        """Begin without one; the first `wait` begins it."""
        self._policy = policy
        self._text = text
        self._waits = 0
        self._began = 0.0

    @property
    def has_begun(self) -> bool:
        """Whether the run has waited."""
        return self._waits > 0

    def wait(self, failure: ModelFailure) -> None:
        """Wait before the call is made again, longer each time, and say so in the log.

        It is no shorter than the provider asks for.

        Raises:
            ModelUnusable: The pause has lasted as long as it may.
            InterruptedError: The run is asked to stop.
        """
        self._waits += 1
        if self._waits == 1:
            self._began = monotonic()
        longest, text = self._policy.longest_pause, self._text
        left = longest - (monotonic() - self._began)
        if left <= 0:
            raise ModelUnusable(
                f"{text.provider} has not answered for longest_pause ({longest:g} s){text.advice}"
                f" (last failure: {failure.reason})"
            )
        wait = growing_wait(self._policy.retry_wait, self._policy.longest_wait, self._waits)
        if failure.retry_after is not None:
            wait = max(wait, with_jitter(failure.retry_after))
        wait = min(wait, left)
        _LOG.warning(
            "Paused: %s does not answer (%s). Next try in %.0f s; %s at %s if there is no answer by"
            " then",
            text.provider,
            failure.reason,
            wait,
            text.end,
            (datetime.now() + timedelta(seconds=left)).strftime("%H:%M:%S"),
        )
        run(sleep_interruptibly(wait))

    def end(self) -> None:
        """Log that the run continues, if it was paused."""
        if self.has_begun:
            took, provider = monotonic() - self._began, self._text.provider
            _LOG.warning(
                "%s answers again after %.0f s; the run continues",
                provider[:1].upper() + provider[1:],
                took,
            )


class Outages:
    """The outages of one provider that a run has seen in this process.

    One call at a time waits for the provider and probes it. The others wait for the outcome: they
    go ahead when the probe was answered, and give up with the probe.
    """

    def __init__(self) -> None:
        self.outages_ended = 0
        """Outages after which the provider answered again."""
        self.given_up: list[str] = []
        """Why it is waited for no longer, once for each time that a call gave it up."""
        self._lock = Lock()

    def give_up(self, error: ModelUnusable) -> None:
        """Note that the provider is waited for no longer."""
        self.given_up.append(str(error))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn to probe, and have it during the block.

        Raises:
            InterruptedError: The run was asked to stop while it waited.
        """
        while not self._lock.acquire(timeout=POLL_SECONDS):
            check_may_wait()
        try:
            yield
        finally:
            self._lock.release()


def outlast(
    make: Callable[[], Found],
    repeat: Callable[[ModelFailure], Found],
    outage_in: Callable[[Found], ModelFailure | None],
    outages: Outages,
    pause: Pause,
) -> Found:
    """What `make` finds, or `repeat` after an outage of the provider.

    Args:
        make: Makes the call.
        repeat: Makes it again; it is given the last failure.
        outage_in: The failure that says that the provider is unavailable, `None` for none.
        outages: Shared by all calls to the provider.
        pause: Of this call.

    Raises:
        ModelUnusable: A pause, of this call or the one for which it waited, lasted too long.
        InterruptedError: The run was asked to stop while it waited.
    """
    outages_ended, num_given_up = outages.outages_ended, len(outages.given_up)
    found = make()
    while (failure := outage_in(found)) is not None:
        with outages.turn():
            if len(outages.given_up) > num_given_up:
                raise ModelUnusable(outages.given_up[-1])
            is_first = outages.outages_ended == outages_ended
            if is_first:
                while failure is not None:
                    try:
                        pause.wait(failure)
                    except ModelUnusable as error:
                        outages.give_up(error)
                        raise
                    found = repeat(failure)
                    failure = outage_in(found)
                outages.outages_ended += 1
            outages_ended = outages.outages_ended
        if not is_first and failure is not None:  # another call has seen the provider answer again
            found = repeat(failure)
    pause.end()
    return found


async def sleep_interruptibly(seconds: float) -> None:
    """Wait; raises `InterruptedError` soon after the run is asked to stop or to drain."""
    ends_at = monotonic() + seconds
    while True:
        check_may_wait()
        left = ends_at - monotonic()
        if left <= 0:
            return
        await asyncio.sleep(min(left, POLL_SECONDS))


def check_may_wait() -> None:
    """Raise `InterruptedError` if the run is asked to stop, or its graph after the current node."""
    is_draining = False
    with suppress(RuntimeError):  # outside a graph
        is_draining = bool(getattr(get_runtime(), "drain_requested", False))
    if is_draining or is_cancelled():
        raise InterruptedError("the run was asked to stop while it waited for its provider")
