"""What a provider's reply says: its text, as it is stored and shown, and its token counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

from costada.models.reply_content import (
    answer_text,
    encodable_message,
    encodable_text,
    estimated_usage,
    message_from_text,
    message_to_text,
    text_with_tool_calls,
    usage_from_metadata,
    usage_from_record,
    visible_text,
)
from costada.values.usage import Usage

CALL = {"name": "submit", "args": {"changes": "a\nb", "depth": 3}, "id": "c-1"}
WRONG = {"name": "submit", "args": "{oops", "id": "c-2", "error": None}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "hello"),
        (
            [
                {"type": "reasoning", "text": "hidden", "summary": []},
                {"type": "text", "text": "hel"},
                "lo",
                {"type": "image_url", "image_url": {"url": "x"}},
            ],
            "hello",
        ),
        ([{"type": "thinking", "thinking": "hm"}], ""),
    ],
)
def test_text_blocks_are_joined_and_reasoning_is_left_out(content, text: str):
    assert answer_text(AIMessage(content)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain \N{GRINNING FACE}", "plain \N{GRINNING FACE}"),
        ("\ud83d\ude00", "\N{GRINNING FACE}"),
        ("a\ud83db\ude00", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
        ("\udc00\ud800", "\N{REPLACEMENT CHARACTER}" * 2),
    ],
)
def test_halves_of_a_character_are_joined_or_replaced(text: str, expected: str):
    assert encodable_text(text) == expected


def test_an_answer_is_read_without_halves_of_characters_in_words_and_tool_calls():
    call = {"name": "submit", "args": {"changes": "x\ud800"}, "id": "1\udfff"}
    answer = encodable_message(AIMessage("words\ud800", tool_calls=[call]))
    again = message_from_text(message_to_text(answer))
    assert again.content == "words\N{REPLACEMENT CHARACTER}"
    (called,) = again.tool_calls
    assert called["args"] == {"changes": "x\N{REPLACEMENT CHARACTER}"}
    assert called["id"] == "1\N{REPLACEMENT CHARACTER}"


@given(st.text())
def test_words_are_stored_as_they_are(words: str):
    assert message_from_text(message_to_text(AIMessage(words))).text == words
    assert visible_text(message_to_text(AIMessage(words))) == words


@pytest.mark.parametrize("words", ["", "I try.", "with \x1e inside", "x\x1e{}"])
def test_tool_calls_come_back_whatever_the_words(words: str):
    message = AIMessage(words, tool_calls=[CALL], invalid_tool_calls=[WRONG])
    again = message_from_text(message_to_text(message))
    assert again.text == words
    assert again.tool_calls == message.tool_calls
    assert again.invalid_tool_calls == message.invalid_tool_calls
    assert visible_text(message_to_text(message)) == text_with_tool_calls(message)


def test_what_a_provider_wants_back_is_stored():
    """Anthropic signs its thoughts, Gemini puts signatures beside the content."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    blocks = [thought, {"type": "text", "text": "t"}]
    message = AIMessage(blocks, tool_calls=[CALL], additional_kwargs={"signatures": {"c-1": "z"}})
    again = message_from_text(message_to_text(message))
    assert again.content == blocks
    assert again.additional_kwargs == {"signatures": {"c-1": "z"}}


def test_a_person_sees_the_words_and_the_calls():
    message = AIMessage("I try.", tool_calls=[CALL], invalid_tool_calls=[WRONG])
    assert visible_text(message_to_text(message)) == (
        "I try.\n\n[tool call] submit\nchanges: a\nb\ndepth: 3\n\n[tool call] submit\n{oops"
    )


def test_a_streamed_message_is_stored_like_any_other():
    chunk = {"name": "submit", "args": '{"candidate": "1.1.1"}', "id": "c", "index": 0}
    stored = message_to_text(AIMessageChunk("", tool_call_chunks=[chunk]))
    assert message_from_text(stored).tool_calls[0]["args"] == {"candidate": "1.1.1"}


IN_100 = {"input_tokens": 100, "output_tokens": 40, "total_tokens": 140}
BY_TIME = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 20}
OPENAI = {
    "prompt_tokens": 20,
    "completion_tokens": 5,
    "total_tokens": 25,
    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 7},
}


