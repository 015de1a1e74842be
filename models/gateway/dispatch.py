"""Which request is sent to the provider, and which is answered from the journal.

The rule. Whatever was or may have been billed is retold to each execution of its logical call,
once and in the order of sending: an answer as it came, a request under way by waiting for it, a
lost one as a broken connection. What an execution has been told in full, or is being told, is not
told to it again; what it stopped listening to is. When nothing is left to tell, the request is
sent. So a retry within an execution is sent, and a repetition by a later execution is not.

Refusals and requests that never left cost nothing, so they are sent again, with two exceptions
for calls of several different requests. A refusal before a request that may have been billed is
retold, as it made the execution turn to that one, to a fallback for example. And where an
execution asks what no earlier one asked, though there is something left to tell, that is told as
lost: nobody will ever ask for it, but it may be on the bill.
"""

import asyncio
import sqlite3
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
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

from costada.models.errors import describe
from costada.models.gateway.journal import Journal, Outcome, RequestKey, Response
from costada.models.gateway.protocol import Headers, kept_of_answer

_EVENTS = "text/event-stream"


class InflightRequest:
    """One request to the provider; any number of clients may follow it, from any time on.

    Attributes:
        number: Its number in the journal.
        fate: What became of it so far.
        status: HTTP status, 0 until the response has begun.
        headers: Those of the response that clients get.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.fate = Outcome.SENT
        self.status = 0
        self.headers: Headers = ()
        self._pieces: list[bytes] = []
        self._news = asyncio.Event()

    @classmethod
    def landed(cls, number: int, response: Response) -> "InflightRequest":
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

    def end(self, fate: Outcome) -> None:
        """Note what became of the request."""
        self.fate = fate
        self._tell()

    @property
    def size(self) -> int | None:
        """Bytes of a complete body, `None` while it may grow or if it broke off."""
        is_complete = self.fate not in (Outcome.SENT, Outcome.LOST)
        return sum(map(len, self._pieces)) if is_complete else None

    def response(self, fate: Outcome) -> Response:
        """Return what has arrived, as the journal keeps it."""
        return Response(fate, self.status, self.headers, b"".join(self._pieces))

    async def is_worth_telling(self) -> bool:
        """Wait for the moment when a client can be told, and return whether there is a response.

        A stream is told from its first byte on, anything else once it is complete.
        """
        while self.fate is Outcome.SENT and not self._is_stream():
            await self._news.wait()
        return self.status != 0

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body as they arrive, until the request has ended."""
        position = 0
        while True:
            while position < len(self._pieces):
                yield self._pieces[position]
                position += 1
            if self.fate is not Outcome.SENT:
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

    async def fly(self, request: Request, flight: InflightRequest) -> Outcome:
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
            return Outcome.UNSENT
        except (ClientError, OSError, TimeoutError):
            return (
                Outcome.LOST if flight.status == 0 or is_success(flight.status) else Outcome.REFUSED
            )
        return Outcome.ANSWERED if is_success(flight.status) else Outcome.REFUSED

    async def close(self) -> None:
        """Close what is open."""
        await self._session.close()


class Dispatcher:
    """Lets each request fly once, and everybody who asks the same follow it."""

    def __init__(self, upstream: Upstream, journal: Journal, log: Callable[[str], None]) -> None:
        """Take the provider, the journal, and whom to tell of losses."""
        self._upstream = upstream
        self._journal = journal
        self._log = log
        self._told: defaultdict[str, set[int]] = defaultdict(set)
        self._seen: defaultdict[str, set[int]] = defaultdict(set)
        self._flights: dict[int, InflightRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether any request is under way."""
        return bool(self._tasks)

    def take(self, key: RequestKey, execution: str, request: Request) -> InflightRequest:
        """Return the flight that an execution is to follow; see the rule above.

        Raises:
            sqlite3.Error: The request cannot be journaled; it was not sent.
        """
        flight = self._retold(key, execution) or self._start(key, request)
        self._told[execution].add(flight.number)
        self._seen[execution].add(flight.number)
        return flight

    def give_back(self, flight: InflightRequest, execution: str) -> None:
        """Note that an execution stopped listening to a flight before its end."""
        self._told[execution].discard(flight.number)

    async def drain(self) -> None:
        """Wait until no request is under way."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def _retold(self, key: RequestKey, execution: str) -> InflightRequest | None:
        told, seen = self._told[execution], self._seen[execution]
        untold = [entry for entry in self._journal.history(key.call) if entry.number not in told]
        equal = [entry for entry in untold if entry.request_hash == key.request_hash]
        for entry in equal:
            if entry.may_be_billed:
                return self._found(entry.number)
        left = [e.number for e in untold if e.may_be_billed and e.number not in seen]
        if not left:
            return None
        for entry in equal:
            if entry.number < left[-1]:
                return self._found(entry.number)
        self._log(f"{key.call}: not the request that an earlier execution sent")
        return InflightRequest.landed(left[0], Response(Outcome.LOST))

    def _found(self, number: int) -> InflightRequest:
        flight = self._flights.get(number)
        return flight or InflightRequest.landed(number, self._journal.response(number))

    def _start(self, key: RequestKey, request: Request) -> InflightRequest:
        flight = InflightRequest(self._journal.begin(key))
        self._flights[flight.number] = flight
        task = asyncio.create_task(self._fly(key.call, request, flight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return flight

    async def _fly(self, call: str, request: Request, flight: InflightRequest) -> None:
        """Follow a request to its end; those who wait learn of it once it is journaled."""
        fate = await self._upstream.fly(request, flight)
        if fate is Outcome.LOST:
            self._log(f"{call}: sent, but no complete response came")
        try:
            self._journal.finish(flight.number, flight.response(fate))
        except sqlite3.Error as error:
            self._log(f"{call}: {fate}, but this cannot be journaled: {describe(error)}")
        else:
            del self._flights[flight.number]
        flight.end(fate)
