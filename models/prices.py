"""Prices packaged with genai-prices: a table on disk, never the network."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, TieredPrices

_CATALOG_NAMES = {
    "amazon_bedrock": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "azure_openai": "azure",
    "google_genai": "google",
    "google_vertexai": "google",
    "mistralai": "mistral",
    "xai": "x-ai",
}


@dataclass(frozen=True, slots=True)
class PackagedPrice:
    """The list price of a model on the day it was looked up.

    Attributes:
        source: Package, its version, provider and model the price was taken from.
    """

    source: str
    _rates: "ModelPrice"

    @property
    def input_per_million(self) -> Decimal:
        """Dollars for a million uncached prompt tokens, below any long-prompt tier (p_in)."""
        return _base_rate(self._rates.input_mtok)

    @property
    def output_per_million(self) -> Decimal:
        """Dollars for a million answer tokens, below any long-prompt tier (p_out)."""
        return _base_rate(self._rates.output_mtok)

    def cost(
        self,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
        cache_write_tokens: int = 0,
        cache_write_1h_tokens: int = 0,
    ) -> Decimal:
        """Return the exact price of one call in dollars.

        Long-prompt tiers apply by the size of the input. Tokens read from a cache or written to it
        cost the input rate where the table has no rate for them.

        Args:
            input_tokens: Prompt tokens, those read from or written to a cache included (T_in).
            output_tokens: Answer tokens, reasoning ones included (T_out).
            cached_tokens: The part of the input read from the provider's prompt cache.
            cache_write_tokens: The part of the input written to the provider's prompt cache.
            cache_write_1h_tokens: The part of what was written that is kept for an hour.

        Raises:
            ValueError: If a count is negative or larger than the one that it is a part of.
        """
        from genai_prices import Usage

        counts = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cache_read_tokens": cached_tokens,
            "cache_write_tokens": cache_write_tokens,
            "cache_write_1h_tokens": cache_write_1h_tokens,
        }
        is_part = cache_write_1h_tokens <= cache_write_tokens <= input_tokens - cached_tokens
        if min(counts.values()) < 0 or not is_part:
            raise ValueError(f"token counts must be >= 0 and parts <= their whole, got {counts}")
        return self._rates.calc_price(Usage(**counts))["total_price"]

    def worst_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the dollars of a call whose input is all fresh, read from or written to a cache.

        Whichever is dearest counts. Arguments and errors are those of `cost`.
        """
        fresh, whole = 0, input_tokens
        parts = ((fresh,), (whole,), (fresh, whole), (fresh, whole, whole))
        return max(self.cost(input_tokens, output_tokens, *part) for part in parts)


def packaged_price(
    model: str, provider: str | None = None, base_url: str | None = None
) -> PackagedPrice | None:
    """Return the packaged price of a model, or None when the table does not know it.

    A base URL decides who is paid, so it comes before the provider's name: a model on a private
    server has no list price, whatever it is called. Without either there is no price, since the
    same model name costs differently at different providers.

    Args:
        model: The model's name at its provider.
        provider: The provider's name, as LangChain or genai-prices spells it.
        base_url: Address of the server that will answer.
    """
    from genai_prices import __version__, data_snapshot

    catalog = data_snapshot.get_snapshot()
    name = None if base_url else _CATALOG_NAMES.get(provider or "", provider)
    if name not in {None, *(seller.id for seller in catalog.providers)}:
        return None
    try:
        seller = catalog.find_provider(None, name, base_url)
    except LookupError:
        return None
    entry = seller.find_model(model, all_providers=catalog.providers)
    if entry is None:
        return None
    rates = entry.get_prices(datetime.now(UTC))
    if rates.input_mtok is None or rates.output_mtok is None:
        return None
    return PackagedPrice(f"genai-prices {__version__} {seller.id}/{entry.id}", rates)


def _base_rate(rate: "Decimal | TieredPrices | None") -> Decimal:
    return rate if isinstance(rate, Decimal) else getattr(rate, "base", Decimal(0))
