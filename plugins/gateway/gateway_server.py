"""The HTTP server of a gateway, in a separate process."""

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

from costada.models.connection import CALL_HEADER, EXECUTION_HEADER
from costada.models.errors import describe
from costada.plugins.gateway.dispatch import (
    Dispatcher,
    InflightRequest,
    Request,
    Upstream,
    checked_upstream,
)
from costada.plugins.gateway.gateway_protocol import (
    CALL_TIMEOUT,
    HOLD,
    IDLE_SECONDS,
    PREFIX,
    STOP,
    TOKEN_HEADER,
    GatewayAddress,
    address_file,
    forwarded_headers,
    hold_address,
    path_below,
)
from costada.plugins.gateway.response_journal import Journal, RequestKey, RequestState
from costada.reports.json_log import is_on, log_message

HOST = "127.0.0.1"
MAX_REQUEST = 2**30
_TOKEN_BYTES = 32
_OWNER_ONLY_MASK = 0o077
_LONGEST_TICK = 1.0
_SHUTDOWN_SECONDS = 5.0
_ANSWER_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of a gateway.

    Attributes:
        upstream: Address of the provider.
        journal: Its file, next to the address file.
        port: Where to listen on 127.0.0.1; 0: any free port.
        idle_seconds: It ends after so long without a client and without a running request.
        call_timeout: Seconds after which a response is given up as lost.
        token: What clients must show; empty for a new one.
    """

    upstream: str
    journal: Path
    port: int = 0
    idle_seconds: float = IDLE_SECONDS
    call_timeout: float = CALL_TIMEOUT
    token: str = ""


def serve(settings: GatewaySettings, announce: Callable[[GatewayAddress], None]) -> None:
    """Serve until idle or stopped by a signal; raises as `serve_journal`.

    `announce` is called once the gateway can be used. Call it in a separate process.
    """
    prepare_process()

    async def until_stopped() -> None:
        stopping = asyncio.Event()
        stop_on_signal(stopping.set)
        await serve_journal(settings, announce, stopping, _log)

    asyncio.run(until_stopped())


def prepare_process() -> None:
    """Let this process create files for its owner only, and use no logins but its clients' keys."""
    os.umask(_OWNER_ONLY_MASK)
    # A login for the provider's host in that file would clash with the client's own key.
    os.environ["NETRC"] = os.devnull


