"""What requests of clients ask for, and what responses and event streams say."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costada.models.endpoint.client_requests import (
    asked_for,
    dialect_of,
    forwarded_body,
    read_request,
)
from costada.models.endpoint.client_responses import EventReader, models_response, read_answer
from costada.models.endpoint.exchange import ClientRequest, Dialect, Refusal
from costada.values.usage import Usage

HI = [{"role": "user", "content": "hi"}]
FUNCTION = {"type": "function", "function": {"name": "look", "parameters": {}}}


def read(dialect: Dialect, **body: Any) -> ClientRequest:
    return read_request(dialect, {}, json.dumps({"model": "judge", **body}).encode())


def test_the_paths_are_the_documented_ones():
    page = (Path(__file__).parents[3] / "docs/reference/endpoint.md").read_text()
    documented = re.findall(r"^\| `(\w+) (\S+)` \|", page, re.MULTILINE)
    assert {dialect_of(method, path) for method, path in documented} == set(Dialect)
    assert len(documented) == len(Dialect)


def test_the_query_of_a_path_is_left_out_and_a_model_may_be_named_in_it():
    assert dialect_of("POST", "/v1/messages?beta=true") is Dialect.MESSAGES
    assert dialect_of("GET", "/v1/models/judge") is Dialect.MODELS


@pytest.mark.parametrize(
    ("dialect", "body", "cap"),
    [
        (Dialect.CHAT, {"messages": HI}, None),
        (Dialect.CHAT, {"messages": HI, "max_tokens": 5}, 5),
        (Dialect.CHAT, {"messages": HI, "max_tokens": 5, "max_completion_tokens": 9}, 9),
        (Dialect.RESPONSES, {"input": "hi", "max_output_tokens": 7}, 7),
        (Dialect.MESSAGES, {"messages": HI, "max_tokens": 3}, 3),
        (Dialect.EMBEDDINGS, {"input": "hi"}, 0),
    ],
)
def test_a_request_says_how_long_its_answer_may_be(
    dialect: Dialect, body: dict[str, Any], cap: int | None
):
    assert read(dialect, **body).output_cap == cap


def test_sessions_that_say_the_same_under_other_names_ask_for_the_same():
    def session(name: str) -> dict[str, Any]:
        said = [
            {"type": "message", "role": "user", "content": "hi", "id": f"msg_{name}"},
            {"role": "user", "content": "go on", "id": f"msg_{name}"},
            {"type": "function_call_output", "call_id": "1", "output": "ok", "id": f"out_{name}"},
        ]
        names = {"prompt_cache_key": name, "user": name, "metadata": {"session": name}}
        return {"input": said, "store": False, "client_metadata": {"id": name}, **names}

    one, other = (asked_for(read(Dialect.RESPONSES, **session(name))) for name in ("a", "b"))
    assert one == other
    assert one == {
        "model": "judge",
        "store": False,
        "input": [
            {"type": "message", "role": "user", "content": "hi"},
            {"role": "user", "content": "go on"},
            {"type": "function_call_output", "call_id": "1", "output": "ok"},
        ],
    }


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "a"},
        {"type": "reasoning", "id": "a", "summary": []},
        {"type": "message", "role": "assistant", "id": "a", "content": "hi"},
    ],
)
def test_what_the_provider_has_numbered_keeps_its_number(item: dict[str, Any]):
    assert asked_for(read(Dialect.RESPONSES, input=[item]))["input"] == [item]


def test_the_bytes_of_a_body_and_the_frames_of_its_messages_bound_its_tokens():
    body = json.dumps({"model": "judge", "messages": HI * 3}).encode()
    assert read_request(Dialect.CHAT, {}, body).input_bound == len(body) + 32 * 4


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "body: expected JSON"),
        (b"[]", "body: expected a JSON object"),
        (b'{"model": "\\ud800"}', "body: expected JSON"),
        (b"[" * 200_000, "body: expected fewer values in one another"),
        (b"\xff", "body: expected JSON"),
        (b"{}", "model: got 'None'"),
        (b'{"model": 3}', "model: got '3'"),
        (b'{"model": "judge", "stream": "yes"}', "stream: got 'yes'"),
        (b'{"model": "judge", "stream_options": [1]}', "stream_options: got '[1]'"),
        (b'{"model": "judge", "max_tokens": -1}', "max_tokens: got '-1'"),
        (b'{"model": "judge", "max_tokens": true}', "max_tokens: got 'True'"),
        (b'{"model": "judge", "max_completion_tokens": 1e99}', "max_completion_tokens: got"),
        (b'{"model": "judge", "n": 0}', "n: got '0'"),
        (b'{"model": "judge", "n": 129}', "n: got '129'"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(body: bytes, named: str):
    with pytest.raises(Refusal) as refusal:
        read_request(Dialect.CHAT, {}, body)
    assert refusal.value.status == 400
    assert str(refusal.value).startswith(named)


def test_a_body_of_more_values_than_memory_is_spent_on_is_refused():
    with pytest.raises(Refusal, match="at most 1,000,000 values"):
        read_request(Dialect.CHAT, {}, b'{"model": "judge", "x": [' + b"[]," * 1_000_000 + b"[]]}")


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (Dialect.CHAT, {"models": ["other"]}),
        (Dialect.CHAT, {"web_search_options": {"search_context_size": "low"}}),
        (Dialect.CHAT, {"modalities": ["text", "audio"]}),
        (Dialect.CHAT, {"tools": [{"type": "web_search"}]}),
        (Dialect.RESPONSES, {"background": True}),
        (Dialect.RESPONSES, {"tools": [FUNCTION, {"type": "code_interpreter"}]}),
        (Dialect.RESPONSES, {"tools": [{"type": "mcp", "server_url": "http://other"}]}),
        (Dialect.RESPONSES, {"tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}),
        (Dialect.MESSAGES, {"tools": [{"type": "web_fetch_20250910", "name": "fetch"}]}),
        (Dialect.MESSAGES, {"mcp_servers": [{"url": "http://other"}]}),
        (Dialect.CHAT, {"web_search_options": {}}),
        (Dialect.CHAT, {"unheard_of": 1}),
        (Dialect.MESSAGES, {"speed": "fast"}),
        (Dialect.MESSAGES, {"inference_geo": "us"}),
        (Dialect.MESSAGES, {"context_management": {"edits": [{"type": "compact_20260112"}]}}),
        (Dialect.MESSAGES, {"context_management": {"edits": "compact_20260112"}}),
        (Dialect.MESSAGES, {"context_management": {"edits": 1}}),
        (Dialect.RESPONSES, {"context_management": [{"type": "compaction"}]}),
        (Dialect.RESPONSES, {"prompt": {"id": "pmpt_1"}}),
    ],
)
def test_what_tokens_of_the_model_do_not_pay_for_is_refused(dialect: Dialect, body: dict[str, Any]):
    with pytest.raises(Refusal) as refusal:
        read(dialect, **body)
    assert refusal.value.code == "not_metered"


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (Dialect.CHAT, {"reasoning_effort": "low", "seed": 3, "stop": ["a"], "audio": None}),
        (Dialect.CHAT, {"response_format": {"type": "json_object"}, "top_k": 5, "logprobs": True}),
        (Dialect.RESPONSES, {"include": ["reasoning.encrypted_content"], "background": False}),
        (Dialect.RESPONSES, {"reasoning": {"effort": "low"}, "text": {"verbosity": "low"}}),
        (Dialect.MESSAGES, {"system": "Be brief.", "thinking": {"type": "adaptive"}}),
        (Dialect.MESSAGES, {"context_management": {"edits": [{"type": "clear_tool_uses_2025"}]}}),
        (Dialect.EMBEDDINGS, {"input": "hi", "dimensions": 256}),
    ],
)
def test_what_tokens_of_the_model_pay_for_is_passed_on(dialect: Dialect, body: dict[str, Any]):
    assert read(dialect, **body).body == {"model": "judge", **body}


def test_features_of_another_price_are_not_asked_for():
    given = "interleaved-thinking-2025-05-14, fast-mode-2026-02-01,compact-2026-01-12"
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": given, "openai-beta": "x=1"}
    body = b'{"model": "judge", "messages": []}'
    passed = read_request(Dialect.MESSAGES, headers, body).headers
    kept = {"anthropic-version": "2023-06-01", "anthropic-beta": "interleaved-thinking-2025-05-14"}
    assert passed == kept
    headers["anthropic-beta"] = "fast-mode-2026-02-01"
    assert "anthropic-beta" not in read_request(Dialect.MESSAGES, headers, body).headers


@pytest.mark.parametrize(
    ("dialect", "body", "is_all_text"),
    [
        (Dialect.CHAT, {"messages": HI, "tools": [FUNCTION]}, True),
        (Dialect.CHAT, {"messages": [{"content": [{"type": "text", "text": "x"}]}]}, True),
        (Dialect.CHAT, {"messages": [{"content": [{"type": "image_url"}]}]}, False),
        (Dialect.CHAT, {"messages": [{"role": "assistant", "audio": {"id": "1"}}]}, False),
        (Dialect.RESPONSES, {"input": "hi"}, True),
        (Dialect.RESPONSES, {"tools": [{"type": "namespace", "tools": [FUNCTION]}]}, True),
        (Dialect.RESPONSES, {"input": [{"type": "function_call_output", "output": "x"}]}, True),
        (Dialect.RESPONSES, {"input": [{"type": "item_reference", "id": "1"}]}, False),
        (Dialect.RESPONSES, {"input": [{"id": "msg_1"}]}, False),
        (Dialect.RESPONSES, {"input": [{"id": "msg_1", "role": "user", "content": "x"}]}, True),
        (Dialect.RESPONSES, {"input": [{"type": "reasoning", "id": "1", "summary": []}]}, False),
        (Dialect.RESPONSES, {"input": [{"type": "reasoning", "encrypted_content": "x"}]}, True),
        (Dialect.RESPONSES, {"input": "hi", "previous_response_id": "1"}, False),
        (Dialect.MESSAGES, {"messages": [{"content": [{"type": "document"}]}]}, False),
        (
            Dialect.MESSAGES,
            {"messages": [{"content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]},
            False,
        ),
        (Dialect.MESSAGES, {"messages": HI, "tools": [{"name": "look"}]}, True),
        (Dialect.MESSAGES, {"messages": HI, "tools": [{"type": "bash_20250124"}]}, False),
        (Dialect.EMBEDDINGS, {"input": ["hi", "you"]}, True),
    ],
)
def test_a_request_says_whether_its_bytes_are_all_that_is_read(
    dialect: Dialect, body: dict[str, Any], is_all_text: bool
):
    assert read(dialect, **body).is_all_text is is_all_text


def test_a_forwarded_body_has_the_name_the_limit_and_the_tier_of_the_run():
    request = read(Dialect.CHAT, messages=HI, max_tokens=50, temperature=0.5)
    assert forwarded_body(request, "gpt", 20, "flex") == {
        "model": "gpt",
        "messages": HI,
        "max_tokens": 20,
        "temperature": 0.5,
        "service_tier": "flex",
    }


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        (Dialect.CHAT, "max_completion_tokens"),
        (Dialect.RESPONSES, "max_output_tokens"),
        (Dialect.MESSAGES, "max_tokens"),
    ],
)
def test_a_limit_is_set_where_a_request_has_none(dialect: Dialect, name: str):
    assert forwarded_body(read(dialect), "gpt", 20, None) == {"model": "gpt", name: 20}


def test_a_stream_asks_for_its_counts():
    request = read(Dialect.CHAT, stream=True, stream_options={"include_obfuscation": False})
    body = forwarded_body(request, "gpt", None, None)
    assert body["stream_options"] == {"include_obfuscation": False, "include_usage": True}


def test_each_protocol_has_its_list_of_models():
    names = ("judge", "agent")
    openai = json.loads(models_response(ClientRequest(Dialect.MODELS), names).body)
    request = ClientRequest(Dialect.MODELS, is_anthropic=True)
    anthropic = json.loads(models_response(request, names).body)
    assert [each["id"] for each in openai["data"]] == list(names)
    assert [each["id"] for each in anthropic["data"]] == list(names)
    assert anthropic["last_id"] == "agent"


WHOLE: dict[Dialect, tuple[dict[str, Any], Usage, str, str | None]] = {
    Dialect.CHAT: (
        {
            "id": "1",
            "choices": [{"message": {"content": "hello"}, "finish_reason": "length"}],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
        },
        Usage(10, 5, 4, 2),
        "hello",
        "length",
    ),
    Dialect.RESPONSES: (
        {
            "id": "1",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [
                {"type": "message", "content": [{"type": "output_text", "text": "hello"}]},
                {"type": "function_call", "name": "look", "arguments": "{}"},
            ],
            "usage": {"input_tokens": 10, "output_tokens": 5},
        },
        Usage(10, 5),
        "hello{}",
        "max_output_tokens",
    ),
    Dialect.EMBEDDINGS: (
        {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 10, "total_tokens": 10}},
        Usage(10, 0),
        "",
        None,
    ),
    Dialect.MESSAGES: (
        {
            "id": "1",
            "content": [{"type": "text", "text": "hello"}],
            "stop_reason": "end_turn",
            "usage": {
                "input_tokens": 4,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 2,
                "output_tokens": 5,
            },
        },
        Usage(9, 5, 3, 0, 2),
        "hello",
        "end_turn",
    ),
}


@pytest.mark.parametrize("dialect", WHOLE, ids=str)
def test_a_whole_response_is_read(dialect: Dialect):
    body, usage, text, reason = WHOLE[dialect]
    reply, error = read_answer(dialect, body)
    assert error is None
    assert (reply.usage, reply.answer, reply.finish_reason) == (usage, text, reason)


def test_a_reported_cost_and_tier_are_read():
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25}
    reply, _ = read_answer(Dialect.CHAT, {"usage": usage, "service_tier": "flex"})
    assert (reply.cost, reply.service_tier) == (Decimal("0.25"), "flex")


def test_an_error_in_a_response_of_status_200_is_read():
    _, error = read_answer(Dialect.CHAT, {"error": {"message": "busy", "code": 429}})
    assert error is not None
    assert (error.message, error.status) == ("busy", 429)


def events(*facts: Any) -> bytes:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in facts]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def streamed(dialect: Dialect, data: bytes, size: int, **body: Any) -> tuple[EventReader, bytes]:
    """What a client gets of a stream whose pieces have a size, and its reader."""
    reader = EventReader(read(dialect, stream=True, **body))
    found = b""
    for begin in range(0, len(data), size):
        now, at_end = reader.read(data[begin : begin + size])
        found += now + at_end
    return reader, found


USAGE = {"prompt_tokens": 10, "completion_tokens": 5}
CHUNKS = (
    {"id": "1", "choices": [{"index": 0, "delta": {"content": "hel"}}]},
    {"id": "1", "choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]},
)
COUNTED = {"id": "1", "choices": [], "usage": USAGE}
SIZES = pytest.mark.parametrize("size", [1, 7, 100_000])


@SIZES
def test_the_counts_of_a_stream_are_withheld_from_a_client_that_did_not_ask(size: int):
    data = b": ping\n\n" + events(*CHUNKS, COUNTED, "[DONE]")
    reader, found = streamed(Dialect.CHAT, data, size)
    assert found == b": ping\n\n" + events(*CHUNKS, "[DONE]")
    reply = reader.reply
    assert reader.is_complete
    assert (reply.usage, reply.answer, reply.finish_reason) == (Usage(10, 5), "hello", "stop")


@SIZES
def test_the_counts_of_a_stream_reach_a_client_that_asked(size: int):
    data = events(*CHUNKS, COUNTED, "[DONE]")
    options = {"include_usage": True}
    assert streamed(Dialect.CHAT, data, size, stream_options=options)[1] == data


def test_counts_of_the_whole_answer_so_far_are_not_added_up():
    parts = [
        {"choices": [{"delta": {}}], "usage": {"prompt_tokens": 10, "completion_tokens": number}}
        for number in (1, 2, 3)
    ]
    reader, _ = streamed(Dialect.CHAT, events(*parts, "[DONE]"), 50)
    assert reader.reply.usage == Usage(10, 3)


def test_the_last_event_is_kept_until_the_request_is_accounted_for():
    reader = EventReader(read(Dialect.CHAT, stream=True))
    now, at_end = reader.read(events(*CHUNKS, "[DONE]"))
    assert (now, at_end) == (events(*CHUNKS), events("[DONE]"))


def test_lines_may_end_as_on_other_systems():
    data = events(*CHUNKS, COUNTED, "[DONE]").replace(b"\n", b"\r\n")
    reader, found = streamed(Dialect.CHAT, data, 5)
    assert (reader.is_complete, reader.reply.usage) == (True, Usage(10, 5))
    assert b"usage" not in found


@SIZES
def test_events_of_responses_are_read(size: int):
    response = {"id": "1", "status": "completed", "service_tier": "flex"}
    counted = response | {"usage": {"input_tokens": 10, "output_tokens": 5}}
    data = events(
        {"type": "response.created", "response": response | {"status": "in_progress"}},
        {"type": "response.output_text.delta", "delta": "hel"},
        {"type": "response.output_text.delta", "delta": "lo"},
        {"type": "response.completed", "response": counted},
    )
    reader, found = streamed(Dialect.RESPONSES, data, size)
    reply = reader.reply
    assert (found, reader.is_complete) == (data, True)
    assert (reply.usage, reply.answer, reply.finish_reason) == (Usage(10, 5), "hello", "completed")
    assert (reply.service_tier, reply.provider_id) == ("flex", "1")


@SIZES
def test_events_of_messages_are_read_and_later_counts_replace_earlier_ones(size: int):
    start = {"input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 1}
    data = events(
        {"type": "message_start", "message": {"id": "1", "usage": start}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hello"}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    )
    reader, found = streamed(Dialect.MESSAGES, data, size)
    reply = reader.reply
    assert (found, reader.is_complete) == (data, True)
    assert (reply.usage, reply.answer) == (Usage(10, 5, 6), "hello")
    assert reply.finish_reason == "end_turn"


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        (Dialect.CHAT, {"error": {"message": "broke", "code": 502}}),
        (Dialect.RESPONSES, {"type": "error", "message": "broke", "code": "server_error"}),
        (
            Dialect.RESPONSES,
            {"type": "response.failed", "response": {"error": {"message": "broke"}}},
        ),
        (Dialect.MESSAGES, {"type": "error", "error": {"message": "broke"}}),
    ],
)
def test_an_error_event_is_read_and_passed_on(dialect: Dialect, event: dict[str, Any]):
    reader, found = streamed(dialect, events(event), 10)
    assert reader.error is not None
    assert reader.error.message == "broke"
    assert found == events(event)


NAMES = st.sampled_from(
    [
        *("arguments", "choices", "code", "completion_tokens", "content", "delta", "error"),
        *("finish_reason", "function", "id", "input_tokens", "message", "output", "output_tokens"),
        *("prompt_tokens", "response", "stop_reason", "status", "text", "tool_calls", "type"),
        "usage",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=3) | st.just("message_stop"),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(NAMES, parts, max_size=4),
    max_leaves=12,
)
BODIES = st.dictionaries(NAMES, VALUES, max_size=5)


@given(st.sampled_from(Dialect), BODIES)
def test_any_response_can_be_read(dialect: Dialect, body: dict[str, Any]):
    reply, _ = read_answer(dialect, body)
    assert reply.usage is None or reply.usage.input_tokens + reply.usage.output_tokens > 0


STREAMED = (Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES)


@given(st.sampled_from(STREAMED), st.lists(BODIES, max_size=4), st.integers(1, 60))
def test_any_stream_can_be_read(dialect: Dialect, bodies: list[dict[str, Any]], size: int):
    reader, found = streamed(dialect, events(*bodies), size)
    assert len(found) <= len(events(*bodies))
    assert isinstance(reader.reply.answer, str)


PARAMETERS = (
    "messages",
    "input",
    "tools",
    "stream",
    "stream_options",
    "max_tokens",
    "n",
    "modalities",
    "usage",
    "service_tier",
)
REQUESTS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(PARAMETERS, VALUES) | {"stream": st.booleans()}
)


@given(st.sampled_from([each for each in Dialect if each is not Dialect.MODELS]), REQUESTS)
def test_any_request_is_read_or_refused(dialect: Dialect, body: dict[str, Any]):
    whole = json.dumps({"model": "judge", **body}).encode()
    try:
        request = read_request(dialect, {}, whole)
    except Refusal:
        return
    assert request.input_bound >= len(whole)
    assert forwarded_body(request, "gpt", 5, None)["model"] == "gpt"
    assert asked_for(request)["model"] == "judge"
