"""A request under way: what has arrived so far, for everyone who waits for it."""

import asyncio
from collections.abc import AsyncIterator

from costada.models.gateway.journal import Fate, Response
from costada.models.gateway.protocol import Headers

_EVENTS = "text/event-stream"


class Flight:
    """One request to the provider; any number of clients may follow it, from any time on.

    Attributes:
        number: Its number in the journal.
        fate: What became of it so far.
        status: HTTP status, 0 until the response has begun.
        headers: Those of the response that clients get.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.fate = Fate.SENT
        self.status = 0
        self.headers: Headers = ()
        self._pieces: list[bytes] = []
        self._news = asyncio.Event()

    @classmethod
    def landed(cls, number: int, response: Response) -> "Flight":
        """Return a flight that ended before, as the journal has it."""
        flight = cls(number)
        flight.open(response.status, response.headers)
        if response.body:
            flight.add(response.body)
        flight.end(response.fate)
        return flight

    def open(self, status: int, headers: Headers) -> None:
        """Note the beginning of the response."""
        self.status, self.headers = status, headers
        self._tell()

    def add(self, piece: bytes) -> None:
        """Note a piece of the response's body."""
        self._pieces.append(piece)
        self._tell()

    def end(self, fate: Fate) -> None:
        """Note what became of the request."""
        self.fate = fate
        self._tell()

    @property
    def size(self) -> int | None:
        """Bytes of a complete body, `None` while it may grow or if it broke off."""
        is_complete = self.fate not in (Fate.SENT, Fate.LOST)
        return sum(map(len, self._pieces)) if is_complete else None

    def response(self, fate: Fate) -> Response:
        """Return what has arrived, as the journal keeps it."""
        return Response(fate, self.status, self.headers, b"".join(self._pieces))

    async def is_worth_telling(self) -> bool:
        """Wait for the moment when a client can be told, and return whether there is a response.

        A stream is told from its first byte on, anything else once it is complete.
        """
        while self.fate is Fate.SENT and not self._is_stream():
            await self._news.wait()
        return self.status != 0

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body as they arrive, until the request has ended."""
        position = 0
        while True:
            while position < len(self._pieces):
                yield self._pieces[position]
                position += 1
            if self.fate is not Fate.SENT:
                return
            await self._news.wait()

    def _is_stream(self) -> bool:
        kinds = [value for name, value in self.headers if name.lower() == "content-type"]
        return is_success(self.status) and any(kind.startswith(_EVENTS) for kind in kinds)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def is_success(status: int) -> bool:
    """Return whether an HTTP status says that the request was carried out, and so billed."""
    return 200 <= status < 300
