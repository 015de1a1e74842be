"""The gateway's HTTP side: who may ask, what is asked, and telling what came of it."""

import asyncio
import hmac
import json
import sqlite3
from collections.abc import Awaitable, Callable
from hashlib import sha256
from time import monotonic
from uuid import uuid4

from aiohttp import web

from costada.models.errors import describe
from costada.models.gateway.exchange import Exchange
from costada.models.gateway.journal import Fate, RequestKey
from costada.models.gateway.protocol import (
    CALL_HEADER,
    EXECUTION_HEADER,
    HOLD,
    PREFIX,
    STOP,
    TOKEN_HEADER,
    path_below,
    sent_upstream,
)
from costada.models.gateway.upstream import Flight, Request

LARGEST_REQUEST = 2**30
_ANSWER_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers clients that know the token.

    Attributes:
        stopping: Set when the gateway is to stop.
        token: What clients must show.
    """

    def __init__(self, exchange: Exchange, token: str) -> None:
        """Take what requests are handed to, and the token."""
        self._exchange = exchange
        self.token = token
        self._num_open = 0
        self._last_use = monotonic()
        self.stopping = asyncio.Event()

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last client left and the last request ended; 0 while any is there."""
        if self._num_open or self._exchange.is_busy:
            self._last_use = monotonic()
        return monotonic() - self._last_use

    def application(self) -> web.Application:
        """Return the routes."""
        application = web.Application(middlewares=[self._admit], client_max_size=LARGEST_REQUEST)
        application.router.add_get(HOLD, self._hold)
        application.router.add_post(STOP, self._stop)
        application.router.add_route("*", f"{PREFIX}/{{rest:.*}}", self._forward)
        return application

    @web.middleware
    async def _admit(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        given = request.headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode(errors="surrogateescape"), self.token.encode()):
            return _refusal(403, f"header {TOKEN_HEADER}: expected this gateway's token")
        self._num_open += 1
        try:
            return await handler(request)
        finally:
            self._num_open -= 1
            self._last_use = monotonic()

    async def _hold(self, request: web.Request) -> web.StreamResponse:
        """Keep the gateway from being idle for as long as the client is connected."""
        response = web.StreamResponse()
        await response.prepare(request)
        await self.stopping.wait()
        return response

    async def _stop(self, request: web.Request) -> web.StreamResponse:
        self.stopping.set()
        return web.Response(status=202)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        call = request.headers.get(CALL_HEADER, "")
        if not call:
            return _refusal(400, f"header {CALL_HEADER}: got none, expected the call's key")
        path = path_below(request.raw_path)
        if path is None:
            return _refusal(400, f"path: expected one below {PREFIX}, without steps upwards")
        execution = request.headers.get(EXECUTION_HEADER) or uuid4().hex
        headers = sent_upstream(request.headers)
        wish = Request(request.method, path, headers, await request.read())
        if self.stopping.is_set():
            return _refusal(503, "the gateway is stopping; nothing was sent")
        try:
            flight = self._exchange.take(RequestKey(call, _hash(wish)), execution, wish)
        except sqlite3.Error as error:
            return _refusal(503, f"not sent, as it cannot be journaled: {describe(error)}")
        is_told = False
        try:
            response = await _tell(flight, request)
            is_told = True
        finally:
            if not is_told:
                self._exchange.give_back(flight, execution)
        return response


async def _tell(flight: Flight, request: web.Request) -> web.StreamResponse:
    """Hand a response on as it arrives, or break the connection as the provider's broke."""
    has_response = await flight.is_worth_telling()
    if flight.fate is Fate.UNSENT:
        return _refusal(502, "the gateway cannot reach the provider; nothing was sent")
    response = web.StreamResponse(status=flight.status or 502, headers=flight.headers)
    if has_response:
        response.content_length = flight.size
        await response.prepare(request)
        async for piece in flight.pieces():
            await response.write(piece)
    if flight.fate is Fate.LOST and request.transport is not None:
        request.transport.abort()
    elif has_response:
        await response.write_eof()
    return response


def _hash(wish: Request) -> str:
    """Return the hash of a request.

    Neither the order of keys in a JSON body nor the limit of the answer's length matters: what is
    left of a budget may set that limit, and it can change until a call is executed again.
    """
    try:
        given = json.loads(wish.body)
    except ValueError:
        given = None
    body = wish.body
    if isinstance(given, dict):
        said = {name: value for name, value in given.items() if name not in _ANSWER_LIMITS}
        body = json.dumps(said, sort_keys=True).encode()
    return sha256(b"\0".join((wish.method.encode(), wish.path.encode(), body))).hexdigest()


def _refusal(status: int, message: str) -> web.Response:
    error = {"message": message, "type": "gateway", "code": str(status)}
    return web.json_response({"error": error}, status=status)
