"""What LangChain announces of a request before it leaves."""

from collections.abc import Mapping
from typing import Any, NamedTuple

OUTPUT_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What providers call the most tokens that an answer may have."""


class Announcement(NamedTuple):
    """Who is asked, and how long the answer may be.

    Attributes:
        model: The model's name at its provider.
        provider: The provider's name as LangChain reports it, if it does.
        output_cap: Most answer tokens that the request allows, if it says.
    """

    model: str
    provider: str | None
    output_cap: int | None


def announced(
    serialized: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    extras: Mapping[str, Any],
) -> Announcement:
    """Return what the callback of a request's start was told."""
    facts, params = metadata or {}, extras.get("invocation_params") or {}
    names = (
        facts.get("ls_model_name"),
        params.get("model"),
        params.get("model_name"),
        (serialized or {}).get("name"),
    )
    model = next((str(name) for name in names if name), "unknown")
    provider = facts.get("ls_provider")
    caps = (params.get(name) for name in OUTPUT_CAPS)
    cap = next((cap for cap in caps if isinstance(cap, int)), None)
    return Announcement(model, str(provider) if provider else None, cap)
