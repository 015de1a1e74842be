"""An OpenAI-compatible chat server on the loopback interface that keeps its own bill.

It stands in for a provider wherever the real client has to be tested:

    with BillingServer() as server:
        server.script(Refusal(429), Reply("hello", input_tokens=7, output_tokens=2))
        model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
        ...
        assert server.total() == Bill("stand-in", 7, 2)

Each request takes the next scripted answer. An answer may be a function of the request's body.
When the script is empty, `default` answers. What the server would charge is in `bill`, request
bodies are in `requests`; both are complete once the client has its answer. `clients` holds the
address of each connection, `authorizations` the header of each request. Chat completions and the
Responses API are both spoken.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Event, Lock, Thread
from typing import Any, Self

from billing_responses import (
    embeddings_of,
    message_events,
    message_of,
    response_events,
    response_of,
)

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Bill:
    """What one answer costs: cached is part of input, reasoning part of output."""

    model: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True)
class Reply:
    """A complete, billed answer; streamed when the client asks for a stream.

    `reports_usage` off leaves the token counts out, as some servers do. `breaks_after` closes a
    stream after that many of its words, `fails_after` puts an error event there. `counts_parts`
    tells the counts so far with each word of a stream. `body` replaces the whole JSON body of a
    plain answer, which is billed nevertheless. `cost` is reported as OpenRouter does, beside the
    token counts. `tool` is called by the answer, with `text` as its arguments. `service_tier` is
    the tier that the answer names.
    """

    text: str | None = "hello"
    input_tokens: int = 10
    output_tokens: int = 5
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str = "stop"
    reports_usage: bool = True
    breaks_after: int | None = None
    body: bytes | None = None
    cost: float | None = None
    fails_after: int | None = None
    counts_parts: bool = False
    tool: str | None = None
    service_tier: str | None = None

    def usage(self, output_tokens: int | None = None) -> dict[str, Any]:
        written = self.output_tokens if output_tokens is None else output_tokens
        return ({} if self.cost is None else {"cost": self.cost}) | {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": written,
            "total_tokens": self.input_tokens + written,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }

    def message(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.text}
        if self.tool is None:
            return message
        call = {"name": self.tool, "arguments": self.text}
        calls = [{"id": "call-1", "type": "function", "function": call}]
        return message | {"content": None, "tool_calls": calls}

    def pieces(self) -> list[str]:
        words = (self.text or "").split(" ")
        return words[:1] + [f" {word}" for word in words[1:]]


@dataclass(frozen=True)
class Refusal:
    """An error status with an OpenAI-shaped body; never billed. `code` is the status by default."""

    status: int
    message: str = "refused"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A web page with status 200, also where a stream was asked for; never billed."""

    body: bytes = b"<html>Welcome</html>"


@dataclass(frozen=True)
class HangUp:
    """The connection is closed without a byte of an answer; never billed."""


@dataclass(frozen=True)
class Drip:
    """A billed answer whose body arrives byte by byte and never ends.

    It stops when the client hangs up, which sets `was_hung_up`, or when the server is closed.
    `interval` is seconds between two bytes.
    """

    interval: float = 0.02
    was_hung_up: Event = field(default_factory=Event)


@dataclass(frozen=True)
class Silence:
    """No answer until the server is closed, so that the client gives up; billed or not."""

    input_tokens: int = 10
    is_billed: bool = False
    output_tokens: int = 0


Answer = Reply | Refusal | Silence | Page | HangUp | Drip
Scripted = Answer | Callable[[Body], Answer]


