"""The protocols of OpenAI and Anthropic: what a response says, whole or as a stream."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from costada.models.endpoint.exchange import ClientRequest, ClientResponse, Dialect, Refusal
from costada.models.reply_content import (
    Reply,
    encodable_text,
    reported_cost,
    streamed_usage,
    usage_from_record,
)
from costada.values.usage import Usage

EVENT_STREAM, JSON = "text/event-stream", "application/json"

_ERROR_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}

_STATUS_OF_WORD: Mapping[str, int] = {word: status for status, word in _ERROR_TYPES.items()} | {
    "api_error": 500,
    "billing_error": 402,
    "overloaded_error": 529,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "timeout_error": 504,
}
"""What an error has in the place of a status where the response has begun well."""


def error_response(
    is_anthropic: bool, status: int, code: str, message: str, retry_after: float | None = None
) -> ClientResponse:
    """An error in the protocol of a client; the SDKs ask again only where they are told to."""
    kind = _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error: dict[str, Any] = {"type": kind, "message": encodable_text(message)}
    if is_anthropic:
        body: dict[str, Any] = {"type": "error", "error": error}
    else:
        body = {"error": error | {"param": None, "code": code}}
    headers = {"x-should-retry": "false" if retry_after is None else "true"}
    if retry_after is not None:
        headers["retry-after"] = f"{max(1, round(retry_after))}"
    return ClientResponse(status, JSON, json.dumps(body).encode(), headers)


def refused(is_anthropic: bool, refusal: Refusal) -> ClientResponse:
    """A refusal in the protocol of a client."""
    return error_response(
        is_anthropic, refusal.status, refusal.code, str(refusal), refusal.retry_after
    )


def stored_response(request: ClientRequest, body: str) -> ClientResponse:
    """The response that was kept as the answer to a request."""
    return ClientResponse(200, EVENT_STREAM if request.is_stream else JSON, body.encode())


def models_response(request: ClientRequest, names: Sequence[str]) -> ClientResponse:
    """The list of the models that a client may ask."""
    if request.is_anthropic:
        listed = [{"type": "model", "id": name, "display_name": name} for name in names]
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        body: dict[str, Any] = {"data": listed, "has_more": False, **ends}
    else:
        known = [
            {"id": name, "object": "model", "created": 0, "owned_by": "costada"} for name in names
        ]
        body = {"object": "list", "data": known}
    return ClientResponse(200, JSON, json.dumps(body).encode())


@dataclass(frozen=True, slots=True)
class ReportedError:
    """An error that a provider reports in a response of status 200.

    Attributes:
        message: Its words.
        status: The status that it would have as a response of its own, if it says.
    """

    message: str
    status: int | None = None


def read_answer(dialect: Dialect, body: Mapping[str, Any]) -> tuple[Reply, ReportedError | None]:
    """What a whole response says; `answer` of the reply is its text, tool calls included."""
    usage = body.get("usage")
    counts = _embedding_usage(usage) if dialect is Dialect.EMBEDDINGS else usage_from_record(usage)
    reply = Reply(
        answer="".join(_texts(dialect, body)),
        finish_reason=_finish_reason(dialect, body),
        provider_id=_word(body.get("id")),
        usage=counts,
        cost=reported_cost(usage),
        service_tier=_word(body.get("service_tier")),
    )
    return reply, _error_in(body)


def _embedding_usage(usage: object) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    sent = usage.get("prompt_tokens", usage.get("total_tokens"))
    is_count = isinstance(sent, int) and not isinstance(sent, bool)
    return Usage(sent, 0) if is_count and sent > 0 else None


def _texts(dialect: Dialect, body: Mapping[str, Any]) -> Iterator[str]:
    if dialect is Dialect.CHAT:
        for choice in _records(body.get("choices")):
            yield from _chat_texts(choice.get("message"))
    elif dialect is Dialect.RESPONSES:
        for item in _records(body.get("output")):
            parts = [*_records(item.get("content")), *_records(item.get("summary")), item]
            yield from _named(parts, "text", "refusal", "arguments", "input")
    elif dialect is Dialect.MESSAGES:
        for part in _records(body.get("content")):
            yield from _named([part], "text", "thinking")
            if part.get("input"):
                yield json.dumps(part["input"])


def _chat_texts(message: object) -> Iterator[str]:
    """The texts of a message, or of a part of one in a stream."""
    if not isinstance(message, Mapping):
        return
    yield from _named([message], "content", "refusal", "reasoning_content", "reasoning")
    for call in _records(message.get("tool_calls")):
        for name in ("function", "custom"):
            yield from _named(_records([call.get(name)]), "name", "arguments", "input")


def _records(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _named(records: Iterable[Mapping[str, Any]], *names: str) -> Iterator[str]:
    for record in records:
        for name in names:
            if isinstance(text := record.get(name), str):
                yield text


def _finish_reason(dialect: Dialect, body: Mapping[str, Any]) -> str | None:
    if dialect is Dialect.CHAT:
        choices = _records(body.get("choices"))
        return _word(choices[0].get("finish_reason")) if choices else None
    if dialect is Dialect.RESPONSES:
        details = body.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        return _word(reason) or _word(body.get("status"))
    return _word(body.get("stop_reason"))


def _word(value: object) -> str | None:
    return encodable_text(value) if isinstance(value, str) and value else None


def _error_in(body: Mapping[str, Any]) -> ReportedError | None:
    error = body.get("error")
    if not error:
        return None
    facts = error if isinstance(error, Mapping) else {"message": error}
    code = str(facts.get("code") or facts.get("status") or facts.get("type") or "")
    status = _STATUS_OF_WORD.get(code, 400 if code.startswith("invalid_") else None)
    if code.isascii() and code.isdecimal() and len(code) == 3:
        status = int(code)
    return ReportedError(str(facts.get("message") or json.dumps(error)), status)


@dataclass(slots=True)
class EventReader:
    """Reads a response's event stream: what each event says, and which of them a client gets.

    Attributes:
        request: The request of the client.
        error: The error that an event reported, if one did.
        is_complete: Whether the event came that ends a stream.
    """

    request: ClientRequest
    error: ReportedError | None = None
    is_complete: bool = False
    _rest: bytes = b""
    _texts: list[str] = field(default_factory=list)
    _parts: list[Usage] = field(default_factory=list)
    _record: dict[str, Any] = field(default_factory=dict)
    _reply: Reply = field(default_factory=lambda: Reply(""))

    def read(self, piece: bytes) -> tuple[bytes, bytes]:
        """Take a piece of the stream.

        Returns:
            What the client gets at once, and what it gets when the request is accounted for: the
            events at the end of the stream.
        """
        self._rest += piece
        now, at_end = b"", b""
        while (end := _event_end(self._rest)) is not None:
            event, self._rest = self._rest[:end], self._rest[end:]
            is_passed = self._read_event(event)
            if self.is_complete:
                at_end += event if is_passed else b""
            elif is_passed:
                now += event
        return now, at_end

    @property
    def reply(self) -> Reply:
        """What has been said so far."""
        reply = replace(
            self._reply,
            answer=encodable_text("".join(self._texts)),
            usage=streamed_usage(self._parts),
        )
        if not self._record:
            return reply
        return replace(
            reply, usage=usage_from_record(self._record), cost=reported_cost(self._record)
        )

    def _read_event(self, event: bytes) -> bool:
        """Read an event; returns whether the client gets it."""
        lines = event.replace(b"\r", b"\n").split(b"\n")
        data = b"\n".join(
            line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")
        )
        if data.strip() == b"[DONE]":
            self.is_complete = True
            return True
        try:
            given = json.loads(data) if data else None
        except ValueError:
            given = None
        if not isinstance(given, dict):
            return True
        return _EVENTS[self.request.dialect](self, given)

    def _read_chunk(self, chunk: Mapping[str, Any]) -> bool:
        """Read an event of chat completions."""
        self.error = self.error or _error_in(chunk)
        self._note(chunk)
        choices = _records(chunk.get("choices"))
        for choice in choices:
            self._texts += _chat_texts(choice.get("delta"))
            reason = _word(choice.get("finish_reason"))
            if reason and not choice.get("index"):
                self._reply = replace(self._reply, finish_reason=reason)
        usage = chunk.get("usage")
        if not isinstance(usage, Mapping):
            return True
        if (counted := usage_from_record(usage)) is not None:
            self._parts.append(counted)
        # What the last one says of the cost; the counts may be of each part.
        self._reply = replace(self._reply, cost=reported_cost(usage))
        options = self.request.body.get("stream_options")
        has_asked = isinstance(options, Mapping) and options.get("include_usage")
        return bool(choices or has_asked or self.error)

    def _read_response_event(self, event: Mapping[str, Any]) -> bool:
        """Read an event of the Responses API."""
        kind = str(event.get("type"))
        if kind.endswith(".delta") and isinstance(event.get("delta"), str):
            self._texts.append(event["delta"])
        if kind == "error":
            self.error = _error_in({"error": event.get("error") or event})
        response = event.get("response")
        if isinstance(response, Mapping):
            self._note(response)
            self.error = self.error or _error_in(response)
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self.is_complete = True
            if isinstance(response, Mapping):
                self._reply = replace(
                    self._reply, finish_reason=_finish_reason(Dialect.RESPONSES, response)
                )
                if isinstance(response.get("usage"), Mapping):
                    self._record = dict(response["usage"])
        return True

    def _read_message_event(self, event: Mapping[str, Any]) -> bool:
        """Read an event of Anthropic's messages, whose counts replace those of the beginning."""
        message, delta = event.get("message"), event.get("delta")
        if event.get("type") == "error":
            self.error = _error_in(event)
        if isinstance(message, Mapping):
            self._note(message)
            self._add_counts(message.get("usage"))
        if isinstance(delta, Mapping):
            self._texts += _named([delta], "text", "thinking", "partial_json")
            if reason := _word(delta.get("stop_reason")):
                self._reply = replace(self._reply, finish_reason=reason)
        self._add_counts(event.get("usage"))
        if event.get("type") == "message_stop":
            self.is_complete = True
        return True

    def _add_counts(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            self._record |= {name: value for name, value in usage.items() if value is not None}

    def _note(self, facts: Mapping[str, Any]) -> None:
        self._reply = replace(
            self._reply,
            provider_id=self._reply.provider_id or _word(facts.get("id")),
            service_tier=_word(facts.get("service_tier")) or self._reply.service_tier,
        )


_EVENTS = MappingProxyType(
    {
        Dialect.CHAT: EventReader._read_chunk,
        Dialect.RESPONSES: EventReader._read_response_event,
        Dialect.MESSAGES: EventReader._read_message_event,
    }
)


def _event_end(data: bytes) -> int | None:
    """Where the first event of a stream ends, its empty line included."""
    ends = [
        position + len(mark)
        for mark in (b"\n\n", b"\r\n\r\n", b"\r\r")
        if (position := data.find(mark)) >= 0
    ]
    return min(ends, default=None)
