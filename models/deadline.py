"""The total deadline of a call: everything that it does together ends in time."""

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from threading import Thread
from time import monotonic
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Call:
    """A call under way: when it ends, by the monotonic clock, and its responses' connections."""

    ends_at: float
    sockets: list[socket.socket] = field(default_factory=list)


_CALL: ContextVar[_Call | None] = ContextVar("costada_call", default=None)


class Response(Protocol):
    """A response of httpx whose body has not been read yet."""

    @property
    def extensions(self) -> Mapping[str, Any]:
        """What the transport tells beside the response."""
        ...


class CallTimeout(TimeoutError):
    """A call was given up at its deadline, so many seconds after it began."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no complete answer within {seconds:g} seconds")


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what some work returns, or raise what it raises, if it ends in time.

    It runs in a thread of its own, in a copy of the caller's context, for no timeout of a
    connection ends a body that arrives byte by byte. Work that is given up is abandoned:
    connections that `note_connection` has seen are shut down; what else it does may go on in its
    thread, until the process ends at the latest. `seconds_left` tells it how long it has.

    Args:
        seconds: The deadline, from now on.
        work: What to do.

    Raises:
        CallTimeout: The work has not ended in time.
    """
    ended: Future[Result] = Future()
    context = copy_context()
    call = _Call(monotonic() + seconds)
    context.run(_CALL.set, call)

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
        for connection in call.sockets:
            with suppress(OSError):
                # Not the method of a TLS socket, which would change it under its reader.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        raise CallTimeout(seconds) from None


def seconds_left() -> float | None:
    """Return the seconds until the deadline of the call around it, `None` outside of any."""
    call = _CALL.get()
    return None if call is None else call.ends_at - monotonic()


def note_connection(response: Response) -> None:
    """Have the connection of a response shut down when the call around it is given up.

    For the response hooks of a client of httpx.
    """
    call, stream = _CALL.get(), response.extensions.get("network_stream")
    if call is not None and stream is not None:
        call.sockets.append(stream.get_extra_info("socket"))
