from langchain_core.messages import AIMessage

from costada.models.replies import answer_text


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
