"""The price of every model that may answer, known before the first call.

List prices come with the package genai-prices: a table on disk, never the network.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from langchain_core.runnables import Runnable

from costada.models.metering import MeteredCall
from costada.models.providers import NO_PROVIDER, STANDARD_TIER
from costada.models.runnable_tree import (
    AskedModel,
    asked_models,
    underlying_models,
)
from costada.values.usage import Price, Usage, call_cost, exactly

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, TieredPrices

OFFLINE_MODELS = (("offline", NO_PROVIDER), ("simulated", NO_PROVIDER))
OFFLINE_PRICE = Price("0.60", "1.92")
"""What models without a provider pretend to cost: the paper's GLM-5 price (App. D.1)."""

HOW_TO_PRICE = (
    "price=Price(input, output) or --price IN,OUT, in dollars per million"
    " tokens (guide_price for a guide model, other_prices by name for fallbacks and for a name that"
    " is bound to a model); of several models, price in the entry of models.toml or in MenuModel;"
    " of several models of a sweep, --set other_prices.NAME=IN,OUT"
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


TIER = "service_tier"
"""What the packaged data calls the service tier."""


@dataclass(frozen=True, slots=True)
class GivenPrice:
    """A price that the user gave.

    Attributes:
        price: Of any answer, except where `tier_prices` has that of the service tier that answers.
        tier_prices: Prices by service tier.
        source: What the ledger says of it.
    """

    price: Price
    tier_prices: Mapping[str, Price] = field(default_factory=dict)
    source: str = "given"

    @property
    def input_per_million(self) -> Decimal:
        """Dollars for a million input tokens (p_in)."""
        return self.price.input_per_million

    @property
    def output_per_million(self) -> Decimal:
        """Dollars for a million output tokens (p_out)."""
        return self.price.output_per_million

    def at_tier(self, tier: str | None) -> "GivenPrice":
        """The price of an answer of a service tier; `None`: of one that does not say."""
        own = self.tier_prices.get(tier or "")
        return self if own is None else GivenPrice(own, source=_at_tier(self.source, tier))

    def cost(self, usage: Usage) -> Decimal:
        """Dollars of one call; what is written to a cache costs the input price."""
        return call_cost(usage, self.price)

    def worst_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Dollars of a call whose input is fresh or cached, of any tier: the most."""
        return max(
            call_cost(Usage(input_tokens, output_tokens, cached), price)
            for cached in (0, input_tokens)
            for price in (self.price, *self.tier_prices.values())
        )


def _at_tier(source: str, tier: str | None) -> str:
    return f"{source}, {tier} tier"


@dataclass(frozen=True, slots=True)
class PackagedPrice:
    """The list price of a model on the day it was looked up.

    Attributes:
        source: Where it is from.
        requested: The service tiers that requests to the model ask for.
    """

    source: str
    _rates: "ModelPrice"
    _tiers: Mapping[str, "ModelPrice"] = field(default_factory=dict)
    requested: frozenset[str] = frozenset()

    @property
    def tiers(self) -> tuple[str, ...]:
        """The service tiers that have a price of their own."""
        return tuple(self._tiers)

    def at_tier(self, tier: str | None) -> "PackagedPrice":
        """The price of an answer of a service tier; `None`: of one that does not say."""
        if tier is None or tier not in self._tiers:
            return self
        return PackagedPrice(_at_tier(self.source, tier), self._tiers[tier])

    @property
    def input_per_million(self) -> Decimal:
        """Dollars for a million uncached prompt tokens, below any long-prompt tier (p_in)."""
        return _base_rate(self._rates.input_mtok)

    @property
    def output_per_million(self) -> Decimal:
        """Dollars for a million answer tokens, below any long-prompt tier (p_out)."""
        return _base_rate(self._rates.output_mtok)

    @exactly
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
        """Dollars of a call whose input is fresh, read from or written to a cache: the most.

        The standard tier or one that was asked for may answer.
        """
        whole = input_tokens
        possible = (
            Usage(whole, output_tokens),
            Usage(whole, output_tokens, cached_tokens=whole),
            Usage(whole, output_tokens, cache_write_tokens=whole),
            Usage(whole, output_tokens, cache_write_tokens=whole, cache_write_1h_tokens=whole),
        )
        prices = (self, *map(self.at_tier, self.requested))
        return max(price.cost(usage) for price in prices for usage in possible)


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
    now = datetime.now(UTC)
    rates = entry.get_prices(now)
    if rates.input_mtok is None or rates.output_mtok is None:
        return None
    variants = [variant.when for variant in entry.price_variants or ()]
    tiers = {
        when[TIER]: entry.get_prices(now, {TIER: when[TIER]})
        for when in variants
        if when.keys() == {TIER} and when[TIER] != STANDARD_TIER
    }
    return PackagedPrice(f"genai-prices {__version__} {seller.id}/{entry.id}", rates, tiers)


@dataclass(frozen=True, slots=True)
class RecordedPrice:
    """Rates at which no recorded answer of a model costs less than was paid for it.

    They bound what a call can cost. The call is charged what its answer reports.
    """

    price: Price
    source: str = "recorded"

    @property
    def input_per_million(self) -> Decimal:
        """Dollars for a million input tokens (p_in), at most."""
        return self.price.input_per_million

    @property
    def output_per_million(self) -> Decimal:
        """Dollars for a million output tokens (p_out), at most."""
        return self.price.output_per_million

    def at_tier(self, tier: str | None) -> "RecordedPrice":
        """The same: a recorded answer has no service tier."""
        return self

    def cost(self, usage: Usage) -> Decimal:
        """Dollars of a call that reports no cost of its own."""
        return call_cost(usage, self.price)

    def worst_cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Dollars of a call: the most."""
        return call_cost(Usage(input_tokens, output_tokens), self.price)


@dataclass(frozen=True, slots=True)
class ReportedCost:
    """What an answer says that its call cost, beside the list prices of its model."""

    dollars: Decimal
    listed: PackagedPrice | RecordedPrice
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


ListPrice = GivenPrice | PackagedPrice | RecordedPrice
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
            raise ValueError(_no_price(model, HOW_TO_PRICE))
        return self.prices[model]

    def expected(self, asked: AskedModel) -> ListPrice:
        """The price of a model if the service tier answers that it asks for; as `listed` raises."""
        return self.listed(asked.name).at_tier(asked.service_tier)

    def has_tiers(self, model: Runnable[Any, Any]) -> bool:
        """Whether the service tiers that a model's requests ask for have a price of their own."""
        return all(
            self.expected(asked) is not self.listed(asked.name)
            for asked in asked_models(model)
            if asked.service_tier not in (None, STANDARD_TIER)
        )

    def quote(self, call: MeteredCall) -> Quote:
        """What prices a call; the answer of a local cache is free.

        A price that the user gave comes first, then what the provider says it charged, then the
        packaged price. The service tier that answered decides; of an answer that does not say, and
        of a request without one, the price is that of the standard tier. `ValueError` if the model
        that was asked has no price.
        """
        if call.reply.is_cache_hit:
            return FROM_CACHE
        listed = self.listed(call.request.model).at_tier(call.reply.service_tier)
        if call.reply.cost is not None and not isinstance(listed, GivenPrice):
            if isinstance(listed, RecordedPrice):
                return ReportedCost(call.reply.cost, listed, listed.source)
            return ReportedCost(call.reply.cost, listed)
        return listed


def price_book(
    models: Iterable[tuple[Runnable[Any, Any], Price | GivenPrice | None]],
    other_prices: Mapping[str, Price],
    how_to_price: str = HOW_TO_PRICE,
) -> PriceBook:
    """The prices of all chat models inside the given runnables.

    A price given with a runnable is that of its first model, by the name of its constructor; it is
    not used where another name is bound to that model. Further models, such as fallbacks, and names
    that are bound to a model have theirs in `other_prices` or in the packaged data. `how_to_price`
    is what an error says of giving one.

    Raises:
        ValueError: A model has no price or two, or a runnable holds no chat model.
    """
    prices: dict[str, ListPrice] = {name: GivenPrice(price) for name, price in other_prices.items()}
    for runnable, price in models:
        asked = asked_models(runnable)
        if not asked:
            raise ValueError(f"model is {runnable!r}; expected a LangChain chat model")
        own = AskedModel(underlying_models(runnable)[0]).name
        names = [each.name for each in asked]
        if price and own not in names and not _is_priced(asked[0], prices):
            raise ValueError(
                f"price: got that of {own!r} for a model that is asked as {names[0]!r};"
                f" {_no_price(names[0], how_to_price)}"
            )
        given = GivenPrice(price) if isinstance(price, Price) else price
        if given and prices.setdefault(own, given) != given:
            raise ValueError(f"model {own!r} has two prices; expected one for each name")
        for each in asked:
            name = each.name
            listed = prices[name] if name in prices else _list_price(each, how_to_price)
            if isinstance(listed, PackagedPrice) and each.service_tier:
                listed = replace(listed, requested=listed.requested | {each.service_tier})
            prices[name] = listed
    return PriceBook(prices)


def _is_priced(asked: AskedModel, prices: Mapping[str, ListPrice]) -> bool:
    packaged = packaged_price(asked.name, asked.provider, asked.base_url)
    return asked.name in prices or packaged is not None


def _list_price(asked: AskedModel, how_to_price: str) -> ListPrice:
    name, provider, base_url = asked.name, asked.provider, asked.base_url
    if (name, provider) in OFFLINE_MODELS:
        return GivenPrice(OFFLINE_PRICE, source="the paper's GLM-5 price")
    if isinstance(recorded := getattr(asked.model, "recorded_price", None), Price):
        return RecordedPrice(recorded)
    packaged = packaged_price(name, provider, base_url)
    if packaged is not None:
        return packaged
    if base_url is not None and packaged_price(name, provider) is not None:
        raise ValueError(
            f"model {name!r} has no known price at {urlsplit(base_url).hostname}: its list price"
            " holds for the provider's own address only; give the price that is charged there:"
            f" {how_to_price}; or call the provider itself: without base_url, OPENAI_API_BASE and"
            " OPENAI_BASE_URL"
        )
    raise ValueError(_no_price(name, how_to_price))


def _no_price(name: str, how_to_price: str) -> str:
    return f"model {name!r} has no known price; give one: {how_to_price}"
