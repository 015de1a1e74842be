"""Sending a request to the provider, once, and reading all of its response."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit

import certifi
from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientHttpProxyError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    InvalidURL,
    TCPConnector,
)
from yarl import URL

from costada.models.gateway.journal import Fate, Response
from costada.models.gateway.protocol import Headers, kept_of_answer

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


CONNECT_SECONDS = 30.0
_NEVER_LEFT = (ClientConnectorError, ConnectionTimeoutError, ClientHttpProxyError, InvalidURL)


class Request(NamedTuple):
    """A request as the provider gets it; `path` is what follows the upstream's address."""

    method: str
    path: str
    headers: Headers
    body: bytes


def checked_upstream(url: str) -> str:
    """Return the address of a provider without a final slash.

    Raises:
        ValueError: It is no address, or carries a key.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"upstream: got {url!r}, expected an address such as https://host/v1")
    if parts.username or parts.password or parts.query:
        raise ValueError("upstream: expected no key in the address; keys come with the requests")
    return url.rstrip("/")


class Upstream:
    """The provider. A connection serves one request, so none is ever sent twice by itself."""

    def __init__(self, url: str, call_timeout: float) -> None:
        """Prepare for sending to an address; to be called in a running event loop.

        A response that is not complete after `call_timeout` seconds is given up as lost.
        """
        self._url = url
        trust = ssl.create_default_context()
        trust.load_verify_locations(certifi.where())
        self._session = ClientSession(
            connector=TCPConnector(ssl=trust, force_close=True, limit=0),
            timeout=ClientTimeout(total=call_timeout, sock_connect=CONNECT_SECONDS),
            auto_decompress=True,
            trust_env=True,
        )

    async def fly(self, request: Request, flight: Flight) -> Fate:
        """Send a request, let the flight have what arrives, and return what became of it."""
        try:
            async with self._session.request(
                request.method,
                URL(f"{self._url}{request.path}", encoded=True),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
            ) as response:
                flight.open(response.status, kept_of_answer(response.headers.items()))
                async for piece in response.content.iter_any():
                    flight.add(piece)
        except _NEVER_LEFT:
            return Fate.UNSENT
        except (ClientError, OSError, TimeoutError):
            return Fate.LOST if flight.status == 0 or is_success(flight.status) else Fate.REFUSED
        return Fate.ANSWERED if is_success(flight.status) else Fate.REFUSED

    async def close(self) -> None:
        """Close what is open."""
        await self._session.close()
