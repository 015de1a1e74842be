"""Carries several connections over one connected socket, whose other end has one of these as well.

A frame is a header with the number of a connection and a length, then as many bytes. The end that
opens connections numbers them upwards, and uses no number twice. The first frame of a connection is
without bytes and opens it; a later one without bytes closes it. One with the number 0 closes all:
another process uses this end from now on.
"""

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

HEADER = struct.Struct("!QI")
CHUNK_BYTES = 65536
MAX_FRAME_BYTES = CHUNK_BYTES
MIN_FRAME_COST = 1024
"""What a frame counts in `num_received` if it is shorter: it takes about as long to carry."""

CHANNEL = 0
"""The channel itself, where connections have numbers."""


@dataclass(slots=True)
class Connection:
    """The local end of a connection."""

    fd: int
    pending: bytearray = field(default_factory=bytearray)  # came, and is not taken yet
    is_ending: bool = False  # whether the other end has closed it
    events: int = 0  # what is waited for


class Multiplexer:
    """One end of a channel; the descriptors that it gets are its own, and do not block.

    `fileno` is readable while `process` has something to do.
    """

    def __init__(
        self,
        channel_fd: int,
        accept: Callable[[], int | None] = lambda: None,
        max_pending: int | None = None,
    ) -> None:
        """Carry connections over a channel.

        Args:
            channel_fd: The socket.
            accept: Makes the local end of a connection that the other end opens; None refuses it.
            max_pending: Nothing is read from the channel while more bytes wait to be handed on, to
                either side; None for no bound.
        """
        os.set_blocking(channel_fd, False)
        self.is_open = True
        self.num_received = 0  # bytes, a short frame counting as MIN_FRAME_COST
        self.num_opened = 0  # connections that the other end has opened, or tried to
        self._channel = Connection(channel_fd)
        self._accept = accept
        self._max_pending = max_pending
        self._connections: dict[int, Connection] = {}
        self._last = 0  # the highest number so far
        self._received = bytearray()  # a frame that is not complete
        self._selector = DefaultSelector()
        self._update_events()

    def fileno(self) -> int:
        """Descriptor to wait for."""
        return self._selector.fileno()

    @property
    def num_connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def take_over(self, first: int) -> None:
        """Go on where another process has used this end, whose numbers were all below the first.

        Nothing of what it was still to get is taken for an answer to this one.
        """
        self._last = first - 1
        self._send(CHANNEL, b"")

    def add(self, fd: int) -> None:
        """Open a connection whose local end is a socket."""
        os.set_blocking(fd, False)
        self._last += 1
        self._connections[self._last] = Connection(fd)
        self._send(self._last, b"")
        self._update_events()

    def process(self) -> None:
        """Carry what has come, without waiting."""
        for key, events in self._selector.select(0):
            number = key.data
            if number == CHANNEL:
                if events & EVENT_WRITE:
                    self._flush(self._channel)
                if events & EVENT_READ:
                    self._read_channel()
                continue
            # An event before this one may have closed it.
            if events & EVENT_WRITE and number in self._connections:
                self._write(number)
            if events & EVENT_READ and number in self._connections:
                self._read(number)
        if self.is_open:
            self._update_events()

    def close(self) -> None:
        """Close the channel and all connections."""
        if self.is_open:
            self.is_open = False
            self._selector.close()
            for connection in (self._channel, *self._connections.values()):
                os.close(connection.fd)
            self._connections.clear()

    def _read_channel(self) -> None:
        chunk = self._read_from(self._channel)
        if chunk is None:
            return
        self._received += chunk
        # Before the frames: one of them may be the last that is read.
        ended, position = not chunk, 0
        while self.is_open and len(self._received) >= position + HEADER.size:
            number, size = HEADER.unpack_from(self._received, position)
            if size > MAX_FRAME_BYTES:
                ended = True
                break
            end = position + HEADER.size + size
            if len(self._received) < end:
                break
            self.num_received += max(size, MIN_FRAME_COST)
            self._take(number, self._received[position + HEADER.size : end])
            position = end
        del self._received[:position]
        if ended:
            self.close()

    def _take(self, number: int, data: bytearray) -> None:
        """Handle a frame; what comes for a connection that is closed here is dropped."""
        if number == CHANNEL:
            for each in list(self._connections):
                self._drop(each)
        if number > self._last:
            self._open(number)
            return
        if (connection := self._connections.get(number)) is None:
            return
        connection.pending += data
        connection.is_ending |= not data
        self._write(number)

    def _open(self, number: int) -> None:
        self._last = number
        self.num_opened += 1
        if (fd := self._accept()) is None:
            self._send(number, b"")
        else:
            os.set_blocking(fd, False)
            self._connections[number] = Connection(fd)

    def _write(self, number: int) -> None:
        """Hand on what came for a connection."""
        connection = self._connections[number]
        if not self._flush(connection):
            self._send(number, b"")
            self._drop(number)
        elif connection.is_ending and not connection.pending:
            self._drop(number)

    def _read(self, number: int) -> None:
        """Send what a connection's local end has written."""
        chunk = self._read_from(self._connections[number])
        if chunk is not None:
            self._send(number, chunk)
        if chunk == b"":
            self._drop(number)

    def _send(self, number: int, data: bytes) -> None:
        if self.is_open:
            self._channel.pending += HEADER.pack(number, len(data)) + data
            self._flush(self._channel)

    def _drop(self, number: int) -> None:
        connection = self._connections.pop(number)
        self._await_events(number, connection, 0)
        os.close(connection.fd)

    def _read_from(self, connection: Connection) -> bytes | None:
        """What is there, at most a chunk; nothing at its end, and None if nothing is there yet."""
        with suppress(BlockingIOError):
            try:
                return os.read(connection.fd, CHUNK_BYTES)
            except ConnectionResetError:
                return b""
        return None

    def _flush(self, connection: Connection) -> bool:
        """Write what fits of what is pending; whether the reader is there."""
        with suppress(BlockingIOError):
            try:
                while connection.pending:
                    del connection.pending[: os.write(connection.fd, connection.pending)]
            except (BrokenPipeError, ConnectionResetError):
                connection.pending.clear()
                return False
        return True

    def _update_events(self) -> None:
        """Wait for what can be handled: nothing is read that cannot be handed on."""
        num_pending = len(self._channel.pending)
        reading = 0 if num_pending else EVENT_READ
        for number, connection in self._connections.items():
            num_pending += len(connection.pending)
            writing = EVENT_WRITE if connection.pending else 0
            is_read = 0 if connection.is_ending else reading
            self._await_events(number, connection, is_read | writing)
        is_full = self._max_pending is not None and num_pending > self._max_pending
        writing = EVENT_WRITE if self._channel.pending else 0
        self._await_events(CHANNEL, self._channel, (0 if is_full else EVENT_READ) | writing)

    def _await_events(self, number: int, connection: Connection, events: int) -> None:
        if events == connection.events:
            return
        if connection.events == 0:
            self._selector.register(connection.fd, events, number)
        elif events == 0:
            self._selector.unregister(connection.fd)
        else:
            self._selector.modify(connection.fd, events, number)
        connection.events = events
