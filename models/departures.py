"""Whether a request can have left this process: what is sent over a network opens a connection.

Python reports connections of every pure Python client as audit events, whatever library makes them.
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
class Departures:
    """How often something left for elsewhere in one context, a meter's for one."""

    number: int = 0

    @property
    def seen(self) -> int:
        """What was heard of here, or in threads that do not tell for whom they work."""
        return self.number if self is NOBODYS else self.number + NOBODYS.number


Current = ContextVar[Departures]

NOBODYS = Departures()
CURRENT: Current = ContextVar("costada_departures", default=NOBODYS)


@cache
def listen() -> None:
    """Begin to count, once for the life of the process: an audit hook cannot be removed."""

    def heed(
        event: str, _: object, events: frozenset[str] = _EVENTS, current: Current = CURRENT
    ) -> None:
        if event in events:
            current.get().number += 1

    sys.addaudithook(heed)
