"""Tokens of one call, from the provider's answer to the ledger, and exactly what they cost."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from decimal import Context, Decimal, InvalidOperation, localcontext
from functools import wraps
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

DOLLARS = Context(prec=28)
"""Python's standard context, with more digits than any sum of costs has."""


def exactly(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function whose sums are not rounded to the digits that the caller's context allows."""

    @wraps(function)
    def computed(*values: Arguments.args, **named: Arguments.kwargs) -> Result:
        with localcontext(DOLLARS):
            return function(*values, **named)

    return computed


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
        for name in COUNTS:
            count = getattr(self, name)
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                wanted = "expected an integer of at least 0"
                raise ValueError(f"{name}: got {count!r}, {wanted}")
        for part, whole in PARTS:
            if getattr(self, part) > getattr(self, whole):
                raise ValueError(
                    f"{part}: got {getattr(self, part)}, "
                    f"expected at most {whole} ({getattr(self, whole)})"
                )

    def __add__(self, other: "Usage") -> "Usage":
        return total((self, other))


COUNTS = tuple(each.name for each in fields(Usage))
PARTS = (
    ("cached_tokens", "input_tokens"),
    ("reasoning_tokens", "output_tokens"),
    ("cache_write_tokens", "input_tokens"),
    ("cache_write_1h_tokens", "cache_write_tokens"),
)
"""Each count that is a part of another, and the count it is a part of."""


def total(usages: Iterable[Usage]) -> Usage:
    """The tokens of several calls together."""
    found = list(usages)
    return Usage(*(sum(getattr(each, name) for each in found) for name in COUNTS))


NO_TOKENS = Usage(0, 0)

MILLION = Decimal(1_000_000)

MAX_PRICE = 1_000_000_000
"""Dollars per million tokens: far above any price, and its costs stay exact sums of the ledger."""


@dataclass(frozen=True, slots=True, init=False)
class Price:
    """Dollars per million tokens of one model.

    Attributes:
        input_per_million: Price of input that was not cached (p_in).
        output_per_million: Price of output, reasoning included (p_out).
        cached_per_million: Price of cached input; the input price when none is given.

    Raises:
        ValueError: A price is negative, above `MAX_PRICE`, not finite, or not a number.
    """

    input_per_million: Decimal
    output_per_million: Decimal
    cached_per_million: Decimal

    def __init__(
        self,
        input_per_million: Decimal | float | str,
        output_per_million: Decimal | float | str,
        cached_per_million: Decimal | float | str | None = None,
    ) -> None:
        cached = input_per_million if cached_per_million is None else cached_per_million
        given = {
            "input_per_million": input_per_million,
            "output_per_million": output_per_million,
            "cached_per_million": cached,
        }
        for name, amount in given.items():
            object.__setattr__(self, name, _dollars(name, amount))


def _dollars(name: str, amount: Decimal | float | str) -> Decimal:
    try:
        dollars = Decimal(str(amount))
    except InvalidOperation:
        raise ValueError(f"{name}: got {amount!r}, expected a number of dollars") from None
    if not dollars.is_finite() or dollars < 0:
        raise ValueError(f"{name}: got {amount!r}, expected finite dollars of at least 0")
    if dollars > MAX_PRICE:
        raise ValueError(f"{name}: got {amount!r}, expected at most {MAX_PRICE:,} dollars")
    return dollars


@exactly
def call_cost(usage: Usage, price: Price) -> Decimal:
    """Dollars of one call (p_in T_in + p_out T_out, App. D.1).

    Decimal arithmetic adds no rounding: cents printed by the provider stay cents.
    """
    fresh_tokens = usage.input_tokens - usage.cached_tokens
    total = (
        fresh_tokens * price.input_per_million
        + usage.cached_tokens * price.cached_per_million
        + usage.output_tokens * price.output_per_million
    )
    return total / MILLION


@exactly
def cache_savings(usage: Usage, price: Price, cost: Decimal) -> Decimal:
    """Dollars that a provider's prompt cache saved on a call: what it would have cost without one.

    Below 0 where writing to the cache cost more than reading from it saved; 0 without either.

    Args:
        usage: Tokens of the call.
        price: Rates of uncached tokens; the price of cached ones is not looked at.
        cost: Dollars that were charged.
    """
    if not usage.cached_tokens and not usage.cache_write_tokens:
        return Decimal(0)
    return call_cost(Usage(usage.input_tokens, usage.output_tokens), price) - cost
