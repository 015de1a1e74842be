"""Waiting for an unavailable provider: logged, interruptible, and limited in time."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from selectors import EVENT_READ, DefaultSelector
from threading import Lock
from time import monotonic

from langgraph.runtime import get_runtime

from costada.evaluators.sandbox.cancellation import heard_tokens
from costada.models.asking import ModelFailure
from costada.models.errors import ModelUnusable
from costada.models.retries import growing_wait, with_jitter
from costada.models.retry_policy import RetryPolicy
from costada.nodes.per_run import PerRun

TICK_SECONDS = 0.5
"""Longest time until a waiting run notices a request to drain."""

_LOG = logging.getLogger(__name__)


class Pause:
    """The pause of a run, from the first failed call of an outage to the first answer."""

    def __init__(self, policy: RetryPolicy, *, has_choice: bool = False) -> None:
        """Begin without one; the first `wait` begins it.

        Args:
            policy: How long to wait.
            has_choice: Whether other models may answer when this one does not.
        """
        self._policy = policy
        self._end = "the model is put aside" if has_choice else "the run stops, saved,"
        self._advice = (
            ""
            if has_choice
            else ", so the run stops here; resume it when the provider answers again"
        )
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
        longest = self._policy.longest_pause
        left = longest - (monotonic() - self._began)
        if left <= 0:
            raise ModelUnusable(
                f"the provider has not answered for longest_pause ({longest:g} s){self._advice}"
                f" (last failure: {failure.reason})"
            )
        wait = growing_wait(self._policy.retry_wait, self._policy.longest_wait, self._waits)
        if failure.retry_after is not None:
            wait = max(wait, with_jitter(failure.retry_after))
        wait = min(wait, left)
        _LOG.warning(
            "Paused: the provider does not answer (%s). Next try in %.0f s; %s at %s if there is no"
            " answer by then",
            failure.reason,
            wait,
            self._end,
            (datetime.now() + timedelta(seconds=left)).strftime("%H:%M:%S"),
        )
        sleep_interruptibly(wait)

    def end(self) -> None:
        """Log that the run continues, if it was paused."""
        if self.has_begun:
            took = monotonic() - self._began
            _LOG.warning("The provider answers again after %.0f s; the run continues", took)


class ProbeTurns:
    """Lets one call of a run at a time wait for an unavailable provider and probe it.

    The other calls in flight wait for their turn, and go ahead when the probe was answered.
    """

    def __init__(self) -> None:
        self.num_over = 0
        """Outages that have ended."""
        self._lock = Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn and have it during the block.

        Raises:
            InterruptedError: The run was asked to stop while it waited.
        """
        while not self._lock.acquire(timeout=TICK_SECONDS):
            sleep_interruptibly(0.001)
        try:
            yield
        finally:
            self._lock.release()


PROBE_TURNS = PerRun(ProbeTurns)


def sleep_interruptibly(seconds: float) -> None:
    """Wait; raises `InterruptedError` soon after the run is asked to stop or to drain."""
    deadline = monotonic() + seconds
    with DefaultSelector() as selector:
        for token in heard_tokens():
            selector.register(token, EVENT_READ)
        while (left := deadline - monotonic()) > 0:
            if selector.select(min(left, TICK_SECONDS)) or _is_draining():
                raise InterruptedError("the run was asked to stop while it waited for its provider")


def _is_draining() -> bool:
    """Whether the surrounding graph is asked to stop after the current node."""
    try:
        runtime = get_runtime()
    except RuntimeError:  # outside a graph
        return False
    return bool(getattr(runtime, "drain_requested", False))
