"""Which request is sent to the provider, and which is answered from the journal.

The rule. Whatever was or may have been billed is replayed to each execution of its logical call,
once and in the order of sending: an answer as it came, a running request by waiting for it, a
lost one as a broken connection. What an execution has received in full, or is receiving, is not
replayed to it; what it stopped reading is. When nothing is left to replay, the request is sent. So
a retry within an execution is sent, and a repetition by a later execution is not.

Refusals and requests that never left cost nothing, so they are sent again, with two exceptions
for calls of several different requests. A refusal before a request that may have been billed is
replayed, as it made the execution turn to that one, to a fallback for example. And where an
execution asks what no earlier one asked, though there is something left to replay, that is reported
as lost: no execution will ever ask for it, but it may be on the bill.
"""

import asyncio
import sqlite3
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from functools import cache
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

from costada.models.connection import CONNECT_SECONDS, KEPT_OPEN_SECONDS
from costada.models.errors import describe
from costada.plugins.gateway.gateway_protocol import Headers, returned_headers
from costada.plugins.gateway.response_journal import Journal, RequestKey, RequestState, Response
from costada.values.redaction import without_passwords

_EVENT_STREAM = "text/event-stream"
_NEVER_LEFT = (ClientConnectorError, ConnectionTimeoutError, ClientHttpProxyError, InvalidURL)


class InflightRequest:
    """One request to the provider; any number of clients may follow it, from any time on.

    `status` is 0 until the response has begun; `headers` are those that clients get.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = RequestState.SENT
        self.status = 0
        self.headers: Headers = ()
        self._pieces: list[bytes] = []
        self._changed = asyncio.Event()

    @classmethod
    def from_journal(cls, number: int, response: Response) -> "InflightRequest":
        """A request that ended before, as the journal has it."""
        inflight = cls(number)
        inflight.begin_response(response.status, response.headers)
        if response.body:
            inflight.add(response.body)
        inflight.finish(response.state)
        return inflight

    def begin_response(self, status: int, headers: Headers) -> None:
        """Note the beginning of the response."""
        self.status, self.headers = status, headers
        self._notify()

    def add(self, piece: bytes) -> None:
        """Note a piece of the response's body."""
        self._pieces.append(piece)
        self._notify()

    def finish(self, state: RequestState) -> None:
        """Note how the request ended."""
        self.state = state
        self._notify()

    @property
    def size(self) -> int | None:
        """Bytes of a complete body, `None` while it may grow or if it is incomplete."""
        is_complete = self.state not in (RequestState.SENT, RequestState.LOST)
        return sum(map(len, self._pieces)) if is_complete else None

    def response(self, state: RequestState) -> Response:
        """What has arrived, as the journal keeps it."""
        return Response(state, self.status, self.headers, b"".join(self._pieces))

    async def has_response(self) -> bool:
        """Wait until a client can be answered, and return whether there is a response.

        A stream is passed on from its first byte on, anything else once it is complete.
        """
        while self.state is RequestState.SENT and not self._is_stream():
            await self._changed.wait()
        return self.status != 0

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body as they arrive, until the request has ended."""
        position = 0
        while True:
            while position < len(self._pieces):
                yield self._pieces[position]
                position += 1
            if self.state is not RequestState.SENT:
                return
            await self._changed.wait()

    def _is_stream(self) -> bool:
        kinds = [value for name, value in self.headers if name.lower() == "content-type"]
        return _is_success(self.status) and any(kind.startswith(_EVENT_STREAM) for kind in kinds)

    def _notify(self) -> None:
        # A new event each time: several clients follow, and none may clear it for the others.
        self._changed.set()
        self._changed = asyncio.Event()


def _is_success(status: int) -> bool:
    """Whether an HTTP status says that the request was carried out, and so billed."""
    return 200 <= status < 300


class Request(NamedTuple):
    """A request as the provider gets it; `path` is what follows the upstream's address."""

    method: str
    path: str
    headers: Headers
    body: bytes


def checked_upstream(url: str) -> str:
    """The address of a provider without a final slash.

    Raises:
        ValueError: It is not an address, or carries a key.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = without_passwords(url)
        raise ValueError(f"upstream: got {shown!r}, expected an address such as https://host/v1")
    if parts.username or parts.password or parts.query:
        raise ValueError("upstream: expected no key in the address; keys come with the requests")
    return url.rstrip("/")


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that all gateways of this process trust."""
    trust = ssl.create_default_context()
    trust.load_verify_locations(certifi.where())
    return trust


