"""The total deadline of a call, its retries and waits included, and the connections it closes."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from threading import Lock, Thread
from time import monotonic
from typing import Any, TypeVar

Result = TypeVar("Result")

KEPT_OPEN_SECONDS = 4.0
"""How long an idle connection is kept open. Common servers close theirs after 5 seconds."""

_SHORTEST_LOOK = 0.05
"""Seconds between two looks at a deadline that moves."""


class CallTimeout(TimeoutError):
    """A call was abandoned at its deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no complete answer within {seconds:g} seconds")


class _Call:
    """A running call: its deadline by the monotonic clock, and the connections it has used."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.connections: set[Connection] = set()
        self._ends_at = monotonic() + seconds
        self._stopped_at = 0.0
        self._num_stops = 0
        self._releases: dict[object, Callable[[], None]] = {}
        self._lock = Lock()

    @property
    def left(self) -> float:
        """Seconds until the deadline; they stay the same while the clock is stopped."""
        with self._lock:
            return self._ends_at - (self._stopped_at if self._num_stops else monotonic())

    def stop_clock(self) -> None:
        """Let no time of the call pass; several threads of the call may stop it at once."""
        with self._lock:
            self._num_stops += 1
            if self._num_stops == 1:
                self._stopped_at = monotonic()

    def restart_clock(self) -> None:
        """Let time pass again once all who stopped the clock have restarted it."""
        with self._lock:
            self._num_stops -= 1
            if not self._num_stops:
                self._ends_at += monotonic() - self._stopped_at

    def hold(self, release: Callable[[], None]) -> object:
        """Note how to release what the call holds; returns what `release` takes."""
        held = object()
        with self._lock:
            self._releases[held] = release
        return held

    def release(self, held: object) -> None:
        """Release what the call holds, if that has not been done."""
        with self._lock:
            release = self._releases.pop(held, None)
        if release:
            release()

    def give_up(self) -> None:
        """End the call now, whatever its clock says: shut its connections down, release all."""
        with self._lock:
            self._ends_at = float("-inf")
        for connection in tuple(self.connections):
            connection.shut_down(self)
        for held in tuple(self._releases):
            self.release(held)


_CALL: ContextVar[_Call | None] = ContextVar("costada_call", default=None)


class Connection:
    """A connection of an HTTP client's pool, which the deadline of a call can shut down.

    It offers what a network stream of httpcore offers. A connection that is kept open serves one
    call after the other, and only the call that uses it may shut it down: whoever writes to it uses
    it, until the pool looks whether it is still open, which it does to idle connections only.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._user: _Call | None = None
        self._lock = Lock()
        self._note_user()

    def _note_user(self) -> None:
        call = _CALL.get()
        if call is not self._user:
            with self._lock:
                self._user = call
        if call is not None:
            call.connections.add(self)

    def shut_down(self, call: _Call) -> None:
        """End whatever is waiting for the connection, if it is the given call's."""
        with self._lock, suppress(OSError):
            if self._user is call:
                # Not the method of a TLS socket, which would change it under its reader.
                held = self._stream.get_extra_info("socket")
                socket.socket.shutdown(held, socket.SHUT_RDWR)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what has arrived."""
        return bytes(self._stream.read(max_bytes, timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        self._note_user()
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(self, *args: Any, **kwargs: Any) -> "Connection":
        """The connection, encrypted from now on."""
        return Connection(self._stream.start_tls(*args, **kwargs))

    def get_extra_info(self, info: str) -> Any:
        """A fact about the connection, such as its socket or whether it can be read."""
        if info == "is_readable":
            with self._lock:
                self._user = None
        return self._stream.get_extra_info(info)


class ConnectionMaker:
    """A network backend of httpcore that opens connections as another one does.

    The deadline of the call around a request can shut them down.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def connect_tcp(self, *args: Any, **kwargs: Any) -> Connection:
        """Connect to a host."""
        return Connection(self._backend.connect_tcp(*args, **kwargs))

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> Connection:
        """Connect to a socket of this machine."""
        return Connection(self._backend.connect_unix_socket(*args, **kwargs))

    def sleep(self, seconds: float) -> None:
        """Wait between two tries to connect."""
        self._backend.sleep(seconds)


def run_with_deadline(seconds: float, work: Callable[[], Result]) -> Result:
    """Run a function in a separate thread, in a copy of the caller's context, with a deadline.

    No timeout of a connection ends a body that arrives byte by byte. At the deadline, or when the
    caller is interrupted, connections made by a `ConnectionMaker` are shut down; the thread may run
    until the process ends.

    Raises:
        CallTimeout: At the deadline.
    """
    ended: Future[Result] = Future()
    context = copy_context()
    call = _Call(seconds)
    context.run(_CALL.set, call)

    def run() -> None:
        try:
            ended.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            ended.set_exception(error)

    Thread(target=run, name="costada-call", daemon=True).start()
    try:
        while (left := call.left) > 0:
            try:
                return ended.result(max(left, _SHORTEST_LOOK))
            except TimeoutError:
                if ended.done():
                    raise
        if ended.done():
            return ended.result()
        raise CallTimeout(seconds)
    finally:
        if not ended.done():
            call.give_up()


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Wait for something that is no part of the call: its deadline moves by the time it takes."""
    call = _CALL.get()
    if call is None:
        yield
        return
    call.stop_clock()
    try:
        yield
    finally:
        call.restart_clock()


@contextmanager
def releasing(release: Callable[[], None]) -> Iterator[None]:
    """Call a function once: at the end of the block, or earlier when the call is given up."""
    call = _CALL.get()
    held = call.hold(release) if call else None
    try:
        yield
    finally:
        if call:
            call.release(held)
        else:
            release()


def seconds_left() -> float | None:
    """Seconds until the deadline of the call around it, `None` outside of any."""
    call = _CALL.get()
    return None if call is None else call.left


def check_time_left() -> None:
    """Raise `CallTimeout` in an abandoned call."""
    call = _CALL.get()
    if call is not None and call.left <= 0:
        raise CallTimeout(call.seconds)
