"""What LangChain announces of a request before it leaves."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

OUTPUT_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What providers call the most tokens that an answer may have."""

FRAME_TOKENS = 32
"""Tokens that a provider adds around one message, at most."""

_BESIDE_CONTENT = ("tool_calls", "invalid_tool_calls", "tool_call_id", "name")
"""What of a message a model reads besides its content."""

_SAID_BESIDE = ("tools", "functions", "response_format")
"""Parameters of a request that become part of what the model reads."""


class Announcement(NamedTuple):
    """Who is asked, and how much may be read and written.

    Attributes:
        model: The model's name at its provider.
        provider: The provider's name as LangChain reports it, if it does.
        output_cap: Most answer tokens that the request allows a choice, if it says.
        choices: How many answers the request asks for; each of them is billed.
        input_bound: Most tokens that the prompt can have, tools and schemas included.
    """

    model: str
    provider: str | None
    output_cap: int | None
    choices: int
    input_bound: int


def announced(
    serialized: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    extras: Mapping[str, Any],
    prompts: Sequence[BaseMessage | str],
) -> Announcement:
    """Return what the callback of a request's start was told."""
    facts, params = metadata or {}, extras.get("invocation_params") or {}
    names = (
        facts.get("ls_model_name"),
        params.get("model"),
        params.get("model_name"),
        (serialized or {}).get("name"),
    )
    provider = facts.get("ls_provider")
    choices = params.get("n")
    return Announcement(
        model=next((str(name) for name in names if name), "unknown"),
        provider=str(provider) if provider else None,
        output_cap=_first_number(params.get(name) for name in OUTPUT_CAPS),
        choices=choices if isinstance(choices, int) and choices > 1 else 1,
        input_bound=sum(map(_size, prompts))
        + FRAME_TOKENS * len(prompts)
        + sum(_json_size(params[name]) for name in _SAID_BESIDE if params.get(name)),
    )


def byte_size(text: str) -> int:
    """Return the bytes of a text: no tokenizer makes more tokens of it."""
    return len(text.encode("utf-8", "surrogatepass"))


def _size(prompt: BaseMessage | str) -> int:
    if isinstance(prompt, str):
        return byte_size(prompt)
    content, beside = prompt.content, [getattr(prompt, name, None) for name in _BESIDE_CONTENT]
    size = byte_size(content) if isinstance(content, str) else _json_size(content)
    return size + sum(_json_size(each) for each in beside if each)


def _json_size(value: object) -> int:
    return byte_size(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: object) -> object:
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    return str(value)


def _first_number(values: Iterable[object]) -> int | None:
    return next((value for value in values if isinstance(value, int)), None)