@dataclass
class BillingServer:
    """The server; a context manager. `url` is the base URL to give to a client."""

    default: Scripted = field(default_factory=Reply)
    keeps_alive: bool = False
    host: str = "127.0.0.1"
    bill: list[Bill] = field(default_factory=list)
    requests: list[Body] = field(default_factory=list)
    clients: list[tuple[str, int]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    refused_key: str = ""
    """Requests with this key are answered by status 401."""

    num_taken: int = 0
    """Requests whose answers have been chosen, also before a reset."""

    def __post_init__(self) -> None:
        self._script: deque[Scripted] = deque()
        self._closing = Event()
        self._ids = count(1)
        self._lock = Lock()
        self._server = _ManyClients((self.host, 0), self._handler())
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self._server.server_port}/v1"

    @property
    def next_answer(self) -> Scripted:
        """What answers the next request."""
        return self._script[0] if self._script else self.default

    def script(self, *answers: Scripted) -> None:
        """Append answers for the coming requests."""
        self._script.extend(answers)

    def reset(self, default: Scripted) -> Self:
        """Forget requests, bill and script, and answer with what is given now."""
        self.bill.clear()
        self.requests.clear()
        self.clients.clear()
        self.authorizations.clear()
        self._script.clear()
        self._ids = count(1)
        self.default = default
        self.keeps_alive = False
        return self

    def total(self) -> Bill:
        """Return the sum of the bill; the model is that of its last entry."""
        return Bill(
            self.bill[-1].model if self.bill else "",
            sum(entry.input_tokens for entry in self.bill),
            sum(entry.output_tokens for entry in self.bill),
            sum(entry.cached_tokens for entry in self.bill),
            sum(entry.reasoning_tokens for entry in self.bill),
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(_Handler):
            owner = server

        return Handler

    def _take(self, body: Body, *, is_embedding: bool = False) -> Answer:
        self.requests.append(body)
        scripted = self._script.popleft() if self._script else self.default
        answer = scripted(body) if callable(scripted) else scripted
        model = str(body.get("model"))
        if isinstance(answer, Reply) and is_embedding:
            answer = replace(answer, output_tokens=0, reasoning_tokens=0)
        if isinstance(answer, Reply):
            self.bill.append(
                Bill(
                    model,
                    answer.input_tokens,
                    answer.output_tokens,
                    answer.cached_tokens,
                    answer.reasoning_tokens,
                    answer.cost,
                )
            )
        if isinstance(answer, Drip):
            self.bill.append(Bill(model, 10, 5))
        if isinstance(answer, Silence) and answer.is_billed:
            self.bill.append(Bill(model, answer.input_tokens, answer.output_tokens))
        with self._lock:
            self.num_taken += 1
        return answer


class _ManyClients(ThreadingHTTPServer):
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    owner: BillingServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.owner.clients.append(self.client_address)
        super().setup()

    def log_message(self, format: str, *args: object) -> None:
        """Keep the terminal quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        authorization = self.headers.get("Authorization", "")
        self.owner.authorizations.append(authorization)
        answer: Answer
        if self.owner.refused_key and self.owner.refused_key in authorization:
            answer = Refusal(401, "wrong key")
        else:
            answer = self.owner._take(body, is_embedding=self.path.endswith("/embeddings"))
        try:
            self._send(answer, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _send(self, answer: Answer, body: Body) -> None:
        if isinstance(answer, Silence):
            self.owner._closing.wait()
            self.close_connection = True
        elif isinstance(answer, HangUp):
            self.close_connection = True
        elif isinstance(answer, Drip):
            self._drip(answer, is_stream=bool(body.get("stream")))
        elif isinstance(answer, Refusal):
            code = answer.code or str(answer.status)
            error = {"message": answer.message, "type": "refused", "code": code}
            self._send_whole(
                answer.status, json.dumps({"error": error}).encode(), headers=answer.headers
            )
        elif isinstance(answer, Page):
            self._send_whole(200, answer.body, "text/html")
        elif body.get("stream"):
            self._send_stream(answer, self._events(answer, body))
        else:
            self._send_whole(200, answer.body or json.dumps(self._answer(answer, body)).encode())

    def _send_whole(
        self,
        status: int,
        content: bytes,
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._send_head(status, kind, {"Content-Length": str(len(content)), **(headers or {})})
        self.wfile.write(content)

    def _drip(self, answer: Drip, *, is_stream: bool) -> None:
        kind = "text/event-stream" if is_stream else "application/json"
        self._send_head(200, kind, {"Transfer-Encoding": "chunked"})
        drop = b"3\r\n:\n\n\r\n" if is_stream else b"1\r\n \r\n"
        try:
            while not self.owner._closing.wait(answer.interval):
                self.wfile.write(drop)
        except (BrokenPipeError, ConnectionResetError):
            answer.was_hung_up.set()
        self.close_connection = True

    def _send_head(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name, value)
        if not self.owner.keeps_alive:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()

    def _answer(self, reply: Reply, body: Body) -> dict[str, Any]:
        if self.path.endswith("/embeddings"):
            return embeddings_of(reply, body)
        if self._is_messages:
            return message_of(reply, self._head("message", reply, body))
        if self._is_responses:
            return response_of(reply, self._head("response", reply, body))
        choices = [
            {"index": index, "message": reply.message(), "finish_reason": reply.finish_reason}
            for index in range(body.get("n") or 1)
        ]
        completion = self._head("chat.completion", reply, body) | {"choices": choices}
        return completion | ({"usage": reply.usage()} if reply.reports_usage else {})

    def _head(self, kind: str, reply: Reply, body: Body) -> dict[str, Any]:
        tier = {} if reply.service_tier is None else {"service_tier": reply.service_tier}
        return tier | {
            "id": f"answer-{next(self.owner._ids)}",
            "object": kind,
            "created": 0,
            "model": f"{body.get('model')}-as-served",
        }

    @property
    def _is_messages(self) -> bool:
        return self.path.endswith("/messages")

    @property
    def _is_responses(self) -> bool:
        return self.path.endswith("/responses")

    def _send_stream(self, reply: Reply, events: Iterator[str]) -> None:
        self._send_head(200, "text/event-stream", {"Transfer-Encoding": "chunked"})
        for event in events:
            # The SDK of Anthropic reads the name of an event before its data.
            name = f"event: {json.loads(event)['type']}\n" if self._is_messages else ""
            line = f"{name}data: {event}\n\n".encode()
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        if reply.breaks_after is None:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True

    def _events(self, reply: Reply, body: Body) -> Iterator[str]:
        if self._is_messages:
            yield from message_events(reply, self._head("message", reply, body))
            return
        if self._is_responses:
            yield from response_events(reply, self._head("response", reply, body))
            return
        head = self._head("chat.completion.chunk", reply, body)
        ends = [end for end in (reply.breaks_after, reply.fails_after) if end is not None]
        for number, piece in enumerate(reply.pieces()[: min(ends, default=None)], start=1):
            usage = {"usage": reply.usage(number)} if reply.counts_parts else {}
            yield json.dumps(head | usage | {"choices": [_delta({"content": piece}, None)]})
        if reply.fails_after is not None:
            yield json.dumps({"error": {"message": "upstream broke", "code": 502}})
        if ends:
            return
        yield json.dumps(head | {"choices": [_delta({}, reply.finish_reason)]})
        if reply.reports_usage and (body.get("stream_options") or {}).get("include_usage"):
            yield json.dumps(head | {"choices": [], "usage": reply.usage()})
        yield "[DONE]"


def _delta(content: Mapping[str, str], finish_reason: str | None) -> dict[str, Any]:
    delta = {"role": "assistant"} | dict(content)
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}
