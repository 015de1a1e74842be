"""The HTTP server of the endpoint, in the event loop of paid calls.

Clients are not trusted. What a request holds is limited, a client that sends too slowly is cut off,
and a request without a known token is refused before its body is read.
"""

import asyncio
import hmac
import socket
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import h11

from costada.models.endpoint.client_requests import dialect_of, read_request
from costada.models.endpoint.client_responses import refused
from costada.models.endpoint.exchange import Answer, BrokenStream, ClientResponse, Refusal
from costada.models.event_loop import close_with_loop, paid_loop
from costada.values.model_access import LOOPBACK, new_token

Result = TypeVar("Result")

PIECE = 64 * 1024
"""Most bytes that are read at once, and of a request's line and headers."""


CHALLENGE = "x-costada-challenge"
"""Header of a request that is answered with a proof, and needs no token."""


def proof_of(secret: str, challenge: str) -> bytes:
    """How a server answers a challenge that has a secret, which it never sends."""
    return hmac.digest(secret.encode(), challenge.encode(), "sha256").hex().encode()


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a client may take.

    Attributes:
        body: Most bytes of a request's body.
        bodies: Most bytes of the bodies of a token's requests that are not answered yet.
        connections: Most connections of a token.
        open_connections: Most connections of all clients: a process may open few files. The
            oldest one on which no known token was shown is closed for a further one.
        read_seconds: Longest time from the first byte of a head to its end, and for each `PIECE`
            of a body.
        idle_seconds: How long a connection is kept open between two requests.
        write_seconds: Longest time until a client takes a piece of a response; it may compute
            meanwhile.
        linger_seconds: How long the rest of a refused request is read and dropped, so that its
            sender reads why.
    """

    body: int = 16 * 1024 * 1024
    bodies: int = 32 * 1024 * 1024
    connections: int = 64
    open_connections: int = 512
    read_seconds: float = 10.0
    idle_seconds: float = 120.0
    write_seconds: float = 300.0
    linger_seconds: float = 5.0


DEFAULT_LIMITS = ClientLimits()


class Endpoint:
    """Serves clients that show a token, over TCP on this machine or on sockets that it is given.

    Its methods may be called in any thread but that of the event loop.

    Attributes:
        secret: By which those who know it tell this server from others; see `proof_of`.
    """

    def __init__(
        self,
        answer: Answer,
        is_known: Callable[[str], bool],
        limits: ClientLimits = DEFAULT_LIMITS,
    ) -> None:
        """Prepare to serve.

        Args:
            answer: Answers each request. It may wait as long as it likes.
            is_known: Whether requests with a token are read at all. It is called in the event loop
                and must not block.
            limits: What each client may take.
        """
        self._answer, self._is_known, self._limits = answer, is_known, limits
        self.secret = new_token()
        self._servers: list[asyncio.Server] = []
        self._tasks: dict[asyncio.Task[None], _Connection] = {}

    def start(self, host: str = LOOPBACK, port: int = 0) -> str:
        """Listen at an address, perhaps beside others, and at a free port if none is given.

        Returns the address without a path.

        Raises:
            OSError: This machine does not have the address, or the port is taken.
        """
        return _in_loop(self._start(host, port))

    def adopt(self, connected: socket.socket, token: str) -> None:
        """Serve a connected stream socket, on which every request has the token.

        The endpoint owns the socket from now on.
        """
        connected.setblocking(False)
        _in_loop(self._adopt(connected, token))

    def disconnect(self, token: str) -> None:
        """Close the connections of a token; what has left for a provider is not cancelled."""
        _in_loop(self._abort(lambda connection: connection.token == token))

    def close(self) -> None:
        """Listen no longer, and close all connections."""
        _in_loop(self._close())

    async def _start(self, host: str, port: int) -> str:
        server = await asyncio.start_server(self._begin, host, port, limit=PIECE)

        async def close() -> None:
            server.close()

        # Not a method: what is closed with the loop must not keep its owner alive.
        close_with_loop(self, close)
        self._servers.append(server)
        shown_host, shown_port = server.sockets[0].getsockname()[:2]
        shown = f"[{shown_host}]" if ":" in shown_host else shown_host
        return f"http://{shown}:{shown_port}"

    async def _adopt(self, connected: socket.socket, token: str) -> None:
        self._begin(*await asyncio.open_connection(sock=connected, limit=PIECE), token)

    def _begin(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str | None = None
    ) -> None:
        connection = _Connection(reader, writer, token, self._limits)
        is_over = token is not None and self._is_full(token)
        if is_over or not self._has_room():
            connection.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._tasks[task] = connection
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    def _has_room(self) -> bool:
        """Whether there is room for a further connection, perhaps of one that shows no token.

        Whoever reaches the port can open connections: they keep out no client that has a token.
        """
        if len(self._tasks) < self._limits.open_connections:
            return True
        stranger = next((task for task, each in self._tasks.items() if not each.is_known), None)
        if stranger is None:
            return False
        self._tasks.pop(stranger).abort()
        return True

    async def _abort(self, is_meant: Callable[["_Connection"], bool]) -> None:
        for connection in tuple(self._tasks.values()):
            if is_meant(connection):
                connection.abort()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        await self._abort(lambda connection: True)

    async def _serve(self, connection: "_Connection") -> None:
        try:
            while await self._serve_request(connection):
                pass
        # The client left or was too slow, the provider's stream broke, or the run is to stop: the
        # client sees that in its connection.
        except (_Lost, BrokenStream, InterruptedError):
            connection.abort()
        finally:
            connection.close()

    async def _serve_request(self, connection: "_Connection") -> bool:
        """Serve the next request; returns whether the connection serves another one."""
        is_anthropic = False
        try:
            head = await connection.next_head()
            if head is None:
                return False
            headers = {
                name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers
            }
            is_anthropic = "anthropic-version" in headers
            response = await self._respond(connection, head, headers)
        except Refusal as refusal:
            response = refused(is_anthropic, refusal)
        finally:
            connection.held = 0
        await connection.send(response)
        if connection.begin_next():
            return True
        await connection.linger()
        return False

    async def _respond(
        self, connection: "_Connection", head: h11.Request, headers: dict[str, str]
    ) -> ClientResponse:
        """What a request is answered.

        Raises:
            Refusal: It is refused, perhaps before its body is read.
        """
        if CHALLENGE in headers:
            proof = proof_of(self.secret, headers[CHALLENGE])
            return ClientResponse(200, "text/plain", proof)
        if not connection.is_adopted:
            token = _shown_token(headers)
            self._check_number(connection, token)
            connection.token = token
        token = connection.token or ""
        connection.is_known = self._is_known(token)
        if not connection.is_known:
            raise Refusal(401, "invalid_token", "token: expected one that the endpoint knows")
        dialect = dialect_of(head.method.decode("latin-1"), head.target.decode("latin-1"))
        body = await connection.read_body(headers, lambda: self._check_held(token))
        if len(body) > PIECE:  # it takes its time
            request = await asyncio.to_thread(read_request, dialect, headers, body)
        else:
            request = read_request(dialect, headers, body)
        return await self._answer(token, request)

    def _check_held(self, token: str) -> None:
        held = sum(each.held for each in self._tasks.values() if each.token == token)
        if held > self._limits.bodies:
            message = f"bodies: expected at most {self._limits.bodies:,} bytes at once"
            raise Refusal(429, "too_large", message, retry_after=1.0)

    def _check_number(self, connection: "_Connection", token: str) -> None:
        if connection.token != token and self._is_full(token):
            message = f"connections: expected at most {self._limits.connections} at once"
            raise Refusal(429, "connections", message, retry_after=1.0)

    def _is_full(self, token: str) -> bool:
        others = [each for each in self._tasks.values() if each.token == token]
        return len(others) >= self._limits.connections


def _in_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Do something in the event loop, whatever thread asks for it."""
    return asyncio.run_coroutine_threadsafe(work, paid_loop().loop).result()


