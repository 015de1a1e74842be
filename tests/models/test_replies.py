import pytest
from langchain_core.messages import AIMessage

from costada.models.replies import (
    answer_text,
    encodable_message,
    encodable_text,
    message_from_text,
    message_to_text,
)


def test_plain_content_is_the_text() -> None:
    assert answer_text(AIMessage("hello")) == "hello"


def test_blocks_are_joined_and_reasoning_is_left_out() -> None:
    blocks: list[str | dict[str, object]] = [
        {"type": "reasoning", "text": "hidden", "summary": []},
        {"type": "text", "text": "hel"},
        "lo",
        {"type": "image_url", "image_url": {"url": "x"}},
    ]
    assert answer_text(AIMessage(blocks)) == "hello"


def test_a_message_of_reasoning_alone_has_no_text() -> None:
    assert answer_text(AIMessage([{"type": "thinking", "thinking": "hm"}])) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain \N{GRINNING FACE}", "plain \N{GRINNING FACE}"),
        ("\ud83d\ude00", "\N{GRINNING FACE}"),
        ("a\ud83db\ude00", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
        ("\udc00\ud800", "\N{REPLACEMENT CHARACTER}" * 2),
    ],
)
def test_halves_of_a_character_are_joined_or_replaced(text: str, expected: str) -> None:
    assert encodable_text(text) == expected


def test_an_answer_is_read_without_halves_of_characters_in_words_and_tool_calls() -> None:
    call = {"name": "submit", "args": {"changes": "x\ud800"}, "id": "1\udfff"}
    answer = encodable_message(AIMessage("words\ud800", tool_calls=[call]))
    again = message_from_text(message_to_text(answer))
    assert again.content == "words\N{REPLACEMENT CHARACTER}"
    (called,) = again.tool_calls
    assert called["args"] == {"changes": "x\N{REPLACEMENT CHARACTER}"}
    assert called["id"] == "1\N{REPLACEMENT CHARACTER}"
