"""Token counts of one call, read from the shapes in which providers report them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_BYTES_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens billed for one call (T_in and T_out, App. D.1).

    Attributes:
        input_tokens: Prompt tokens, the cached ones included.
        output_tokens: Answer tokens, the reasoning ones included.
        cached_tokens: The part of the input that was read from the provider's prompt cache.
        reasoning_tokens: The part of the output that the model thought and did not show.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        """Return the counts of two parts of one answer together."""
        return TokenCounts(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


NO_TOKENS = TokenCounts(0, 0)


def counts_from_metadata(usage: object) -> TokenCounts | None:
    """Return the counts in LangChain's `usage_metadata`, or None when it tells nothing.

    Under a service tier the cached and reasoning details carry the tier's name as a prefix.
    """
    if not isinstance(usage, Mapping):
        return None
    return _complete(
        _count(usage, "input_tokens"),
        _count(usage, "output_tokens"),
        _detail(usage.get("input_token_details"), "cache_read"),
        _detail(usage.get("output_token_details"), "reasoning"),
    )


def counts_from_record(usage: object) -> TokenCounts | None:
    """Return the counts in a provider's own `usage` object, or None when it tells nothing."""
    if not isinstance(usage, Mapping):
        return None
    inputs = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    outputs = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    return _complete(
        _count(usage, "prompt_tokens", "input_tokens"),
        _count(usage, "completion_tokens", "output_tokens"),
        _detail(inputs, "cached_tokens"),
        _detail(outputs, "reasoning_tokens"),
    )


def repeats(parts: Sequence[TokenCounts]) -> bool:
    """Return whether each part of a stream counts the whole answer so far, as some servers do.

    A prompt is counted once, so parts that both count it do not add up.
    """
    return sum(part.input_tokens > 0 for part in parts) > 1


def streamed_counts(parts: Sequence[TokenCounts]) -> TokenCounts | None:
    """Return the counts of a stream from those of its parts, or None when no part told any."""
    if not parts:
        return None
    if not repeats(parts):
        return sum(parts, NO_TOKENS)
    return TokenCounts(
        max(part.input_tokens for part in parts),
        max(part.output_tokens for part in parts),
        max(part.cached_tokens for part in parts),
        max(part.reasoning_tokens for part in parts),
    )


def estimate_counts(prompts: Iterable[str], answer: str) -> TokenCounts:
    """Return a guess from text alone: one token for each three bytes of UTF-8, rounded up.

    It needs no tokenizer and therefore no download. Hidden reasoning leaves no text, so the
    guess can be far too low for a model that thinks.
    """
    return TokenCounts(_estimate("".join(prompts)), _estimate(answer))


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def _complete(
    inputs: int | None, outputs: int | None, cached: int, reasoning: int
) -> TokenCounts | None:
    """Return the counts, or None when one is missing or both are zero.

    No request is free of prompt tokens: servers that do not count report zeros. A part that is
    larger than its whole was counted apart from it by the server, so it is added.
    """
    if inputs is None or outputs is None or inputs + outputs == 0:
        return None
    return TokenCounts(
        inputs + cached if cached > inputs else inputs,
        outputs + reasoning if reasoning > outputs else outputs,
        cached,
        reasoning,
    )


def _count(usage: Mapping[object, object], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _detail(details: object, name: str) -> int:
    if not isinstance(details, Mapping):
        return 0
    keys = [key for key in details if key == name or str(key).endswith(f"_{name}")]
    return sum(_count(details, key) or 0 for key in keys)
