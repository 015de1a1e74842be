"""The total deadline of a call, its retries and the waits between them included."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar


class CallTimeout(TimeoutError):
    """A call was abandoned at its deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no complete answer within {seconds:g} seconds")


class _Clock:
    """The clock of a running call; tasks of the call may stop it at the same time."""

    def __init__(self, timer: asyncio.Timeout) -> None:
        self._timer = timer
        self._loop = asyncio.get_running_loop()
        self._left_at_stop, self._num_stops = 0.0, 0

    @property
    def left(self) -> float:
        """Seconds until the deadline; they stay the same while the clock is stopped."""
        when = self._timer.when()
        return self._left_at_stop if when is None else when - self._loop.time()

    def stop(self) -> None:
        """Let no time of the call pass."""
        self._num_stops += 1
        if self._num_stops == 1:
            self._left_at_stop = self.left
            self._timer.reschedule(None)

    def restart(self) -> None:
        """Let time pass again once all who stopped the clock have restarted it."""
        self._num_stops -= 1
        if not self._num_stops and not self._timer.expired():
            self._timer.reschedule(self._loop.time() + self._left_at_stop)


_CLOCK: ContextVar[_Clock | None] = ContextVar("costada_clock", default=None)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Cancel the block at a deadline.

    Raises:
        CallTimeout: At the deadline.
    """
    try:
        async with asyncio.timeout(seconds) as timer:
            outer = _CLOCK.set(_Clock(timer))
            try:
                yield
            finally:
                _CLOCK.reset(outer)
    except TimeoutError:
        if not timer.expired():
            raise
        raise CallTimeout(seconds) from None


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Wait for something that is not part of the call: its deadline moves by the time it takes."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    clock.stop()
    try:
        yield
    finally:
        clock.restart()


def seconds_left() -> float | None:
    """Seconds until the deadline of the call around it, `None` outside of any."""
    clock = _CLOCK.get()
    return None if clock is None else clock.left