@pytest.mark.parametrize(
    ("usage", "inputs", "outputs", "expected"),
    [
        (IN_100, {"cache_read": 60, "audio": 1}, {"reasoning": 30}, (100, 40, 60, 30)),
        (
            {"input_tokens": 100, "output_tokens": 40},
            {"flex_cache_read": 60, "flex": 40},
            {"flex_reasoning": 30, "flex": 10},
            (100, 40, 60, 30),
        ),
        (IN_100, {"cache_read": 10, "cache_creation": 50}, {}, (100, 40, 10, 0, 50)),
        (IN_100, {"cache_read": 10, "flex_cache_creation": 50}, {}, (100, 40, 10, 0, 50)),
        (
            IN_100,
            {
                "cache_creation": 50,
                "ephemeral_5m_input_tokens": 30,
                "ephemeral_1h_input_tokens": 20,
            },
            {},
            (100, 40, 0, 0, 50, 20),
        ),
        (IN_100, {"cache_creation": 0, **BY_TIME}, {}, (100, 40, 0, 0, 50, 20)),
        (
            {**IN_100, "total_tokens": 230},
            {"cache_read": 60, "cache_creation": 30},
            {},
            (190, 40, 60, 0, 30),
        ),
        ({"input_tokens": 1000, "output_tokens": 0, "total_tokens": 5000}, {}, {}, (1000, 4000)),
    ],
    ids=[
        "details",
        "details under a service tier",
        "written to a cache",
        "written under a service tier",
        "written, in all and by how long it is kept",
        "written, by how long it is kept",
        "cached input that only the total holds is input",
        "what the total holds beyond both counts is output",
    ],
)
def test_langchains_metadata_is_read(usage, inputs, outputs, expected: tuple[int, ...]):
    details = {"input_token_details": inputs, "output_token_details": outputs}
    assert usage_from_metadata({**usage, **details}) == Usage(*expected)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_creation_input_tokens": 7,
                "cache_read_input_tokens": 3,
                "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 2},
            },
            (20, 5, 3, 0, 7, 2),
        ),
        (
            {**OPENAI, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 3},
            (20, 5, 3, 0, 7),
        ),
        (OPENAI, (20, 5, 3, 0, 7)),
        (
            {
                "prompt_tokens": 7,
                "completion_tokens": 5,
                "total_tokens": 42,
                "completion_tokens_details": {"reasoning_tokens": 30},
            },
            (7, 35, 0, 30),
        ),
        (
            {
                "prompt_tokens": 7,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            (7, 5, 3, 2),
        ),
        (
            {
                "input_tokens": 7,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": 3},
                "output_tokens_details": {"reasoning_tokens": 2},
            },
            (7, 5, 3, 2),
        ),
        ({"prompt_tokens": 1000, "total_tokens": 5000}, (1000, 4000)),
        ({"prompt_tokens": 7, "completion_tokens": 0}, (7, 0)),
    ],
    ids=[
        "Anthropic",
        "LiteLLM",
        "OpenAI",
        "reasoning beside the output is not added twice",
        "chat completions",
        "responses",
        "what the total holds beyond both counts is output",
        "an answer of no tokens",
    ],
)
def test_a_providers_own_record_is_read(usage: dict[str, object], expected: tuple[int, ...]):
    assert usage_from_record(usage) == Usage(*expected)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "7",
        [7, 5],
        {},
        {"prompt_tokens": 7},
        {"prompt_tokens": 7, "total_tokens": 7},
        {"prompt_tokens": 7, "completion_tokens": None},
        {"prompt_tokens": "7", "completion_tokens": 5},
        {"prompt_tokens": -7, "completion_tokens": 5},
        {"prompt_tokens": True, "completion_tokens": 5},
        {"prompt_tokens": 0, "completion_tokens": 0},
    ],
)
def test_a_record_that_lacks_a_count_says_nothing(usage: object):
    assert usage_from_record(usage) is None


def test_metadata_of_zeros_says_nothing():
    assert usage_from_metadata({"input_tokens": 0, "output_tokens": 0}) is None
    assert usage_from_metadata(None) is None


def test_an_estimate_is_a_third_of_the_bytes_rounded_up():
    assert estimated_usage(["abc", "d"], "ä") == Usage(2, 1)
    assert estimated_usage([], "") == Usage(0, 0)


@given(st.lists(st.text(st.characters()), max_size=4), st.text())
def test_an_estimate_exists_for_any_text(prompts: list[str], answer: str):
    usage = estimated_usage(prompts, answer)
    assert 3 * usage.output_tokens >= len(answer)
    assert 3 * usage.input_tokens >= sum(map(len, prompts))
