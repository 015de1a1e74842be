"""Tokens of one call, from the provider's answer to the ledger."""

from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens billed for one call (T_in and T_out, App. D.1).

    Attributes:
        input_tokens: All tokens sent, those read from or written to a cache included (T_in).
        output_tokens: All tokens received, reasoning included (T_out).
        cached_tokens: Part of the input that was read from the provider's prompt cache.
        reasoning_tokens: Part of the output spent on reasoning.
        cache_write_tokens: Part of the input that was written to the provider's prompt cache.
        cache_write_1h_tokens: Part of the written tokens that is kept for an hour.

    Raises:
        ValueError: A count is negative or not whole, or a part exceeds its whole.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0

    def __post_init__(self) -> None:
        for each in fields(self):
            count = getattr(self, each.name)
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                wanted = "expected a whole number of at least 0"
                raise ValueError(f"{each.name}: got {count!r}, {wanted}")
        for part, whole in PARTS:
            if getattr(self, part) > getattr(self, whole):
                raise ValueError(
                    f"{part}: got {getattr(self, part)}, "
                    f"expected at most {whole} ({getattr(self, whole)})"
                )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(sum, zip(astuple(self), astuple(other), strict=True)))


PARTS = (
    ("cached_tokens", "input_tokens"),
    ("reasoning_tokens", "output_tokens"),
    ("cache_write_tokens", "input_tokens"),
    ("cache_write_1h_tokens", "cache_write_tokens"),
)
"""Each count that is a part of another, and the count it is a part of."""

NO_TOKENS = Usage(0, 0)
