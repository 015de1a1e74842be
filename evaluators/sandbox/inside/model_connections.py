"""Lets clients in a candidate's process connect to its models, and to nothing else.

Where a candidate may make no socket of the internet, `socket.socket` makes a pair of connected ones
instead. One that connects to the address of the models becomes a connection over the channel that
the process has inherited; a thread carries the bytes. All clients that use Python's sockets work,
blocking or in an event loop, and no system call is needed that a candidate may not make anyway.

Nothing here keeps a candidate from anything: it could use the channel as it likes. What it may ask
for is decided at the other end.
"""

import errno
import os
import socket
from _socket import socket as PlainSocket
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from selectors import EVENT_READ, DefaultSelector
from threading import Lock, Thread, local, stack_size
from time import monotonic_ns
from typing import Any

from costada.evaluators.sandbox.inside.multiplexer import Multiplexer
from costada.evaluators.sandbox.inside.orders import MODELS_ADDRESS

STACK_BYTES = 256 * 1024
WAKE_BYTES = 4096
IN_USE = "the models of this program are used by another process that its command started"


class ModelConnections:
    """The connections of this process, over one channel; those of its forks go through it."""

    def __init__(self, channel_fd: int, claim: str | None = None) -> None:
        """Use a channel, whose descriptor belongs to this object from now on.

        Args:
            channel_fd: The channel.
            claim: A folder that the process locks which uses the channel, where others have
                inherited it as well; the next one may when that has ended.
        """
        self._claim = claim
        self._begin(channel_fd)

    def _begin(self, channel_fd: int) -> None:
        self._channel_fd = channel_fd
        self._multiplexer: Multiplexer | None = None
        self._starting = Lock()
        self._new: deque[int | Multiplexer] = deque()
        self._forks: set[Multiplexer] = set()
        self._of_fork = local()

    def connect(self) -> int:
        """The descriptor of a new connection."""
        ours, theirs = socket.socketpair()
        self._add(ours.detach())
        return theirs.detach()

    def _add(self, source: int | Multiplexer) -> None:
        """Have a connection, or those of a fork, carried."""
        with self._starting:
            multiplexer = self._multiplexer or self._start()
        self._new.append(source)
        if multiplexer.is_open:
            os.write(self._wake_fd, b"\0")
        else:
            self._close_new()

    def _close_new(self) -> None:
        """Close what came too late to be carried."""
        with suppress(IndexError):
            while True:
                close(self._new.popleft())

    def _start(self) -> Multiplexer:
        if self._claim is not None:
            claim_fd = os.open(self._claim, os.O_RDONLY)
            try:
                flock(claim_fd, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                os.close(claim_fd)
                raise ConnectionRefusedError(errno.ECONNREFUSED, IN_USE) from None
        multiplexer = Multiplexer(self._channel_fd)
        if self._claim is not None:
            multiplexer.take_over(monotonic_ns())
        read_fd, self._wake_fd = os.pipe()
        self._multiplexer = multiplexer
        usual = stack_size(STACK_BYTES)
        Thread(target=self._carry, args=(multiplexer, read_fd), daemon=True).start()
        stack_size(usual)
        return multiplexer

    def _carry(self, multiplexer: Multiplexer, wake_fd: int) -> None:
        """Carry what clients and models send, until the channel ends."""
        selector = DefaultSelector()
        selector.register(wake_fd, EVENT_READ)
        selector.register(multiplexer.fileno(), EVENT_READ, multiplexer)
        while multiplexer.is_open:
            for key, _ in selector.select():
                if key.data is None:
                    os.read(wake_fd, WAKE_BYTES)
                    continue
                key.data.process()
                if not key.data.is_open:
                    selector.unregister(key.fd)
                    self._forks.discard(key.data)
            while self._new and multiplexer.is_open:
                source = self._new.popleft()
                if isinstance(source, int):
                    multiplexer.add(source)
                else:
                    self._forks.add(source)
                    selector.register(source.fileno(), EVENT_READ, source)
        self._close_new()

    def before_fork(self) -> None:
        """Make a channel to a fork: two processes cannot read one."""
        self._of_fork.ends = socket.socketpair()

    def after_fork_here(self) -> None:
        """Carry the connections of a fork."""
        ours, theirs = self._of_fork.ends
        theirs.close()
        source = Multiplexer(ours.detach(), self.connect)
        try:
            self._add(source)
        except ConnectionRefusedError:  # so are the connections of the fork
            source.close()

    def after_fork_there(self) -> None:
        """Use the channel to the process that this one was forked from."""
        theirs, ours = self._of_fork.ends
        theirs.close()
        # Or connections would not end with the process that has opened them.
        for source in (*self._new, *self._forks):
            close(source)
        if self._multiplexer is None:
            os.close(self._channel_fd)
        else:
            self._multiplexer.close()
            os.close(self._wake_fd)
        self._claim = None
        self._begin(ours.detach())


def close(source: int | Multiplexer) -> None:
    """Close a connection, or those of a fork."""
    if isinstance(source, int):
        os.close(source)
    else:
        source.close()


def offer_models(channel_fd: int, *, may_fork: bool, claim: str | None = None) -> None:
    """Have sockets of this process that connect to `MODELS_ADDRESS` reach models by a channel."""
    connections = ModelConnections(channel_fd, claim)
    if may_fork:
        os.register_at_fork(
            before=connections.before_fork,
            after_in_parent=connections.after_fork_here,
            after_in_child=connections.after_fork_there,
        )
    ModelSocket.connections = connections
    # In the class itself: modules that are loaded may have it by another name.
    for name, method in vars(ModelSocket).items():
        if callable(method):
            setattr(socket.socket, name, method)


PLAIN_INIT = socket.socket.__init__


class ModelSocket(PlainSocket):
    """Has the methods that `socket.socket` gets; the others stay as they are."""

    connections: ModelConnections

    def __init__(
        self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        """Make the socket, or one end of a pair where a socket of the internet is refused."""
        try:
            PLAIN_INIT(self, family, type, proto, fileno)  # type: ignore[arg-type]
        except PermissionError:
            if fileno is not None or family not in (-1, socket.AF_INET):
                raise
            if type not in (-1, socket.SOCK_STREAM):
                raise
            one, other = socket.socketpair()
            other.close()
            PLAIN_INIT(self, socket.AF_INET, socket.SOCK_STREAM, proto, one.detach())  # type: ignore[arg-type]

    def connect(self, address: Any) -> None:
        """Connect to the models, or as usual."""
        if self.family == socket.AF_INET and tuple(address[:2]) == MODELS_ADDRESS:
            end_fd = ModelSocket.connections.connect()
            os.dup2(end_fd, self.fileno(), inheritable=False)
            os.close(end_fd)
            os.set_blocking(self.fileno(), self.gettimeout() is None)
        elif is_of_pair(self):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        else:
            PlainSocket.connect(self, address)

    def connect_ex(self, address: Any) -> int:
        """Connect; the number of the error, 0 if there is none."""
        try:
            self.connect(address)
        except OSError as error:
            if error.errno is None:
                raise
            return error.errno
        return 0

    def getpeername(self) -> Any:
        """The address of the other end."""
        return MODELS_ADDRESS if is_of_pair(self) else PlainSocket.getpeername(self)

    def getsockname(self) -> Any:
        """The address of this end."""
        return (MODELS_ADDRESS[0], 0) if is_of_pair(self) else PlainSocket.getsockname(self)

    def setsockopt(self, *arguments: Any) -> None:
        """Set an option; those of the internet, such as TCP_NODELAY, mean nothing to a pair."""
        if not is_of_pair(self):
            PlainSocket.setsockopt(self, *arguments)

    def sendmsg(self, buffers: Iterable[Any], *more: Any) -> int:
        """Send what several buffers hold, also where only one may be sent at once."""
        if more or not is_of_pair(self):
            return PlainSocket.sendmsg(self, buffers, *more)
        return self.send(b"".join(buffers))


def is_of_pair(own: PlainSocket) -> bool:
    """Whether a socket of the internet is one of a pair in truth."""
    return own.family == socket.AF_INET and isinstance(PlainSocket.getsockname(own), str)
