"""A message that calls tools survives as a text, and anything else stays as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

from costada.models.replies import (
    message_from_text,
    message_to_text,
    text_with_tool_calls,
    visible_text,
)

CALL = {"name": "submit", "args": {"changes": "a\nb", "depth": 3}, "id": "c-1"}
WRONG = {"name": "submit", "args": "{oops", "id": "c-2", "error": None}


@given(st.text())
def test_words_are_kept_as_they_are(words: str):
    assert message_from_text(message_to_text(AIMessage(words))).text == words
    assert visible_text(message_to_text(AIMessage(words))) == words


@pytest.mark.parametrize("words", ["", "I try.", "with \x1e inside", "x\x1e{}"])
def test_tool_calls_come_back_whatever_the_words(words: str):
    message = AIMessage(words, tool_calls=[CALL], invalid_tool_calls=[WRONG])
    again = message_from_text(message_to_text(message))
    assert again.text == words
    assert (again.tool_calls, again.invalid_tool_calls) == (
        message.tool_calls,
        message.invalid_tool_calls,
    )
    assert visible_text(message_to_text(message)) == text_with_tool_calls(message)


def test_what_a_provider_wants_back_is_kept():
    """Anthropic signs its thoughts, Gemini puts signatures beside the content."""
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "t"},
    ]
    message = AIMessage(blocks, tool_calls=[CALL], additional_kwargs={"signatures": {"c-1": "z"}})
    again = message_from_text(message_to_text(message))
    assert again.content == blocks
    assert again.additional_kwargs == {"signatures": {"c-1": "z"}}


def test_a_person_sees_the_words_and_the_calls():
    message = AIMessage("I try.", tool_calls=[CALL], invalid_tool_calls=[WRONG])
    assert visible_text(message_to_text(message)) == (
        "I try.\n\n[tool call] submit\nchanges: a\nb\ndepth: 3\n\n[tool call] submit\n{oops"
    )


def test_a_streamed_message_is_kept_like_any_other():
    chunk = {"name": "submit", "args": '{"candidate": "1.1.1"}', "id": "c", "index": 0}
    kept = message_to_text(AIMessageChunk("", tool_call_chunks=[chunk]))
    assert message_from_text(kept).tool_calls[0]["args"] == {"candidate": "1.1.1"}