def stop_on_signal(stop: Callable[[], object]) -> None:
    """Call `stop` on SIGTERM or Ctrl-C; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def stop_once() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_once)


async def serve_journal(
    settings: GatewaySettings,
    announce: Callable[[GatewayAddress], None],
    stopping: asyncio.Event,
    log: Callable[[str], None],
) -> None:
    """Serve until idle or stopped; running requests are read to their end first.

    Args:
        settings: The settings of the gateway.
        announce: Called once it can be used.
        stopping: Set to stop it.
        log: Where it tells of lost responses and of its end.

    Raises:
        ValueError: The upstream is not an address, another gateway uses the journal, or that is of
            another version.
        OSError: A file cannot be created or written, or the port is taken.
    """
    upstream_url = checked_upstream(settings.upstream)
    if not settings.idle_seconds > 0:
        raise ValueError(f"idle_seconds: got {settings.idle_seconds}, expected > 0")
    if not settings.call_timeout > 0:
        raise ValueError(f"call_timeout: got {settings.call_timeout}, expected > 0")
    with (
        hold_address(address_file(settings.journal)) as file,
        closing(Journal(settings.journal)) as journal,
    ):
        if journal.num_lost:
            log(f"{journal.num_lost} requests had no response when the last gateway ended: lost")
        upstream = Upstream(upstream_url, settings.call_timeout)
        dispatcher = Dispatcher(upstream, journal, log)
        token = settings.token or secrets.token_urlsafe(_TOKEN_BYTES)
        server = Server(dispatcher, token, stopping)
        runner = web.AppRunner(
            server.application(),
            handle_signals=False,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        try:
            await runner.setup()
            site = web.TCPSite(runner, HOST, settings.port)
            await site.start()
            port = runner.addresses[0][1]
            address = GatewayAddress(port, os.getpid(), server.token, upstream_url, journal.id)
            # In this order: who starts a gateway reads the file once it is announced.
            file.write(address)
            announce(address)
            log(await _end_of(server, settings.idle_seconds))
            # First: from here on a run starts a gateway of its own instead of finding this one.
            file.clear()
            await site.stop()
            await dispatcher.drain()
        finally:
            await runner.cleanup()
            await upstream.close()


async def _end_of(server: "Server", idle_seconds: float) -> str:
    """Wait until a server is idle or is stopped, and return which."""
    tick = min(idle_seconds / 4, _LONGEST_TICK)
    while server.idle_seconds < idle_seconds:
        try:
            await asyncio.wait_for(server.stopping.wait(), tick)
        except TimeoutError:
            continue
        return "asked to stop"
    server.stopping.set()
    return f"unused for {idle_seconds:g} seconds"


def _log(text: str) -> None:
    if is_on():
        log_message(text, "warning")
    else:
        print(logged_line(text), file=sys.stderr, flush=True)  # noqa: T201  no room above


def logged_line(text: str) -> str:
    """What a gateway says, as a line of its log."""
    return f"costada gateway: {text.encode('unicode_escape').decode()}"


class Server:
    """Answers clients that know the token.

    Attributes:
        stopping: Set when the gateway is to stop.
        token: What clients must show.
    """

    def __init__(self, dispatcher: Dispatcher, token: str, stopping: asyncio.Event) -> None:
        """Take what requests are passed to, the token, and what is set to stop."""
        self._dispatcher = dispatcher
        self.token = token
        self.stopping = stopping
        self._num_open = 0
        self._last_use = monotonic()

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last client left and the last request ended; 0 while any is there."""
        if self._num_open or self._dispatcher.is_busy:
            self._last_use = monotonic()
        return monotonic() - self._last_use

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application(middlewares=[self._admit], client_max_size=MAX_REQUEST)
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
        headers = forwarded_headers(request.headers)
        wanted = Request(request.method, path, headers, await request.read())
        if self.stopping.is_set():
            return _refusal(503, "the gateway is stopping; nothing was sent")
        try:
            key = RequestKey(call, _request_hash(wanted))
            inflight = self._dispatcher.dispatch(key, execution, wanted)
        except sqlite3.Error as error:
            return _refusal(503, f"not sent, as it cannot be journaled: {describe(error)}")
        is_complete = False
        try:
            response = await _pass_on(inflight, request)
            is_complete = True
        finally:
            if not is_complete:
                self._dispatcher.release(inflight, execution)
        return response


async def _pass_on(inflight: InflightRequest, request: web.Request) -> web.StreamResponse:
    """Send a response as it arrives; break the connection if the provider's broke."""
    has_response = await inflight.has_response()
    if inflight.state is RequestState.UNSENT:
        return _refusal(502, "the gateway cannot reach the provider; nothing was sent")
    response = web.StreamResponse(status=inflight.status or 502, headers=inflight.headers)
    if has_response:
        response.content_length = inflight.size
        await response.prepare(request)
        async for piece in inflight.pieces():
            await response.write(piece)
    if inflight.state is RequestState.LOST and request.transport is not None:
        # As the provider's connection broke: an orderly end would make the part a whole answer.
        request.transport.abort()
    elif has_response:
        await response.write_eof()
    return response


def _request_hash(request: Request) -> str:
    """Hash a request.

    Neither the order of keys in a JSON body nor the limit of the answer's length matters: what is
    left of a budget may set that limit, and it can change until a call is executed again.
    """
    try:
        given = json.loads(request.body)
    except ValueError:
        given = None
    body = request.body
    if isinstance(given, dict):
        hashed = {name: value for name, value in given.items() if name not in _ANSWER_LIMITS}
        body = json.dumps(hashed, sort_keys=True).encode()
    return sha256(b"\0".join((request.method.encode(), request.path.encode(), body))).hexdigest()


def _refusal(status: int, message: str) -> web.Response:
    error = {"message": message, "type": "gateway", "code": str(status)}
    return web.json_response({"error": error}, status=status)
