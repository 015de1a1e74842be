from decimal import Decimal

import pytest
from genai_prices.types import ModelPrice, Tier, TieredPrices

from costada.models.prices import PackagedPrice, packaged_price

OPENROUTER = "https://openrouter.ai/api/v1"


def test_the_price_of_the_papers_model_is_the_papers_price() -> None:
    price = packaged_price("gpt-5.4", provider="openai")
    assert price is not None
    assert (price.input_per_million, price.output_per_million) == (Decimal("2.5"), Decimal(15))


def test_a_price_says_where_it_comes_from() -> None:
    price = packaged_price("gpt-5.4", provider="openai")
    assert price is not None
    assert price.source.startswith("genai-prices ")
    assert price.source.endswith(" openai/gpt-5.4")


def test_the_address_decides_who_is_paid() -> None:
    price = packaged_price("z-ai/glm-5", provider="openai", base_url=OPENROUTER)
    assert price is not None
    assert price.source.endswith("openrouter/z-ai/glm-5")


@pytest.mark.parametrize(
    "address", ["http://localhost:8000/v1", "http://127.0.0.1:1/v1", "https://llm.example.org/v1"]
)
def test_a_private_server_has_no_list_price(address: str) -> None:
    assert packaged_price("gpt-5.4", provider="openai", base_url=address) is None


def test_a_model_name_alone_has_no_price() -> None:
    assert packaged_price("gpt-5.4") is None


@pytest.mark.parametrize("provider", ["my-openai-proxy", "not-anthropic", "offlinemodel", "Google"])
def test_a_provider_the_table_does_not_list_is_not_guessed(provider: str) -> None:
    assert packaged_price("gpt-5.4", provider=provider) is None


@pytest.mark.parametrize(
    ("provider", "seller"),
    [("google_genai", "google"), ("mistralai", "mistral"), ("azure_openai", "azure")],
)
def test_langchains_provider_names_are_understood(provider: str, seller: str) -> None:
    names = {"google": "gemini-2.5-pro", "mistral": "mistral-large-latest", "azure": "gpt-4o"}
    price = packaged_price(names[seller], provider=provider)
    assert price is not None
    assert f" {seller}/" in price.source


@pytest.mark.parametrize("model", ["gpt-5.4-custom", "glm-5", ""])
def test_a_model_the_provider_does_not_list_has_no_price(model: str) -> None:
    assert packaged_price(model, provider="openai") is None


def test_the_cost_is_exact_to_the_last_digit() -> None:
    price = PackagedPrice("test", ModelPrice(input_mtok=Decimal("0.1"), output_mtok=Decimal("0.2")))
    # 3 * 0.1 / 10^6 + 7 * 0.2 / 10^6, which binary floats cannot hold.
    assert price.cost(3, 7) == Decimal("0.0000017")


def test_cached_tokens_have_a_rate_of_their_own() -> None:
    rates = ModelPrice(input_mtok=Decimal(10), cache_read_mtok=Decimal(1), output_mtok=Decimal(0))
    # 400 fresh at 10 and 600 cached at 1 per million.
    assert PackagedPrice("test", rates).cost(1000, 50, 600) == Decimal("0.0046")


def test_cached_tokens_without_a_rate_cost_the_input_rate() -> None:
    rates = ModelPrice(input_mtok=Decimal(10), output_mtok=Decimal(0))
    assert PackagedPrice("test", rates).cost(1000, 0, 600) == Decimal("0.01")


KEEPING = ModelPrice(
    input_mtok=Decimal(10),
    output_mtok=Decimal(30),
    cache_read_mtok=Decimal(1),
    cache_write_mtok=Decimal("12.5"),
    cache_write_1h_mtok=Decimal(20),
)


def test_tokens_written_to_a_cache_have_rates_of_their_own() -> None:
    # 100 fresh at 10, 200 read at 1, 300 written at 12.5 and 400 for an hour at 20; 10 answered.
    cost = PackagedPrice("test", KEEPING).cost(1000, 10, 200, 700, 400)
    assert cost == Decimal("0.01325")


def test_tokens_written_to_a_cache_without_a_rate_cost_the_input_rate() -> None:
    rates = ModelPrice(input_mtok=Decimal(10), output_mtok=Decimal(0))
    assert PackagedPrice("test", rates).cost(1000, 0, 0, 600, 600) == Decimal("0.01")


def test_cache_writes_of_a_listed_model_cost_what_the_provider_charges() -> None:
    price = packaged_price("claude-sonnet-4-5", provider="anthropic")
    assert price is not None
    assert price.cost(100_000, 10, 0, 100_000) == Decimal("0.37515")
    assert price.cost(100_000, 10, 0, 100_000, 100_000) == Decimal("0.60015")


@pytest.mark.parametrize(
    ("dearest", "dollars"),
    [
        ({}, "0.0103"),
        ({"cache_read_mtok": Decimal(50)}, "0.0503"),
        ({"cache_write_mtok": Decimal("12.5")}, "0.0128"),
        ({"cache_write_mtok": Decimal("12.5"), "cache_write_1h_mtok": Decimal(20)}, "0.0203"),
    ],
    ids=["fresh", "read", "written", "written for an hour"],
)
def test_the_worst_cost_takes_all_input_at_its_dearest_rate(
    dearest: dict[str, Decimal], dollars: str
) -> None:
    rates = ModelPrice(input_mtok=Decimal(10), output_mtok=Decimal(30), **dearest)
    assert PackagedPrice("test", rates).worst_cost(1000, 10) == Decimal(dollars)


def test_a_long_prompt_moves_all_rates_to_its_tier() -> None:
    rates = ModelPrice(
        input_mtok=TieredPrices(base=Decimal(1), tiers=[Tier(start=1000, price=Decimal(2))]),
        output_mtok=TieredPrices(base=Decimal(10), tiers=[Tier(start=1000, price=Decimal(30))]),
    )
    price = PackagedPrice("test", rates)
    assert price.cost(1000, 100) == Decimal("0.002")
    assert price.cost(1001, 100) == Decimal("0.005002")
    assert (price.input_per_million, price.output_per_million) == (Decimal(1), Decimal(10))


@pytest.mark.parametrize(
    "counts",
    [
        (-1, 0, 0),
        (0, -1, 0),
        (1, 0, -1),
        (1, 0, 2),
        (1, 0, 0, -1),
        (3, 0, 2, 2),
        (3, 0, 0, 2, 3),
        (3, 0, 0, 2, -1),
    ],
)
def test_impossible_counts_are_refused(counts: tuple[int, ...]) -> None:
    price = PackagedPrice("test", ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(1)))
    with pytest.raises(ValueError, match="token counts must be >= 0 and parts <= their whole"):
        price.cost(*counts)
