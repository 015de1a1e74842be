"""The price of every model that may answer, known before the first call.

List prices come with the package genai-prices: a table on disk, never the network.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from langchain_core.runnables import Runnable

from costada.models.metering import NO_PROVIDER, MeteredCall
from costada.models.runnable_tree import (
    ModelIdentity,
    asked_models,
    model_identity,
    underlying_models,
)
from costada.values.usage import Price, Usage, call_cost

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, TieredPrices

OFFLINE_MODELS = (("offline", NO_PROVIDER), ("simulated", NO_PROVIDER))
OFFLINE_PRICE = Price("0.60", "1.92")
"""What models without a provider pretend to cost: the paper's GLM-5 price (App. D.1)."""

HOW_TO_PRICE = (
    "Settings(price=Price(input, output)) or --price-in and --price-out, in dollars per million"
    " tokens (guide_price for a guide model, other_prices by name for fallbacks and for a name that"
    " is bound to a model)"
)

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
class GivenPrice:
    """A price that the user gave."""

    price: Price
    source: str = "given"

    @property
    def input_per_million(self) -> Decimal:
        """Dollars for a million input tokens (p_in)."""
        return self.price.input_per_million

    @property
    def output_per_million(self) -> Decimal:
        """Dollars for a million output tokens (p_out)."""
        return self.price.output_per_million

    def cost(self, usage: Usage) -> Decimal:
        """Dollars of one call; what is written to a cache costs the input price."""
        return call_cost(usage, self.price)

    def worst_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Dollars of a call whose input is fresh or cached, whichever costs more."""
        return max(
            self.cost(Usage(input_tokens, output_tokens, cached)) for cached in (0, input_tokens)
        )


@dataclass(frozen=True, slots=True)
class PackagedPrice:
    """The list price of a model on the day it was looked up; `source` says from where."""

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

    def cost(self, usage: Usage) -> Decimal:
        """Exact dollars of one call.

        Long-prompt tiers apply by the size of the input. Tokens read from a cache or written to it
        cost the input rate where the table has no rate for them.

        Raises:
            ValueError: If more tokens were read from a cache and written to it than were sent.
        """
        import genai_prices

        if usage.cached_tokens + usage.cache_write_tokens > usage.input_tokens:
            raise ValueError(f"token counts must be parts <= their whole, got {usage}")
        counts = genai_prices.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cache_write_1h_tokens=usage.cache_write_1h_tokens,
        )
        return self._rates.calc_price(counts)["total_price"]

    def worst_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Dollars of a call whose input is fresh, read from or written to a cache: the most."""
        whole = input_tokens
        possible = (
            Usage(whole, output_tokens),
            Usage(whole, output_tokens, cached_tokens=whole),
            Usage(whole, output_tokens, cache_write_tokens=whole),
            Usage(whole, output_tokens, cache_write_tokens=whole, cache_write_1h_tokens=whole),
        )
        return max(map(self.cost, possible))


def _base_rate(rate: "Decimal | TieredPrices | None") -> Decimal:
    return rate if isinstance(rate, Decimal) else getattr(rate, "base", Decimal(0))


def packaged_price(
    model: str, provider: str | None = None, base_url: str | None = None
) -> PackagedPrice | None:
    """The packaged price of a model, or None when the table does not know it.

    A base URL decides who is paid, so it comes before the provider's name: a model on a private
    server has no list price, whatever it is called. Without either there is no price, since the
    same model name costs differently at different providers. Its name may be spelled as LangChain
    or as genai-prices does.
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


@dataclass(frozen=True, slots=True)
class ReportedCost:
    """What the provider says that one call cost, beside the list prices of its model."""

    dollars: Decimal
    listed: PackagedPrice
    source: str = "provider"

    @property
    def input_per_million(self) -> Decimal:
        """Dollars for a million input tokens (p_in), as listed."""
        return self.listed.input_per_million

    @property
    def output_per_million(self) -> Decimal:
        """Dollars for a million output tokens (p_out), as listed."""
        return self.listed.output_per_million

    def cost(self, usage: Usage) -> Decimal:
        """Dollars of the call."""
        return self.dollars


ListPrice = GivenPrice | PackagedPrice
Quote = ListPrice | ReportedCost
"""What a call costs, and where the price comes from; rates are before tiers and discounts."""

FROM_CACHE = GivenPrice(Price(0, 0), source="local cache")


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The prices of a run by model name."""

    prices: Mapping[str, ListPrice]

    def listed(self, model: str) -> ListPrice:
        """The price of a model by the name that its requests ask for; `ValueError` without one."""
        if model not in self.prices:
            raise ValueError(_no_price(model))
        return self.prices[model]

    def quote(self, call: MeteredCall) -> Quote:
        """What prices a call; the answer of a local cache is free.

        A price that the user gave comes first, then what the provider says it charged, then the
        packaged price. `ValueError` if the model that was asked has no price.
        """
        if call.is_cache_hit:
            return FROM_CACHE
        listed = self.listed(call.model)
        if call.reported_cost is not None and not isinstance(listed, GivenPrice):
            return ReportedCost(call.reported_cost, listed)
        return listed


def price_book(
    models: Iterable[tuple[Runnable[Any, Any], Price | None]], other_prices: Mapping[str, Price]
) -> PriceBook:
    """The prices of all chat models inside the given runnables.

    A price given with a runnable is that of its first model, by the name of its constructor.
    Further models, such as fallbacks, and names that are bound to a model have theirs in
    `other_prices` or in the packaged data.

    Raises:
        ValueError: A model has no price or two, or a runnable holds no chat model.
    """
    prices: dict[str, ListPrice] = {name: GivenPrice(price) for name, price in other_prices.items()}
    for runnable, price in models:
        asked = [each.identity for each in asked_models(runnable)]
        if not asked:
            raise ValueError(f"model is {runnable!r}; expected a LangChain chat model")
        own = model_identity(underlying_models(runnable)[0]).name
        names = [each.name for each in asked]
        if price and own not in names and names[0] not in prices:
            raise ValueError(
                f"price: got that of {own!r} for a model that is asked as {names[0]!r};"
                f" {_no_price(names[0])}"
            )
        if price and prices.setdefault(own, GivenPrice(price)) != GivenPrice(price):
            raise ValueError(f"model {own!r} has two prices; expected one for each name")
        prices |= {each.name: _list_price(each) for each in asked if each.name not in prices}
    return PriceBook(prices)


def _list_price(asked: ModelIdentity) -> ListPrice:
    name, provider, base_url = asked
    if (name, provider) in OFFLINE_MODELS:
        return GivenPrice(OFFLINE_PRICE, source="the paper's GLM-5 price")
    packaged = packaged_price(name, provider, base_url)
    if packaged is not None:
        return packaged
    if base_url is not None and packaged_price(name, provider) is not None:
        raise ValueError(
            f"model {name!r} has no known price at {urlsplit(base_url).hostname}: its list price"
            " holds for the provider's own address only; give the price that is charged there:"
            f" {HOW_TO_PRICE}; or call the provider itself: without base_url, OPENAI_API_BASE and"
            " OPENAI_BASE_URL"
        )
    raise ValueError(_no_price(name))


def _no_price(name: str) -> str:
    return f"model {name!r} has no known price; give one: {HOW_TO_PRICE}"
