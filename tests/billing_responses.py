"""The Responses API as the billing server speaks it: one whole answer, or its events.

Embeddings too, of which each has two numbers, and the messages of Anthropic.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from struct import pack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from billing_server import Reply

Head = Mapping[str, Any]


VECTOR = [0.5, 0.25]


def embeddings_of(reply: "Reply", body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of an answer with one embedding for each text."""
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    is_packed = body.get("encoding_format") == "base64"
    vector = b64encode(pack("<2f", *VECTOR)).decode() if is_packed else VECTOR
    tokens = reply.input_tokens
    return {
        "object": "list",
        "model": f"{body.get('model')}-as-served",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, _ in enumerate(texts)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def response_of(reply: "Reply", head: Head) -> dict[str, Any]:
    """Return the body of a whole answer."""
    return _bare(head, "completed") | {
        "output": [_message(reply)],
        "usage": _usage(reply) if reply.reports_usage else None,
    }


def response_events(reply: "Reply", head: Head) -> Iterator[str]:
    """Yield the events of a streamed answer."""
    begun = _bare(head, "in_progress")
    yield json.dumps({"type": "response.created", "sequence_number": 0, "response": begun})
    place = {"item_id": "message-1", "output_index": 0, "content_index": 0, "logprobs": []}
    pieces = reply.pieces()
    for number, piece in enumerate(pieces[: reply.breaks_after], start=1):
        event = {"type": "response.output_text.delta", "sequence_number": number, "delta": piece}
        yield json.dumps(event | place)
    if reply.breaks_after is None:
        end = {"type": "response.completed", "sequence_number": len(pieces) + 1}
        yield json.dumps(end | {"response": response_of(reply, head)})


def _bare(head: Head, status: str) -> dict[str, Any]:
    tier = {"service_tier": head["service_tier"]} if "service_tier" in head else {}
    return tier | {
        "id": head["id"],
        "object": "response",
        "created_at": 0,
        "model": head["model"],
        "status": status,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
    }


def _message(reply: "Reply") -> dict[str, Any]:
    text = {"type": "output_text", "text": reply.text, "annotations": []}
    return {
        "id": "message-1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }


def _usage(reply: "Reply") -> dict[str, Any]:
    return {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }


def message_of(reply: "Reply", head: Head) -> dict[str, Any]:
    """Return the body of a whole answer of Anthropic's, which counts cached tokens apart."""
    return {
        "id": head["id"],
        "type": "message",
        "role": "assistant",
        "model": head["model"],
        "content": [{"type": "text", "text": reply.text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.input_tokens - reply.cached_tokens,
            "cache_read_input_tokens": reply.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": reply.output_tokens,
        },
    }


def message_events(reply: "Reply", head: Head) -> Iterator[str]:
    """Yield the events of a streamed answer of Anthropic's."""
    whole = message_of(reply, head)
    usage = whole["usage"] | {"output_tokens": 1}
    begun = whole | {"content": [], "stop_reason": None, "usage": usage}
    yield json.dumps({"type": "message_start", "message": begun})
    block = {"type": "text", "text": ""}
    yield json.dumps({"type": "content_block_start", "index": 0, "content_block": block})
    for piece in reply.pieces():
        delta = {"type": "text_delta", "text": piece}
        yield json.dumps({"type": "content_block_delta", "index": 0, "delta": delta})
    yield json.dumps({"type": "content_block_stop", "index": 0})
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    counts = {"output_tokens": reply.output_tokens}
    yield json.dumps({"type": "message_delta", "delta": ended, "usage": counts})
    yield json.dumps({"type": "message_stop"})
