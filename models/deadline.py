"""The total deadline of a call: everything that it does together ends in time."""

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from threading import Thread
from time import monotonic
from typing import TypeVar

Result = TypeVar("Result")

_ENDS_AT: ContextVar[float] = ContextVar("costada_call_ends_at")


class CallTimeout(TimeoutError):
    """A call was given up at its deadline, so many seconds after it began."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no complete answer within {seconds:g} seconds")


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what some work returns, or raise what it raises, if it ends in time.

    It runs in a thread of its own, in a copy of the caller's context, for no timeout of a
    connection ends a body that arrives byte by byte. Work that is given up is abandoned: its
    thread may go on, and ends with the process at the latest. `seconds_left` tells it how long it
    has.

    Args:
        seconds: The deadline, from now on.
        work: What to do.

    Raises:
        CallTimeout: The work has not ended in time.
    """
    ended: Future[Result] = Future()
    context = copy_context()
    context.run(_ENDS_AT.set, monotonic() + seconds)

    def run() -> None:
        try:
            ended.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            ended.set_exception(error)

    Thread(target=run, name="costada-call", daemon=True).start()
    try:
        return ended.result(seconds)
    except TimeoutError:
        if ended.done():
            raise
        raise CallTimeout(seconds) from None


def seconds_left() -> float | None:
    """Return the seconds until the deadline of the call around it, `None` outside of any."""
    ends_at = _ENDS_AT.get(None)
    return None if ends_at is None else ends_at - monotonic()
