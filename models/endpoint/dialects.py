"""The protocols of OpenAI and Anthropic: what a request asks for, and what a response says.

Requests that cannot be metered are refused: they would be billed by something else than tokens, ask
another model than the one they name, or be answered when nobody counts any more.
"""

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
from costada.models.runnable_tree import FRAME_TOKENS
from costada.values.usage import Usage

PREFIX = "/v1/"
EVENT_STREAM, JSON = "text/event-stream", "application/json"

MAX_CHOICES = 128
"""Most answers that a request may ask for."""

MAX_CAP = 10_000_000
"""The highest limit of an answer that is accepted, in tokens."""

MAX_VALUES = 1_000_000
"""About the most values that a body may hold: each takes much more memory than in the body."""

_PATHS = frozenset(map(str, Dialect))

_CAPS: Mapping[Dialect, tuple[str, ...]] = {
    Dialect.CHAT: ("max_completion_tokens", "max_tokens"),
    Dialect.RESPONSES: ("max_output_tokens",),
    Dialect.MESSAGES: ("max_tokens",),
}
"""What limits an answer; the first is set where a request has none."""

_OF_OPENAI = frozenset(
    {
        "metadata",
        "model",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
    }
)

_PARAMETERS: Mapping[Dialect, frozenset[str]] = {
    Dialect.CHAT: _OF_OPENAI
    | {
        "chat_template_kwargs",
        "enable_thinking",
        "frequency_penalty",
        "function_call",
        "functions",
        "include_reasoning",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "modalities",
        "n",
        "presence_penalty",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "seed",
        "stop",
        "thinking",
        "thinking_budget",
        "top_k",
        "usage",
        "verbosity",
        "vl_high_resolution_images",
    },
    Dialect.RESPONSES: _OF_OPENAI
    | {
        "client_metadata",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "previous_response_id",
        "text",
        "truncation",
    },
    Dialect.EMBEDDINGS: frozenset(
        {"dimensions", "encoding_format", "input", "input_type", "model", "truncate", "user"}
    ),
    Dialect.MESSAGES: frozenset(
        {
            "cache_control",
            "context_management",
            "max_tokens",
            "messages",
            "metadata",
            "model",
            "output_config",
            "output_format",
            "service_tier",
            "stop_sequences",
            "stream",
            "system",
            "temperature",
            "thinking",
            "tool_choice",
            "tools",
            "top_k",
            "top_p",
        }
    ),
}
"""Parameters of requests that tokens of the model pay for; a provider may bill others by more."""

_BETAS = (
    "advanced-tool-use-",
    "claude-code-",
    "computer-use-",
    "context-management-",
    "effort-",
    "extended-cache-ttl-",
    "fine-grained-tool-streaming-",
    "interleaved-thinking-",
    "output-128k-",
    "prompt-caching-",
    "structured-outputs-",
    "token-efficient-tools-",
    "tool-examples-",
)
"""Features of Anthropic that tokens of the model pay for, before their dates."""

_REFERENCES = ("conversation", "previous_response_id")
"""Parameters by which a model reads what the request does not hold."""

_TOOLS_OF_CLIENTS = frozenset({"function", "custom", "local_shell", "apply_patch"})
_ANTHROPIC_TOOLS_OF_CLIENTS = ("bash_", "computer_", "memory_", "text_editor_")

_TEXT_PARTS = frozenset(
    {
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "input_text",
        "message",
        "output_text",
        "reasoning",
        "redacted_thinking",
        "refusal",
        "text",
        "thinking",
        "tool_result",
        "tool_use",
    }
)
"""Types of parts of a conversation of which the bytes bound the tokens."""

