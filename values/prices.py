"""Price of a model, and what a call costs at it."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from costada.values.usage import Usage

MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, init=False)
class Price:
    """Dollars per million tokens of one model.

    Attributes:
        input_per_million: Price of input that was not cached (p_in).
        output_per_million: Price of output, reasoning included (p_out).
        cached_per_million: Price of cached input; the input price when none is given.

    Raises:
        ValueError: A price is negative, not finite, or not a number.
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
    return dollars


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