def _shown_token(headers: dict[str, str]) -> str:
    """The token that a client shows, in the header of either protocol."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


class _Lost(Exception):
    """Nothing more can be read from a client or sent to it."""


class _Connection:
    """One connection of a client.

    Attributes:
        token: What its requests have shown last, or have by themselves.
        is_adopted: Whether they have it by themselves.
        is_known: Whether it is a known one.
        held: Bytes of the body of its current request.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        token: str | None,
        limits: ClientLimits,
    ) -> None:
        self._limits = limits
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=PIECE)
        self._head: h11.Request | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline = 0.0
        self._since_deadline = 0
        self.token = token
        self.is_adopted = self.is_known = token is not None
        self.held = 0

    async def next_head(self) -> h11.Request | None:
        """The head of the next request, `None` if the client has closed the connection.

        Raises:
            Refusal: It is not one of HTTP, or too long.
        """
        limits = self._limits
        self._limit(limits.read_seconds if self._head is None else limits.idle_seconds)
        self._head = None
        try:
            event = await self._next_event(is_head=True)
        except h11.RemoteProtocolError as error:
            raise Refusal(error.error_status_hint, "invalid_http", str(error)) from None
        if isinstance(event, h11.Request):
            self._head = event
        return self._head

    async def read_body(self, headers: dict[str, str], check_held: Callable[[], None]) -> bytes:
        """The body of the current request.

        Args:
            headers: Of the request.
            check_held: Called as the body grows; may raise.

        Raises:
            Refusal: It is too large, or compressed.
        """
        encoding = headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise Refusal(
                415, "encoding", f"content-encoding: got {encoding[:50]!r}, expected none"
            )
        most = self._limits.body
        too_large = Refusal(413, "too_large", f"body: expected at most {most:,} bytes")
        if int(headers.get("content-length", 0)) > most:
            raise too_large
        self._limit(self._limits.read_seconds)
        pieces = list[bytes]()
        try:
            while isinstance(event := await self._next_event(), h11.Data):
                pieces.append(bytes(event.data))
                self.held += len(event.data)
                if self.held > most:
                    raise too_large
                check_held()
        except h11.RemoteProtocolError as error:
            raise Refusal(error.error_status_hint, "invalid_http", str(error)) from None
        return b"".join(pieces)

    async def send(self, response: ClientResponse) -> None:
        """Send a response, a stream as it comes."""
        body = response.body
        headers = [("content-type", response.content_type), *response.headers.items()]
        if isinstance(body, bytes):
            headers.append(("content-length", str(len(body))))
        if self._http.their_state is not h11.DONE:  # the rest of the request is not read
            headers.append(("connection", "close"))
        start = h11.Response(status_code=response.status, headers=headers)
        if isinstance(body, bytes):
            has_body = self._head is None or self._head.method != b"HEAD"
            await self._send(
                start, *([h11.Data(data=body)] if has_body else []), h11.EndOfMessage()
            )
            return
        await self._send(start)
        async with aclosing(body) as pieces:
            async for piece in pieces:
                await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())

    def begin_next(self) -> bool:
        """Get ready for another request; returns whether the connection can have one."""
        if not self._http.our_state is self._http.their_state is h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def linger(self) -> None:
        """Drop what still arrives: to close at once would take the response from the client."""
        if self._http.their_state not in (h11.SEND_BODY, h11.ERROR):
            return
        with suppress(OSError, TimeoutError):
            # A channel of a sandbox closes both ways at once: the client could send no more.
            if not self.is_adopted:
                self._writer.write_eof()
            async with asyncio.timeout(self._limits.linger_seconds):
                while await self._reader.read(PIECE):
                    pass

    def abort(self) -> None:
        """Break the connection, so that no client takes a part of a response for the whole."""
        self._writer.transport.abort()

    def close(self) -> None:
        """Close the connection once what was written is sent."""
        self._writer.close()

    def _limit(self, seconds: float) -> None:
        self._deadline = self._loop.time() + seconds
        self._since_deadline = 0

    async def _next_event(self, *, is_head: bool = False) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue and not is_head:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            is_first = is_head and not self._http.trailing_data[0]
            data = await self._guarded(self._reader.read(PIECE), self._deadline)
            self._since_deadline += len(data)
            if is_first or (not is_head and self._since_deadline >= PIECE):
                self._limit(self._limits.read_seconds)
            self._http.receive_data(data)
        return event

    async def _send(self, *events: h11.Event) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events)
        if data:
            self._writer.write(data)
            await self._guarded(
                self._writer.drain(), self._loop.time() + self._limits.write_seconds
            )

    async def _guarded(self, work: Coroutine[Any, Any, Any], deadline: float) -> Any:
        try:
            async with asyncio.timeout_at(deadline):
                return await work
        except (OSError, TimeoutError) as error:
            raise _Lost from error
