"""Whether a request can have left this process: what is sent over a network opens a connection.

Python reports the connections of every client written in Python as audit events, whatever library
makes them.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from costada.models.identity import RequestFacts, requested_model, said_in

OUTPUT_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What providers call the most tokens that an answer may have."""

FRAME_TOKENS = 32
"""Tokens that a provider adds around one message, at most."""

_BESIDE_CONTENT = ("tool_calls", "invalid_tool_calls", "tool_call_id", "name")
"""What of a message a model reads besides its content."""

_SAID_BESIDE = ("tools", "functions", "response_format")
"""Parameters of a request that become part of what the model reads."""


_READ_ELSEWHERE = (
    "conversation",
    "plugins",
    "previous_response_id",
    "prompt",
    "web_search_options",
)
"""Parameters of a request by which a model reads what the request does not hold."""


class Announcement(NamedTuple):
    """Who is asked, and how much may be read and written.

    Attributes:
        model: The model's name at its provider.
        provider: The provider's name as LangChain reports it, if it does.
        output_cap: Most answer tokens that the request allows a choice, if it says; of several
            limits the highest, as a provider may honour any of them.
        choices: How many answers the request asks for; each of them is billed.
        input_bound: Most tokens that the prompt can have, tools and schemas included.
        is_all_text: Whether the model reads nothing but the text of the request. Of an image, a
            file or a search on the web the bytes sent do not tell the tokens.
    """

    model: str
    provider: str | None
    output_cap: int | None
    choices: int
    input_bound: int
    is_all_text: bool = True


def announced(facts: RequestFacts, prompts: Sequence[BaseMessage | str]) -> Announcement:
    """Return what the callback of a request's start was told."""
    provider, said = facts.metadata.get("ls_provider"), said_in(facts.params)
    choices = said.get("n")
    return Announcement(
        model=requested_model(facts),
        provider=str(provider) if provider else None,
        output_cap=max(stated_caps(said), default=None),
        choices=choices if isinstance(choices, int) and choices > 1 else 1,
        input_bound=sum(map(_size, prompts))
        + FRAME_TOKENS * len(prompts)
        + sum(_json_size(said[name]) for name in _SAID_BESIDE if said.get(name)),
        is_all_text=all(map(_is_text, prompts))
        and all(map(_is_ours, said.get("tools") or ()))
        and not any(said.get(name) for name in _READ_ELSEWHERE),
    )


def stated_caps(said: Mapping[str, Any]) -> list[int]:
    """Return the numbers of tokens to which a request limits its answer, whatever their names."""
    caps = [said.get(name) for name in OUTPUT_CAPS]
    return [cap for cap in caps if isinstance(cap, int)]


def byte_size(text: str) -> int:
    """Return the bytes of a text: no tokenizer makes more tokens of it."""
    return len(text.encode("utf-8", "surrogatepass"))


def _size(prompt: BaseMessage | str) -> int:
    if isinstance(prompt, str):
        return byte_size(prompt)
    content, beside = prompt.content, [getattr(prompt, name, None) for name in _BESIDE_CONTENT]
    size = byte_size(content) if isinstance(content, str) else _json_size(content)
    return size + sum(_json_size(each) for each in beside if each)


def _is_text(prompt: BaseMessage | str) -> bool:
    if isinstance(prompt, str) or isinstance(prompt.content, str):
        return True
    return all(isinstance(block, str) or block.get("type") == "text" for block in prompt.content)


def _is_ours(tool: object) -> bool:
    """Tell a tool that the caller runs from one of the provider's, which brings its own text."""
    return not isinstance(tool, Mapping) or tool.get("type", "function") in ("function", "custom")


def _json_size(value: object) -> int:
    return byte_size(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: object) -> object:
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    return str(value)


@dataclass(frozen=True, slots=True)
class SentCall:
    """A model request that is about to leave.

    Attributes:
        number: Of the request among those of its logical call, from 1.
        model: Name of the model that is asked, as its provider knows it.
        provider: Name of the provider as LangChain reports it, if it does.
        output_cap: Most answer tokens that the request allows a choice, if it says.
        choices: How many answers the request asks for; each of them is billed.
        input_bound: Most tokens that the prompt can have, tools and schemas included.
        is_all_text: Whether the model reads nothing but the text of the request.
    """

    number: int
    model: str
    provider: str | None
    output_cap: int | None
    choices: int
    input_bound: int
    is_all_text: bool = True


@dataclass(frozen=True, slots=True)
class MeteredCall:
    """One model request that was billed, or may have been.

    Attributes:
        model: Name of the model that was asked, as its provider knows it.
        provider: Name of the provider as LangChain reports it, if it does.
        input_tokens: Billed prompt tokens, those read from or written to a cache included (T_in,
            App. D.1).
        output_tokens: Billed answer tokens, reasoning ones included (T_out, App. D.1).
        cached_tokens: The part of the input read from the provider's prompt cache.
        reasoning_tokens: The part of the output that was thought and not shown.
        is_cache_hit: A LangChain cache answered; nothing was billed and all counts are zero.
        is_estimated: The counts are guessed from the text, the provider reported none.
        answer: Text of the answer, as `written` makes it of one that calls tools; for a stream
            that broke, the text that had arrived.
        finish_reason: Why the model stopped, in the provider's words.
        provider_id: The provider's id of the response.
        duration: Seconds from request to answer.
        error: What went wrong, or None. With zero counts nothing is known to be billed.
        may_be_billed: The provider may have billed more than the counts say.
        number: Of the request among those of its logical call, from 1.
        reported_cost: What the provider says it charged in dollars, if it does.
        cache_write_tokens: The part of the input written to the provider's prompt cache.
        cache_write_1h_tokens: The part of what was written that is kept for an hour.
    """

    model: str
    provider: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    is_cache_hit: bool
    is_estimated: bool
    answer: str
    finish_reason: str | None
    provider_id: str | None
    duration: float
    error: str | None
    may_be_billed: bool = False
    number: int = 1
    reported_cost: Decimal | None = None
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0


_EVENTS = frozenset(
    {
        "http.client.send",
        "socket.connect",
        "socket.sendmsg",
        "socket.sendto",
        "subprocess.Popen",
    }
)


@dataclass(slots=True)
class ConnectionCount:
    """How many connections were opened, or programs started, in one context."""

    number: int = 0

    @property
    def total(self) -> int:
        """Those of this context and those of threads that run outside any context of a call."""
        return self.number if self is UNATTRIBUTED else self.number + UNATTRIBUTED.number


_CountVar = ContextVar[ConnectionCount]

UNATTRIBUTED = ConnectionCount()
CURRENT: _CountVar = ContextVar("costada_connections", default=UNATTRIBUTED)


@cache
def count_connections() -> None:
    """Begin to count, once for the life of the process: an audit hook cannot be removed.

    It makes whatever raises many audit events slower, `copy.deepcopy` for one, so it is for chat
    models only of which nothing else tells whether they have sent anything.
    """

    def hook(
        event: str,
        _: object,
        events: frozenset[str] = _EVENTS,
        current: _CountVar = CURRENT,
    ) -> None:
        if event in events:
            current.get().number += 1

    sys.addaudithook(hook)
