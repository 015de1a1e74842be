"""Text of a model's message."""

from langchain_core.messages import BaseMessage


def answer_text(message: BaseMessage) -> str:
    """Return the words of a message; reasoning, images and tool calls are left out.

    Content may be a string or a list of strings and typed blocks, as providers differ.
    """
    if isinstance(message.content, str):
        return message.content
    return "".join(_block_text(block) for block in message.content)


def _block_text(block: str | dict[str, object]) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else ""
