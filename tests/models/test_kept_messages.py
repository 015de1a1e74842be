"""A message that calls tools survives as a text, and anything else stays as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

from costada.models.replies import read_back, shown, spoken, written

CALL = {"name": "submit", "args": {"changes": "a\nb", "depth": 3}, "id": "c-1"}
WRONG = {"name": "submit", "args": "{oops", "id": "c-2", "error": None}


@given(st.text())
def test_words_are_kept_as_they_are(words: str):
    assert read_back(written(AIMessage(words))).text == words
    assert shown(written(AIMessage(words))) == words


@pytest.mark.parametrize("words", ["", "I try.", "with \x1e inside", "x\x1e{}"])
def test_tool_calls_come_back_whatever_the_words(words: str):
    message = AIMessage(words, tool_calls=[CALL], invalid_tool_calls=[WRONG])
    again = read_back(written(message))
    assert again.text == words
    assert (again.tool_calls, again.invalid_tool_calls) == (
        message.tool_calls,
        message.invalid_tool_calls,
    )
    assert shown(written(message)) == spoken(message)


def test_what_a_provider_wants_back_is_kept():
    """Anthropic signs its thoughts, Gemini puts signatures beside the content."""
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "t"},
    ]
    message = AIMessage(blocks, tool_calls=[CALL], additional_kwargs={"signatures": {"c-1": "z"}})
    again = read_back(written(message))
    assert again.content == blocks
    assert again.additional_kwargs == {"signatures": {"c-1": "z"}}


def test_a_person_sees_the_words_and_the_calls():
    message = AIMessage("I try.", tool_calls=[CALL], invalid_tool_calls=[WRONG])
    assert shown(written(message)) == (
        "I try.\n\n[tool call] submit\nchanges: a\nb\ndepth: 3\n\n[tool call] submit\n{oops"
    )


def test_a_streamed_message_is_kept_like_any_other():
    chunk = {"name": "submit", "args": '{"candidate": "1.1.1"}', "id": "c", "index": 0}
    kept = written(AIMessageChunk("", tool_call_chunks=[chunk]))
    assert read_back(kept).tool_calls[0]["args"] == {"candidate": "1.1.1"}
