"""The protocols of OpenAI and Anthropic: what a request of a client asks for."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from costada.models.endpoint.exchange import ClientRequest, Dialect, Refusal
from costada.models.endpoint.metered_parameters import (
    METERED_BETAS,
    is_all_text,
    refuse_unmetered,
)
from costada.models.runnable_tree import FRAME_TOKENS

PREFIX = "/v1/"

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

_OF_SENDER = frozenset(
    {"client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "user"}
)
"""Parameters that say who sends a request, and change no answer."""

_BETA = "anthropic-beta"

ATTEMPT = "x-costada-attempt"
"""Header that names the attempt at the work of a client; no provider gets it."""

MAX_NAME = 64
"""Most characters of the name of an attempt."""


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
    if kept := [name for name in betas if name.startswith(METERED_BETAS)]:
        passed[_BETA] = ",".join(kept)
    is_anthropic = dialect is Dialect.MESSAGES or "anthropic-version" in headers
    if dialect is Dialect.MODELS:
        return ClientRequest(dialect, headers=passed, is_anthropic=is_anthropic)
    try:
        asked = _asked(dialect, passed, is_anthropic, body)
    except RecursionError:
        raise Refusal(400, "invalid_json", "body: expected fewer values in one another") from None
    attempt = headers.get(ATTEMPT, "")
    if len(attempt) > MAX_NAME:
        raise _invalid(ATTEMPT, attempt, f"at most {MAX_NAME} characters")
    return replace(asked, attempt=attempt)


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
    refuse_unmetered(dialect, given)
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
        is_all_text=is_all_text(dialect, given),
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
