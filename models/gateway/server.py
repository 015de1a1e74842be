"""The gateway as a process: its HTTP server, from taking the journal to the last response."""

import asyncio
import hmac
import json
import os
import secrets
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic
from uuid import uuid4

from aiohttp import web

from costada.models.errors import describe
from costada.models.gateway.dispatch import (
    Dispatcher,
    InflightRequest,
    Request,
    Upstream,
    checked_upstream,
)
from costada.models.gateway.journal import Journal, Outcome, RequestKey
from costada.models.gateway.protocol import (
    CALL_HEADER,
    CALL_TIMEOUT,
    EXECUTION_HEADER,
    HOLD,
    IDLE_SECONDS,
    PREFIX,
    STOP,
    TOKEN_HEADER,
    AddressFile,
    GatewayAddress,
    address_file,
    hold_address,
    path_below,
    sent_upstream,
)

LARGEST_REQUEST = 2**30
_ANSWER_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers clients that know the token.

    Attributes:
        stopping: Set when the gateway is to stop.
        token: What clients must show.
    """

    def __init__(self, exchange: Dispatcher, token: str) -> None:
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


async def _tell(flight: InflightRequest, request: web.Request) -> web.StreamResponse:
    """Hand a response on as it arrives, or break the connection as the provider's broke."""
    has_response = await flight.is_worth_telling()
    if flight.fate is Outcome.UNSENT:
        return _refusal(502, "the gateway cannot reach the provider; nothing was sent")
    response = web.StreamResponse(status=flight.status or 502, headers=flight.headers)
    if has_response:
        response.content_length = flight.size
        await response.prepare(request)
        async for piece in flight.pieces():
            await response.write(piece)
    if flight.fate is Outcome.LOST and request.transport is not None:
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


HOST = "127.0.0.1"
TOKEN_BYTES = 32
_OWNER_ONLY_MASK = 0o077
_LONGEST_TICK = 1.0
_FAREWELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What a gateway is asked to do.

    Attributes:
        upstream: Address of the provider.
        journal: Its file; the door file lies beside it.
        port: Where to listen on 127.0.0.1; 0: any free port.
        idle_seconds: It ends after so long without a client and without a request under way.
        call_timeout: Seconds after which a response is given up as lost.
    """

    upstream: str
    journal: Path
    port: int = 0
    idle_seconds: float = IDLE_SECONDS
    call_timeout: float = CALL_TIMEOUT


def serve(duty: GatewaySettings, announce: Callable[[GatewayAddress], None]) -> None:
    """Serve until idle or told to stop; requests under way are read to their end first.

    `announce` is called once the gateway can be used. SIGTERM or Ctrl-C tells it to stop, a
    second one ends it where it stands. Meant for a process of its own.

    Raises:
        ValueError: The upstream is no address, another gateway is at work on the journal, or that
            is of a newer version.
        OSError: A file cannot be created or the port is taken.
        sqlite3.Error: The journal cannot be written.
    """
    upstream = checked_upstream(duty.upstream)
    if not duty.idle_seconds > 0:
        raise ValueError(f"idle_seconds: got {duty.idle_seconds}, expected > 0")
    if not duty.call_timeout > 0:
        raise ValueError(f"call_timeout: got {duty.call_timeout}, expected > 0")
    os.umask(_OWNER_ONLY_MASK)
    # A login for the provider's host in that file would clash with the client's own key.
    os.environ["NETRC"] = os.devnull
    with (
        hold_address(address_file(duty.journal)) as file,
        closing(Journal(duty.journal)) as journal,
    ):
        if journal.num_lost:
            _log(f"{journal.num_lost} requests were under way when the last gateway ended: lost")
        asyncio.run(_serve(duty, upstream, journal, file, announce))


async def _serve(
    duty: GatewaySettings,
    address: str,
    journal: Journal,
    file: AddressFile,
    announce: Callable[[GatewayAddress], None],
) -> None:
    upstream = Upstream(address, duty.call_timeout)
    exchange = Dispatcher(upstream, journal, _log)
    server = Server(exchange, secrets.token_urlsafe(TOKEN_BYTES))
    runner = web.AppRunner(
        server.application(),
        handle_signals=False,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_FAREWELL_SECONDS,
    )
    try:
        await runner.setup()
        site = web.TCPSite(runner, HOST, duty.port)
        await site.start()
        door = GatewayAddress(runner.addresses[0][1], os.getpid(), server.token, address)
        _stop_on_signal(server.stopping)
        file.open(door)
        announce(door)
        await _until_unneeded(server, duty.idle_seconds)
        file.close()
        await site.stop()
        await exchange.drain()
    finally:
        await runner.cleanup()
        await upstream.close()


async def _until_unneeded(server: Server, idle_seconds: float) -> None:
    tick = min(idle_seconds / 4, _LONGEST_TICK)
    while server.idle_seconds < idle_seconds:
        try:
            await asyncio.wait_for(server.stopping.wait(), tick)
        except TimeoutError:
            continue
        _log("told to stop")
        return
    server.stopping.set()
    _log(f"unused for {idle_seconds:g} seconds")


def _stop_on_signal(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _log(text: str) -> None:
    shown = text.encode("unicode_escape").decode()
    print(f"costada gateway: {shown}", file=sys.stderr, flush=True)  # noqa: T201  no room above
