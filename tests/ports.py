"""Ports of this machine: one for a server of a test, one that nothing listens at."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count

_FIRST, _EACH, _PROCESSES = 10_000, 10, 1200
_NUMBERS = count()


def free_port() -> int:
    """A port that is free, and which no connection or server takes by itself.

    The system gives ports above 30,000, Ray those from 23,000; between the choice of such a port
    and the start of a server, any connection may get it. Test processes that run at the same time
    have different ports.
    """
    first = _FIRST + os.getpid() % _PROCESSES * _EACH
    for _ in range(_EACH):
        port = first + next(_NUMBERS) % _EACH
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"the ports from {first} are all in use")


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses connections during the block: it is taken, and nothing listens at it."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