_OF_SENDER = frozenset(
    {"client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "user"}
)
"""Parameters that say who sends a request, and change no answer."""

_BETA = "anthropic-beta"

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


def dialect_of(method: str, target: str) -> Dialect:
    """The protocol of a request by its method and path.

    Raises:
        Refusal: The endpoint does not serve that path.
    """
    path = target.partition("?")[0]
    below = path.removeprefix(PREFIX) if path.startswith(PREFIX) else ""
    if below == Dialect.MODELS or below.startswith(f"{Dialect.MODELS}/"):
        found, expected = Dialect.MODELS, "GET"
    elif below in _PATHS:
        found, expected = Dialect(below), "POST"
    else:
        served = ", ".join(f"{PREFIX}{each}" for each in Dialect)
        raise Refusal(404, "unknown_path", f"path: got {path[:200]!r}, expected one of {served}")
    if method != expected:
        raise Refusal(405, "method", f"method: got {method[:20]!r}, expected {expected}")
    return found


def read_request(dialect: Dialect, headers: Mapping[str, str], body: bytes) -> ClientRequest:
    """Read a request of a client.

    Raises:
        Refusal: It cannot be read, or cannot be metered.
    """
    passed = {name: headers[name] for name in ("anthropic-version",) if name in headers}
    betas = [name.strip() for name in headers.get(_BETA, "").split(",")]
    if kept := [name for name in betas if name.startswith(_BETAS)]:
        passed[_BETA] = ",".join(kept)
    is_anthropic = dialect is Dialect.MESSAGES or "anthropic-version" in headers
    if dialect is Dialect.MODELS:
        return ClientRequest(dialect, headers=passed, is_anthropic=is_anthropic)
    try:
        return _asked(dialect, passed, is_anthropic, body)
    except RecursionError:
        raise Refusal(400, "invalid_json", "body: expected fewer values in one another") from None


def _asked(
    dialect: Dialect, passed: Mapping[str, str], is_anthropic: bool, body: bytes
) -> ClientRequest:
    given = _parsed(body)
    model = given.get("model")
    if not isinstance(model, str) or not model:
        raise _invalid("model", model, "the name of a model")
    is_stream = given.get("stream") or False
    if not isinstance(is_stream, bool) or (is_stream and dialect is Dialect.EMBEDDINGS):
        raise _invalid("stream", is_stream, "true or false")
    if not isinstance(given.get("stream_options") or {}, dict):
        raise _invalid("stream_options", given["stream_options"], "an object")
    _refuse_unmetered(dialect, given)
    caps = [
        _integer(name, given[name], MAX_CAP)
        for name in _CAPS.get(dialect, ())
        if given.get(name) is not None
    ]
    choices = given.get("n") if dialect is Dialect.CHAT else None
    parts = given.get("messages") or given.get("input")
    num_parts = len(parts) if isinstance(parts, list) else 1
    return ClientRequest(
        dialect=dialect,
        model=model,
        body=given,
        is_stream=is_stream,
        output_cap=0 if dialect is Dialect.EMBEDDINGS else max(caps, default=None),
        choices=1 if choices is None else _integer("n", choices, MAX_CHOICES),
        # Instructions and tools are parts of the body too, framed once.
        input_bound=len(body) + FRAME_TOKENS * (num_parts + 1),
        is_all_text=_is_all_text(dialect, given),
        headers=passed,
        is_anthropic=is_anthropic,
    )


def _parsed(body: bytes) -> Mapping[str, Any]:
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Refusal(413, "too_large", f"body: expected at most {MAX_VALUES:,} values")
    try:
        given = json.loads(body)
        # Halves of surrogate pairs can be read and not be sent.
        json.dumps(given, ensure_ascii=False).encode()
    except ValueError as error:
        raise Refusal(400, "invalid_json", f"body: expected JSON ({error})") from None
    if not isinstance(given, dict):
        raise Refusal(400, "invalid_json", "body: expected a JSON object")
    return given


def _integer(name: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise _invalid(name, value, f"an integer from 1 to {most:,}")
    return value


def _invalid(name: str, value: object, expected: str) -> Refusal:
    return Refusal(400, "invalid_value", f"{name}: got {str(value)[:100]!r}, expected {expected}")


def _refuse_unmetered(dialect: Dialect, given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name not in _PARAMETERS[dialect] and value not in (None, False):
            raise Refusal(400, "not_metered", f"{name[:50]}: requests with it cannot be metered")
    management = given.get("context_management") or {"edits": []}
    edits = management.get("edits") if isinstance(management, Mapping) else None
    kinds = [
        each.get("type") if isinstance(each, Mapping) else None
        for each in (edits if isinstance(edits, list) else [None])
    ]
    if not all(str(kind).startswith("clear_") for kind in kinds):  # others ask a model
        raise Refusal(400, "not_metered", "context_management: expected edits that clear parts")
    if given.get("modalities") not in (None, ["text"]):
        raise Refusal(400, "not_metered", "modalities: expected text alone")
    for kind in _kinds(given.get("tools")):
        is_of_client = str(kind) in _TOOLS_OF_CLIENTS or (
            dialect is Dialect.MESSAGES
            and (kind is None or str(kind).startswith(_ANTHROPIC_TOOLS_OF_CLIENTS))
        )
        if not is_of_client:
            raise Refusal(
                400, "not_metered", f"tools: got type {kind!r}, expected tools that the client runs"
            )


def _kinds(tools: object) -> Iterator[object]:
    """The types of tools, in namespaces too."""
    for tool in tools if isinstance(tools, list) else ():
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if kind == "namespace":
            yield from _kinds(tool.get("tools"))
        else:
            yield kind


def _is_all_text(dialect: Dialect, given: Mapping[str, Any]) -> bool:
    if any(given.get(name) for name in _REFERENCES):
        return False
    if dialect is Dialect.EMBEDDINGS:
        return True
    kinds = _kinds(given.get("tools"))
    has_plain_tools = all(kind in (None, "function", "custom") for kind in kinds)
    return has_plain_tools and all(
        _is_text(given.get(name)) for name in ("messages", "input", "system", "instructions")
    )


def _is_text(part: object) -> bool:
    if isinstance(part, list):
        return all(map(_is_text, part))
    if not isinstance(part, Mapping):
        return True
    is_text = str(part.get("type", "text")) in _TEXT_PARTS and not part.get("audio")
    # The provider may have kept what belongs to an id: reasoning, or any item without a type.
    if part.get("type") == "reasoning":
        is_text = bool(part.get("encrypted_content"))
    elif "id" in part and not {"role", "type"} & part.keys():
        is_text = False
    return is_text and _is_text(part.get("content")) and _is_text(part.get("output"))


def forwarded_body(
    request: ClientRequest, model: str, output_cap: int | None, service_tier: str | None
) -> dict[str, Any]:
    """The body that the provider gets: with its own name of the model, and as the run limits it."""
    body = {**request.body, "model": model}
    if output_cap is not None and (names := _CAPS.get(request.dialect)):
        stated = [name for name in names if body.get(name) is not None] or names[:1]
        body |= dict.fromkeys(stated, output_cap)
    if service_tier is not None:
        body["service_tier"] = service_tier
    if request.is_stream and request.dialect is Dialect.CHAT:
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return body


def asked_for(request: ClientRequest) -> dict[str, Any]:
    """What of the body decides the answer.

    Coding agents name their session in each request, and number the messages that they write: a
    session that is repeated has other names for the same.
    """
    body = {name: value for name, value in request.body.items() if name not in _OF_SENDER}
    if request.dialect is Dialect.RESPONSES and isinstance(items := body.get("input"), list):
        body["input"] = [_without_own_id(each) for each in items]
    return body


def _without_own_id(item: object) -> object:
    """An item of a Responses request without the id that its sender gave it."""
    if not isinstance(item, Mapping):
        return item
    kind = str(item.get("type", "message"))
    is_of_sender = kind.endswith("_output") or (
        kind == "message" and item.get("role") != "assistant"
    )
    return {name: value for name, value in item.items() if name != "id" or not is_of_sender}


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
