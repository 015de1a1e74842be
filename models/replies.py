"""What a model's message says, and the text that it is kept as."""

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

WHOLE = "\x1e"
"""Stands between the words of a kept message and the whole of it; JSON never holds it."""

_KEPT = {"content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "response_metadata"}


def encodable(text: str) -> str:
    """Return a text with no half of a surrogate pair in it.

    JSON can bring halves, and no request, file or database takes them. Two that belong together,
    as the parts of a stream can bring them, become the character they stand for, and one alone a
    replacement character.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def readable(message: AIMessage) -> AIMessage:
    """Return an answer as it is read: all that it says can be encoded."""
    texts = {name: _encodable(getattr(message, name)) for name in (*_KEPT, "id", "name")}
    return message.model_copy(update=texts)


def answer_text(message: BaseMessage) -> str:
    """Return the words of a message; reasoning, images and tool calls are left out.

    Content may be a string or a list of strings and typed blocks, as providers differ.
    """
    if isinstance(message.content, str):
        return message.content
    return "".join(_block_text(block) for block in message.content)


def spoken(message: BaseMessage) -> str:
    """Return the words of a message and below them the tools that it calls, for people to read."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    wrong = message.invalid_tool_calls if isinstance(message, AIMessage) else []
    told = [_call_text(call["name"], call["args"]) for call in calls]
    told += [_call_text(call["name"], {"": call["args"]}) for call in wrong]
    return "\n\n".join(part for part in (answer_text(message), *told) if part)


def written(message: BaseMessage) -> str:
    """Return the text that a message is kept as: its words, and all of it where it calls tools.

    `read_back` makes the message of it again, and `shown` what a person should see.
    """
    words = answer_text(message)
    is_plain = not isinstance(message, AIMessage) or not calls_tools(message)
    if is_plain and WHOLE not in words:
        return words
    whole = message.model_dump(mode="json", include=_KEPT, fallback=str)
    return f"{spoken(message)}{WHOLE}{json.dumps(whole)}"


def read_back(text: str) -> AIMessage:
    """Return the message that was kept as a text, without its token counts."""
    _, is_whole, whole = text.rpartition(WHOLE)
    return AIMessage.model_validate(json.loads(whole)) if is_whole else AIMessage(text)


def shown(text: str) -> str:
    """Return the part of a kept message that is for people: its words and the tools it calls."""
    words, is_whole, _ = text.rpartition(WHOLE)
    return words if is_whole else text


def calls_tools(message: AIMessage) -> bool:
    """Return whether a message asks for tools, be it in a form that can be read or not."""
    return bool(message.tool_calls or message.invalid_tool_calls)


def _encodable(value: Any) -> Any:
    """Return a value with no half of a surrogate pair in the texts that it holds."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    return [_encodable(each) for each in value] if isinstance(value, list | tuple) else value


def _call_text(name: object, arguments: Mapping[str, object]) -> str:
    lines = [f"[tool call] {name}"]
    for field, value in arguments.items():
        said = value if isinstance(value, str) else json.dumps(value)
        lines.append(f"{field}: {said}" if field else said)
    return "\n".join(lines)


def _block_text(block: str | dict[str, object]) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else ""
