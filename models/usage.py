"""Token counts of one call, read from the shapes in which providers report them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

_BYTES_PER_TOKEN = 3
_KEPT_AN_HOUR = "ephemeral_1h_input_tokens"
_KEPT = ("ephemeral_5m_input_tokens", _KEPT_AN_HOUR)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens billed for one call (T_in and T_out, App. D.1).

    Attributes:
        input_tokens: Prompt tokens, those read from or written to a cache included.
        output_tokens: Answer tokens, the reasoning ones included.
        cached_tokens: The part of the input that was read from the provider's prompt cache.
        reasoning_tokens: The part of the output that the model thought and did not show.
        cache_write_tokens: The part of the input that was written to the provider's prompt cache.
        cache_write_1h_tokens: The part of what was written that is kept for an hour.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        """Return the counts of two parts of one answer together."""
        return TokenCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


NO_TOKENS = TokenCounts(0, 0)


def counts_from_metadata(usage: object) -> TokenCounts | None:
    """Return the counts in LangChain's `usage_metadata`, or None when it tells nothing.

    Under a service tier the details of cache and reasoning carry the tier's name as a prefix. What
    was written to the cache is told in one number, by how long it is kept, or both ways.
    """
    if not isinstance(usage, Mapping):
        return None
    inputs = usage.get("input_token_details")
    details = replace(
        NO_TOKENS,
        cached_tokens=_detail(inputs, "cache_read"),
        reasoning_tokens=_detail(usage.get("output_token_details"), "reasoning"),
        cache_write_tokens=max(_detail(inputs, "cache_creation"), _detail(inputs, *_KEPT)),
        cache_write_1h_tokens=_detail(inputs, _KEPT_AN_HOUR),
    )
    return _complete(usage, _count(usage, "input_tokens"), details)


def counts_from_record(usage: object) -> TokenCounts | None:
    """Return the counts in a provider's own `usage` object, or None when it tells nothing.

    Anthropic's `input_tokens` leave out what was read from the cache or written to it.
    """
    if not isinstance(usage, Mapping):
        return None
    inputs = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    outputs = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    kept = usage.get("cache_creation")
    read = _count(usage, "cache_read_input_tokens") or 0
    written = max(_count(usage, "cache_creation_input_tokens") or 0, _detail(kept, *_KEPT))
    details = replace(
        NO_TOKENS,
        cached_tokens=read or _detail(inputs, "cached_tokens"),
        reasoning_tokens=_detail(outputs, "reasoning_tokens"),
        cache_write_tokens=written or _detail(inputs, "cache_write_tokens"),
        cache_write_1h_tokens=_detail(kept, _KEPT_AN_HOUR),
    )
    sent = _count(usage, "prompt_tokens")
    if sent is None and (sent := _count(usage, "input_tokens")) is not None:
        sent += read + written
    return _complete(usage, sent, details)


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
    return TokenCounts(*map(max, zip(*map(astuple, parts), strict=True)))


def estimate_counts(prompts: Iterable[str], answer: str) -> TokenCounts:
    """Return a guess from text alone: one token for each three bytes of UTF-8, rounded up.

    It needs no tokenizer and therefore no download. Hidden reasoning leaves no text, so the
    guess can be far too low for a model that thinks.
    """
    return TokenCounts(_estimate("".join(prompts)), _estimate(answer))


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def _complete(
    usage: Mapping[object, object], sent: int | None, details: TokenCounts
) -> TokenCounts | None:
    """Return the counts with their details, or None when one is missing or both are zero.

    No request is free of prompt tokens: servers that do not count report zeros. Cached input or
    reasoning was counted apart from its whole, and is added, where it is larger than the whole;
    cached input also where the total exceeds both counts by just that. What else the total holds
    beyond both is output.
    """
    received = _count(usage, "completion_tokens", "output_tokens")
    total = _count(usage, "total_tokens") or 0
    if sent is None or (received is None and total <= sent):
        return None
    given, cached = received or 0, details.cached_tokens + details.cache_write_tokens
    if cached > sent or total - sent - given == cached:
        sent += cached
    if details.reasoning_tokens > given:
        given += details.reasoning_tokens
    counts = replace(details, input_tokens=sent, output_tokens=max(given, total - sent))
    return counts if counts.input_tokens + counts.output_tokens else None


def _count(usage: Mapping[object, object], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _detail(details: object, *names: str) -> int:
    """Return the sum of the counts of these names, with any prefix."""
    if not isinstance(details, Mapping):
        return 0
    ends = tuple(f"_{name}" for name in names)
    keys = [key for key in details if key in names or str(key).endswith(ends)]
    return sum(_count(details, key) or 0 for key in keys)
