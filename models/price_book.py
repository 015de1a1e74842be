"""The price of every model that may answer, known before the first call."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol
from urllib.parse import urlsplit

from langchain_core.runnables import Runnable

from costada.models.identity import ModelIdentity, asked_models, model_identity, underlying_models
from costada.models.metering import MeteredCall
from costada.models.prices import PackagedPrice, packaged_price
from costada.values.prices import Price, call_cost
from costada.values.usage import Usage

OFFLINE_MODELS = (("offline", "costada"), ("simulated", "costada"))
OFFLINE_PRICE = Price("0.60", "1.92")
"""What models without a provider pretend to cost: the paper's GLM-5 price (App. D.1)."""


class Quote(Protocol):
    """What one model's tokens cost, and who says so."""

    @property
    def source(self) -> str:
        """Where the price comes from."""

    @property
    def input_per_million(self) -> Decimal:
        """Dollars for a million input tokens (p_in), before tiers and discounts."""

    @property
    def output_per_million(self) -> Decimal:
        """Dollars for a million output tokens (p_out), before tiers and discounts."""

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> Decimal:
        """Return the dollars of one call."""

    def worst_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the most dollars that a call can cost, whatever a cache does with its input."""


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

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> Decimal:
        """Return the dollars of one call; what is written to a cache costs the input price."""
        return call_cost(Usage(input_tokens, output_tokens, cached_tokens), self.price)

    def worst_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the dollars of a call whose input is fresh or cached, whichever is dearer."""
        return max(self.cost(input_tokens, output_tokens, each) for each in (0, input_tokens))


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one call cost, cache writes included, beside the prices of its model."""

    dollars: Decimal
    listed: Quote
    source: str

    @property
    def input_per_million(self) -> Decimal:
        """Dollars for a million input tokens (p_in), as listed."""
        return self.listed.input_per_million

    @property
    def output_per_million(self) -> Decimal:
        """Dollars for a million output tokens (p_out), as listed."""
        return self.listed.output_per_million

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> Decimal:
        """Return the dollars of the call."""
        return self.dollars

    def worst_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the dollars of the call."""
        return self.dollars


TOLD = "provider"
"""Source of a cost that the provider reported with its answer."""

FROM_CACHE = GivenPrice(Price(0, 0), source="local cache")


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The quotes of a run by model name."""

    quotes: Mapping[str, Quote]

    def priced(self, model: str) -> Quote:
        """Return the quote of a model by the name that its requests ask for.

        Raises:
            ValueError: It has no price.
        """
        if model not in self.quotes:
            raise ValueError(no_price(model))
        return self.quotes[model]

    def quote(self, call: MeteredCall) -> Quote:
        """Return what prices a call; the answer of a local cache is free.

        A price that the user gave comes first, then what the provider says it charged, then the
        packaged price.

        Raises:
            ValueError: The model that was asked has no price.
        """
        if call.is_cache_hit:
            return FROM_CACHE
        known = self.priced(call.model)
        if call.reported_cost is not None and not isinstance(known, GivenPrice):
            return CallCost(call.reported_cost, known, TOLD)
        if isinstance(known, PackagedPrice):
            return CallCost(_listed_cost(call, known), known, known.source)
        return known


def price_book(
    models: Iterable[tuple[Runnable[Any, Any], Price | None]], other_prices: Mapping[str, Price]
) -> PriceBook:
    """Return the quotes for all chat models inside the given runnables.

    A price given with a runnable is that of its first model, by the name of its constructor.
    Further models, such as fallbacks, and names that are bound to a model have theirs in
    `other_prices` or in the packaged data.

    Raises:
        ValueError: A model has no price or two, or a runnable holds no chat model.
    """
    quotes: dict[str, Quote] = {name: GivenPrice(price) for name, price in other_prices.items()}
    for runnable, price in models:
        asked = [each.identity for each in asked_models(runnable)]
        if not asked:
            raise ValueError(f"model is {runnable!r}; expected a LangChain chat model")
        own = model_identity(underlying_models(runnable)[0]).name
        names = [each.name for each in asked]
        if price and own not in names and names[0] not in quotes:
            raise ValueError(
                f"price: got that of {own!r} for a model that is asked as {names[0]!r};"
                f" {no_price(names[0])}"
            )
        if price and quotes.setdefault(own, GivenPrice(price)) != GivenPrice(price):
            raise ValueError(f"model {own!r} has two prices; expected one for each name")
        quotes |= {each.name: _quote(each) for each in asked if each.name not in quotes}
    return PriceBook(quotes)


def _listed_cost(call: MeteredCall, listed: PackagedPrice) -> Decimal:
    return listed.cost(
        call.input_tokens,
        call.output_tokens,
        call.cached_tokens,
        call.cache_write_tokens,
        call.cache_write_1h_tokens,
    )


def _quote(asked: ModelIdentity) -> Quote:
    name, provider, base_url = asked
    if (name, provider) in OFFLINE_MODELS:
        return GivenPrice(OFFLINE_PRICE, source="the paper's GLM-5 price")
    packaged = packaged_price(name, provider, base_url)
    if packaged is not None:
        return packaged
    if base_url is not None and packaged_price(name, provider) is not None:
        raise ValueError(_no_price_there(name, base_url))
    raise ValueError(no_price(name))


HOW_TO_PRICE = (
    "Settings(price=Price(input, output)) or --price-in and --price-out, in dollars per million"
    " tokens (guide_price for a guide model, other_prices by name for fallbacks and for a name that"
    " is bound to a model)"
)


def no_price(name: str) -> str:
    """Return what to say of a model without a price."""
    return f"model {name!r} has no known price; give one: {HOW_TO_PRICE}"


def _no_price_there(name: str, base_url: str) -> str:
    """Return what to say of a model that is listed, but not at the address that is called."""
    return (
        f"model {name!r} has no known price at {urlsplit(base_url).hostname}: its list price holds"
        " for the provider's own address only; give the price that is charged there:"
        f" {HOW_TO_PRICE}; or call the provider itself: without base_url, OPENAI_API_BASE and"
        " OPENAI_BASE_URL"
    )
