"""Whether a model answers: pauses while its provider is unavailable, and when it is given up.

A pause is logged, interruptible and limited in time.
"""

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
from costada.models.asking import FailureKind, ModelFailure
from costada.models.errors import ModelRefused, ModelUnusable, ProviderAway
from costada.models.event_loop import run
from costada.models.providers import RetryPolicy
from costada.models.retries import growing_wait, with_jitter
from costada.nodes.context import PerRun, PricedModel, RunContext
from costada.store.call_log import CallFilter, CallKey, CallLog
from costada.store.rows import OutcomeKind
from costada.values.roles import GUIDE

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
            ProviderAway: The pause has lasted as long as it may.
            InterruptedError: The run is asked to stop.
        """
        self._waits += 1
        if self._waits == 1:
            self._began = monotonic()
        longest, text = self._policy.longest_pause, self._text
        left = longest - (monotonic() - self._began)
        if left <= 0:
            raise ProviderAway(
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
        self.given_up: list[ModelUnusable] = []
        """Why it is waited for no longer, once for each time that a call gave it up."""
        self._lock = Lock()

    def give_up(self, error: ModelUnusable) -> None:
        """Note that the provider is waited for no longer."""
        self.given_up.append(error)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn to probe, and have it during the block.

        Raises:
            InterruptedError: The run was asked to stop while it waited.
        """
        # with a timeout, as nothing wakes a thread in `acquire` when its run is cancelled
        while not self._lock.acquire(timeout=POLL_SECONDS):
            check_may_wait()
        try:
            yield
        finally:
            self._lock.release()


def again(error: ModelUnusable) -> ModelUnusable:
    """The same error for another thread: one that is raised twice mixes the places of both."""
    return type(error)(*error.args)


def outlast(
    make: Callable[[], Found],
    repeat: Callable[[ModelFailure], Found],
    outage_in: Callable[[Found], ModelFailure | None],
    outages: Outages,
    pause: Pause,
) -> Found:
    """The result of `make`, or of `repeat` after an outage of the provider.

    Args:
        make: Makes the call.
        repeat: Makes it again; it is given the last failure.
        outage_in: The failure that says that the provider is unavailable, `None` for none.
        outages: Shared by all calls to the provider.
        pause: Of this call.

    Raises:
        ProviderAway: A pause, of this call or the one for which it waited, lasted too long.
        InterruptedError: The run was asked to stop while it waited.
    """
    # Noted before the call is made: an outage that ends, or is given up, while this call waits for
    # its turn is the one that made it fail.
    outages_ended, num_given_up = outages.outages_ended, len(outages.given_up)
    found = make()
    while (failure := outage_in(found)) is not None:
        with outages.turn():
            if len(outages.given_up) > num_given_up:
                raise again(outages.given_up[-1])
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
        raise InterruptedError("the run was asked to stop while it waited")


MAX_UNANSWERED = 3
"""Requests after which a model that never gave a usable answer is given up."""

OUTCOMES = {
    FailureKind.REFUSED: OutcomeKind.REFUSAL,
    FailureKind.TIMEOUT: OutcomeKind.TIMEOUT,
    FailureKind.NO_PROTOCOL: OutcomeKind.NO_PROTOCOL,
}
"""Failures that are kept with their kind; the others are kept as failures."""

PERHAPS_DOWN = (FailureKind.TIMEOUT, FailureKind.NO_PROTOCOL)
"""Failures that may be due to one request; two in a row are an outage."""

OUTAGES = PerRun[dict[CallFilter, Outages]](dict)
"""The outages of each model of a run."""


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """What a run knows of one of its models.

    All but `outages` is read from the journal, so that a run which is resumed comes to the same
    conclusions. A separate guide model and each model of a menu have a record of their own.

    Attributes:
        run_id: The run.
        calls: Which of its calls go to the model.
        num_first: Requests that the model may get without a usable answer.
        has_others: Whether other models of the menu are left to make its attempts.
        may_be_uncounted: Whether its answers may come without token counts.
        outages: What this process has seen of it.
    """

    call_log: CallLog
    run_id: str
    calls: CallFilter
    num_first: int
    has_others: bool
    may_be_uncounted: bool
    outages: Outages

    def check_usable(self) -> None:
        """Refuse to ask a model that was given up, while others are left.

        The last model is asked again, as it may have recovered since.

        Raises:
            ModelUnusable: With the reason for which it was given up.
        """
        if not self.has_others:
            return
        if self.outages.given_up:
            raise again(self.outages.given_up[-1])
        if not self.may_be_uncounted and self.call_log.has_uncounted(self.run_id, self.calls):
            raise ModelUnusable("an earlier answer of the model came without token counts")
        if not self.may_send_again():
            raise ModelUnusable(self._unanswered())

    def may_send_again(self) -> bool:
        """Whether a call may repeat a request, although the model may never have answered."""
        return not self.has_others or self._has_answered or self._num_ended < self.num_first

    def give_up(self, error: ModelUnusable) -> None:
        """Note that the model refuses all further requests, so that no other call asks it."""
        if self.has_others:
            self.outages.give_up(error)

    def is_outage(self, failure: ModelFailure, *, is_paused: bool) -> bool:
        """Whether the run has to wait for the model, which has answered it before.

        One call that timed out may have been too long to answer, and one web page in place of an
        answer may be one server's. Two such calls in a row, or one within a pause, are an outage.

        Raises:
            ModelUnusable: The model has given no usable answer so far, and further requests would
                not bring one.
        """
        if self._has_answered:
            if failure.kind in PERHAPS_DOWN:
                last = self.call_log.last_kind(self.run_id, self.calls)
                return is_paused or last in [OUTCOMES[kind] for kind in PERHAPS_DOWN]
            return failure.kind is FailureKind.DOWN
        if failure.kind is FailureKind.NO_PROTOCOL:
            raise ModelRefused(failure.reason)
        if failure.kind is FailureKind.REFUSED:
            raise ModelUnusable(failure.reason)
        if self._num_ended >= self.num_first:
            raise ProviderAway(f"{self._unanswered()}; last failure: {failure.reason}")
        return False

    @property
    def pause_text(self) -> PauseText:
        """What the log says while the run waits for the model."""
        provider = "the provider"
        if not self.has_others:
            return PauseText(provider)
        return PauseText(provider, end="the model is disabled", advice="")

    @property
    def _has_answered(self) -> bool:
        return self.call_log.has_answer(self.run_id, self.calls)

    @property
    def _num_ended(self) -> int:
        return self.call_log.num_requests(self.run_id, self.calls)

    def _unanswered(self) -> str:
        return f"none of the {self._num_ended} requests so far got a usable answer"


def health_of(
    asked: PricedModel, key: CallKey, context: RunContext, *, has_others: bool = False
) -> ModelHealth:
    """The health of the model that a call asks."""
    entry = context.entry_of(asked)
    is_separate = entry is None and context.guide_model is not None
    calls = CallFilter(key.role == GUIDE if is_separate else None, entry)
    outages = OUTAGES.of(context.store, key.run_id).setdefault(calls, Outages())
    return ModelHealth(
        call_log=context.store.call_log,
        run_id=key.run_id,
        calls=calls,
        num_first=max(MAX_UNANSWERED, context.parallel),
        has_others=has_others,
        may_be_uncounted=context.settings.on_missing_usage == "estimate",
        outages=outages,
    )
