"""Markers for providers whose prompt cache reads and writes only what a request marks."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable

from costada.models.runnable_tree import asked_models

MARKED_PROVIDERS = frozenset({"anthropic"})
"""Providers, as LangChain names them, that cache a prompt up to each marked block."""

MAX_MARKERS = 4
"""Blocks of a request that Anthropic lets a caller mark."""

MARKER = {"cache_control": {"type": "ephemeral"}}
"""Kept for five minutes after the last use."""


def needs_markers(model: Runnable[Any, Any]) -> bool:
    """Whether every chat model inside a runnable is asked at such a provider.

    Others refuse or ignore a marker, so a fallback elsewhere leaves all requests without.
    """
    providers = {each.provider for each in asked_models(model)}
    return bool(providers) and providers <= MARKED_PROVIDERS


def marked(message: HumanMessage, parts: Sequence[str], *, is_repeated: bool) -> HumanMessage:
    """The message in blocks, each marked but the last one.

    Args:
        message: What the user says.
        parts: Its text in pieces, the first of them the same in most calls.
        is_repeated: Whether further requests begin with the whole message; its end is marked too.

    Raises:
        ValueError: If the parts are not the text of the message, or more than may be marked.
    """
    if "".join(parts) != message.content or len(parts) > MAX_MARKERS:
        raise ValueError(
            f"parts: got {len(parts)}, expected the text of the message in at most {MAX_MARKERS}"
        )
    blocks: list[str | dict[Any, Any]] = [
        {"type": "text", "text": part, **(MARKER if is_marked else {})}
        for part, is_marked in zip(parts, [*[True] * (len(parts) - 1), is_repeated], strict=True)
    ]
    return HumanMessage(blocks, additional_kwargs=message.additional_kwargs)
