"""The total deadline of a call, its retries and waits included."""

import socket
from collections.abc import Callable, Mapping, MutableMapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from threading import Thread
from time import monotonic
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

_OPENED = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})


class CallTimeout(TimeoutError):
    """A call was abandoned at its deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no complete answer within {seconds:g} seconds")


@dataclass(slots=True)
class _Call:
    """A running call: its deadline in seconds and by the monotonic clock, its connections."""

    seconds: float
    ends_at: float
    connections: list[Any] = field(default_factory=list)

    def give_up(self) -> None:
        """End the call now and shut its connections down."""
        self.ends_at = min(self.ends_at, monotonic())
        for connection in self.connections:
            with suppress(OSError):
                # Not the method of a TLS socket, which would change it under its reader.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


_CALL: ContextVar[_Call | None] = ContextVar("costada_call", default=None)


class HasExtensions(Protocol):
    """A request or a response of httpx."""

    @property
    def extensions(self) -> MutableMapping[str, Any]:
        """Further facts by name."""
        ...


def run_with_deadline(seconds: float, work: Callable[[], Result]) -> Result:
    """Run a function in a separate thread, in a copy of the caller's context, with a deadline.

    No timeout of a connection ends a body that arrives byte by byte. At the deadline, or when the
    caller is interrupted, the connections of `hooks` are shut down; the thread may run until the
    process ends.

    Raises:
        CallTimeout: At the deadline.
    """
    ended: Future[Result] = Future()
    context = copy_context()
    call = _Call(seconds, monotonic() + seconds)
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
        raise CallTimeout(seconds) from None
    finally:
        if not ended.done():
            call.give_up()


def seconds_left() -> float | None:
    """Seconds until the deadline of the call around it, `None` outside of any."""
    call = _CALL.get()
    return None if call is None else call.ends_at - monotonic()


def check_time_left() -> None:
    """Raise `CallTimeout` in an abandoned call."""
    call = _CALL.get()
    if call is not None and monotonic() >= call.ends_at:
        raise CallTimeout(call.seconds)


def hooks() -> dict[str, list[Callable[[HasExtensions], None]]]:
    """Event hooks of an httpx client that let a deadline shut its connections down."""

    def trace_connections(request: HasExtensions) -> None:
        if call := _CALL.get():

            def note_opened(event: str, facts: Mapping[str, Any]) -> None:
                if event in _OPENED:
                    call.connections.append(facts["return_value"].get_extra_info("socket"))

            request.extensions["trace"] = note_opened

    def note_connection(response: HasExtensions) -> None:
        """Note the connection of a response, which may have been open before."""
        call, stream = _CALL.get(), response.extensions.get("network_stream")
        if call is not None and stream is not None:
            call.connections.append(stream.get_extra_info("socket"))

    return {"request": [trace_connections], "response": [note_connection]}