class Upstream:
    """The provider, asked for any number of requests at once.

    Connections stay open between requests. A request with a method that HTTP declares to be
    repeatable, such as GET, may be sent again if its connection had been closed; a POST never is.
    """

    def __init__(self, url: str, call_timeout: float) -> None:
        """Prepare for sending to an address; call it in a running event loop.

        A response that is not complete after `call_timeout` seconds is given up as lost.
        """
        self._url = url
        self._session = ClientSession(
            connector=TCPConnector(ssl=_trusted(), limit=0, keepalive_timeout=KEPT_OPEN_SECONDS),
            timeout=ClientTimeout(total=call_timeout, sock_connect=CONNECT_SECONDS),
            auto_decompress=True,
            trust_env=True,
        )

    async def send(self, request: Request, inflight: InflightRequest) -> RequestState:
        """Send a request, collect its response, and return how it ended."""
        try:
            async with self._session.request(
                request.method,
                URL(f"{self._url}{request.path}", encoded=True),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
            ) as response:
                headers = returned_headers(response.headers.items())
                inflight.begin_response(response.status, headers)
                async for piece in response.content.iter_any():
                    inflight.add(piece)
        except _NEVER_LEFT:
            return RequestState.UNSENT
        except (ClientError, OSError, TimeoutError):
            may_be_billed = inflight.status == 0 or _is_success(inflight.status)
            return RequestState.LOST if may_be_billed else RequestState.REFUSED
        return RequestState.ANSWERED if _is_success(inflight.status) else RequestState.REFUSED

    async def close(self) -> None:
        """Close what is open."""
        await self._session.close()


class Dispatcher:
    """Sends each request once, and lets everyone who asks the same follow it."""

    def __init__(self, upstream: Upstream, journal: Journal, log: Callable[[str], None]) -> None:
        """Take the provider, the journal, and where to log losses."""
        self._upstream = upstream
        self._journal = journal
        self._log = log
        self._delivered: defaultdict[str, set[int]] = defaultdict(set)
        self._seen: defaultdict[str, set[int]] = defaultdict(set)
        self._inflight: dict[int, InflightRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether any request is running."""
        return bool(self._tasks)

    def dispatch(self, key: RequestKey, execution: str, request: Request) -> InflightRequest:
        """The request that an execution is to follow; see the rule above.

        Raises:
            sqlite3.Error: The request cannot be journaled; it was not sent.
        """
        inflight = self._replayed(key, execution) or self._start(key, request)
        self._delivered[execution].add(inflight.number)
        self._seen[execution].add(inflight.number)
        return inflight

    def release(self, inflight: InflightRequest, execution: str) -> None:
        """Note that an execution stopped reading a response before its end."""
        self._delivered[execution].discard(inflight.number)

    async def drain(self) -> None:
        """Wait until no request is running."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def _replayed(self, key: RequestKey, execution: str) -> InflightRequest | None:
        delivered, seen = self._delivered[execution], self._seen[execution]
        entries = [e for e in self._journal.history(key.call) if e.number not in delivered]
        equal = [entry for entry in entries if entry.request_hash == key.request_hash]
        for entry in equal:
            if entry.may_be_billed:
                return self._found(entry.number)
        left = [e.number for e in entries if e.may_be_billed and e.number not in seen]
        if not left:
            return None
        for entry in equal:
            if entry.number < left[-1]:
                return self._found(entry.number)
        self._log(f"{key.call}: not the request that an earlier execution sent")
        return InflightRequest.from_journal(left[0], Response(RequestState.LOST))

    def _found(self, number: int) -> InflightRequest:
        inflight = self._inflight.get(number)
        return inflight or InflightRequest.from_journal(number, self._journal.response(number))

    def _start(self, key: RequestKey, request: Request) -> InflightRequest:
        inflight = InflightRequest(self._journal.begin(key))
        self._inflight[inflight.number] = inflight
        task = asyncio.create_task(self._run(key.call, request, inflight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return inflight

    async def _run(self, call: str, request: Request, inflight: InflightRequest) -> None:
        """Run a request to its end; those who wait see the end once it is journaled."""
        state = await self._upstream.send(request, inflight)
        if state is RequestState.LOST:
            self._log(f"{call}: sent, but no complete response came")
        # Before anyone sees the end: a client may die right after, and its repetition must find it.
        try:
            self._journal.finish(inflight.number, inflight.response(state))
        except sqlite3.Error as error:
            # It stays in `_inflight`, so executions of this gateway's life are answered from there.
            self._log(f"{call}: {state}, but this cannot be journaled: {describe(error)}")
        else:
            del self._inflight[inflight.number]
        inflight.finish(state)
