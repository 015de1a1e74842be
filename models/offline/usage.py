"""How many tokens the offline model says a call took: an estimate from lengths."""

import math
from random import Random

from langchain_core.messages.ai import (
    InputTokenDetails,
    OutputTokenDetails,
    UsageMetadata,
)

CHARACTERS_PER_TOKEN = 4

MIN_REASONING = 2_400
MAX_REASONING = 4_800
"""Bounds of the hidden tokens of an answer, all whole numbers between them equally likely.

Reasoning models think before they write, and bill it as output. With this allowance a step
costs what one of a mid-sized reasoning model does.
"""


def estimated_tokens(text: str) -> int:
    """Return the tokens of a text: a quarter of its characters, rounded up."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def estimated_usage(prompt: str, reply: str, rng: Random) -> UsageMetadata:
    """Return the usage of a call; the reasoning allowance is part of the output."""
    return _usage(estimated_tokens(prompt), reply, rng.randint(MIN_REASONING, MAX_REASONING))


def cut_short(reply: str, usage: UsageMetadata, limit: int) -> tuple[str, UsageMetadata]:
    """Return what is left of a reply and its usage when it may have `limit` tokens at most.

    The reasoning comes first, so a low limit leaves no reply.
    """
    reasoning = min(limit, usage["output_token_details"]["reasoning"])
    begun = reply[: (limit - reasoning) * CHARACTERS_PER_TOKEN]
    return begun, _usage(usage["input_tokens"], begun, reasoning)


def _usage(taken: int, reply: str, reasoning: int) -> UsageMetadata:
    given = estimated_tokens(reply) + reasoning
    return UsageMetadata(
        input_tokens=taken,
        output_tokens=given,
        total_tokens=taken + given,
        input_token_details=InputTokenDetails(cache_read=0),
        output_token_details=OutputTokenDetails(reasoning=reasoning),
    )
