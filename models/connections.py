"""Whether a request can have left this process: what is sent over a network opens a connection.

Python reports the connections of every client written in Python as audit events, whatever library
makes them.
"""

import sys
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

_EVENTS = frozenset(
    {
        "http.client.send",
        "socket.connect",
        "socket.sendmsg",
        "socket.sendto",
        "subprocess.Popen",
    }
)


@dataclass(slots=True)
class ConnectionCount:
    """How many connections were opened, or programs started, in one context."""

    number: int = 0

    @property
    def total(self) -> int:
        """Those of this context and those of threads that run outside any context of a call."""
        return self.number if self is UNATTRIBUTED else self.number + UNATTRIBUTED.number


_CountVar = ContextVar[ConnectionCount]

UNATTRIBUTED = ConnectionCount()
CURRENT: _CountVar = ContextVar("costada_connections", default=UNATTRIBUTED)


@cache
def count_connections() -> None:
    """Begin to count, once for the life of the process: an audit hook cannot be removed.

    It makes whatever raises many audit events slower, `copy.deepcopy` for one, so it is for chat
    models only of which nothing else tells whether they have sent anything.
    """

    def hook(
        event: str,
        _: object,
        events: frozenset[str] = _EVENTS,
        current: _CountVar = CURRENT,
    ) -> None:
        if event in events:
            current.get().number += 1

    sys.addaudithook(hook)
