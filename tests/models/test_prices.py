from decimal import Decimal
from typing import Any

import pytest
from fakes import ScriptedModel, hashed_answer
from genai_prices.types import ModelPrice, Tier, TieredPrices
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from needed_plugins import offline_model

from costada.models.metering import MeteredCall
from costada.models.prices import PackagedPrice, packaged_price, price_book
from costada.models.reply_content import Reply
from costada.models.runnable_tree import OutgoingRequest
from costada.values.usage import Price, Usage


def listed(model: str, **where: str) -> PackagedPrice:
    price = packaged_price(model, **where)
    assert price is not None
    return price


def packaged(**rates: str | TieredPrices) -> PackagedPrice:
    exact = {name: Decimal(rate) if isinstance(rate, str) else rate for name, rate in rates.items()}
    return PackagedPrice("test", ModelPrice(**exact))


def test_the_price_of_the_papers_model_is_the_papers_price_and_says_where_it_comes_from():
    price = listed("gpt-5.4", provider="openai")
    assert (price.input_per_million, price.output_per_million) == (Decimal("2.5"), Decimal(15))
    assert price.source.startswith("genai-prices ")
    assert price.source.endswith(" openai/gpt-5.4")


@pytest.mark.parametrize(
    ("model", "where", "source"),
    [
        (
            "z-ai/glm-5",
            {"provider": "openai", "base_url": "https://openrouter.ai/api/v1"},
            "openrouter/z-ai/glm-5",
        ),
        ("gemini-2.5-pro", {"provider": "google_genai"}, "google/gemini-2.5-pro"),
        ("mistral-large-latest", {"provider": "mistralai"}, "mistral/mistral-large"),
        ("gpt-4o", {"provider": "azure_openai"}, "azure/gpt-4o"),
    ],
)
def test_the_address_before_the_providers_name_decides_who_is_paid(
    model: str, where: dict[str, str], source: str
):
    assert f" {source}" in listed(model, **where).source


@pytest.mark.parametrize(
    ("model", "where"),
    [
        ("gpt-5.4", {"provider": "openai", "base_url": "http://localhost:8000/v1"}),
        ("gpt-5.4", {"provider": "openai", "base_url": "http://127.0.0.1:1/v1"}),
        ("gpt-5.4", {"provider": "openai", "base_url": "https://llm.example.org/v1"}),
        ("gpt-5.4", {}),
        ("gpt-5.4", {"provider": "my-openai-proxy"}),
        ("gpt-5.4", {"provider": "not-anthropic"}),
        ("gpt-5.4", {"provider": "offlinemodel"}),
        ("gpt-5.4", {"provider": "Google"}),
        ("gpt-5.4-custom", {"provider": "openai"}),
        ("glm-5", {"provider": "openai"}),
        ("", {"provider": "openai"}),
    ],
)
def test_what_the_table_does_not_list_has_no_price(model: str, where: dict[str, str]):
    assert packaged_price(model, **where) is None


PLAIN = {"input_mtok": "10", "output_mtok": "0"}
KEEPING = {
    "input_mtok": "10",
    "output_mtok": "30",
    "cache_read_mtok": "1",
    "cache_write_mtok": "12.5",
    "cache_write_1h_mtok": "20",
}


@pytest.mark.parametrize(
    ("rates", "usage", "dollars"),
    [
        # 3 * 0.1 / 10^6 + 7 * 0.2 / 10^6, which binary floats cannot hold.
        ({"input_mtok": "0.1", "output_mtok": "0.2"}, Usage(3, 7), "0.0000017"),
        # 400 fresh at 10 and 600 cached at 1 per million.
        ({**PLAIN, "cache_read_mtok": "1"}, Usage(1000, 50, 600), "0.0046"),
        (PLAIN, Usage(1000, 0, 600), "0.01"),
        (PLAIN, Usage(1000, 0, 0, 0, 600, 600), "0.01"),
        # 100 fresh at 10, 200 read at 1, 300 written at 12.5 and 400 for an hour at 20; 10 given.
        (KEEPING, Usage(1000, 10, 200, 0, 700, 400), "0.01325"),
    ],
)
def test_each_kind_of_token_costs_its_rate_exactly_or_the_input_rate(
    rates: dict[str, str], usage: Usage, dollars: str
):
    assert packaged(**rates).cost(usage) == Decimal(dollars)


def test_cache_writes_of_a_listed_model_cost_what_the_provider_charges():
    price = listed("claude-sonnet-4-5", provider="anthropic")
    assert price.cost(Usage(100_000, 10, 0, 0, 100_000)) == Decimal("0.37515")
    assert price.cost(Usage(100_000, 10, 0, 0, 100_000, 100_000)) == Decimal("0.60015")


def test_more_tokens_read_from_a_cache_and_written_to_it_than_were_sent_are_refused():
    with pytest.raises(ValueError, match="token counts must be parts <= their whole"):
        packaged(**PLAIN).cost(Usage(3, 0, 2, 0, 2))


@pytest.mark.parametrize(
    ("further_rates", "dollars"),
    [
        ({}, "0.0103"),
        ({"cache_read_mtok": "50"}, "0.0503"),
        ({"cache_write_mtok": "12.5"}, "0.0128"),
        ({"cache_write_mtok": "12.5", "cache_write_1h_mtok": "20"}, "0.0203"),
    ],
    ids=["fresh", "read", "written", "written for an hour"],
)
def test_the_worst_cost_takes_all_input_at_its_highest_rate(
    further_rates: dict[str, str], dollars: str
):
    price = packaged(input_mtok="10", output_mtok="30", **further_rates)
    assert price.worst_cost(1000, 10) == Decimal(dollars)


def test_a_long_prompt_moves_all_rates_to_its_tier():
    price = packaged(
        input_mtok=TieredPrices(base=Decimal(1), tiers=[Tier(start=1000, price=Decimal(2))]),
        output_mtok=TieredPrices(base=Decimal(10), tiers=[Tier(start=1000, price=Decimal(30))]),
    )
    assert price.cost(Usage(1000, 100)) == Decimal("0.002")
    assert price.cost(Usage(1001, 100)) == Decimal("0.005002")
    assert (price.input_per_million, price.output_per_million) == (Decimal(1), Decimal(10))


def openai_model(name: str) -> ChatOpenAI:
    return ChatOpenAI(model=name, api_key="unused")


GPT = openai_model("gpt-5.4")
OWN = openai_model("my-own")
FALLBACK = GPT.with_fallbacks([openai_model("gpt-5.4-mini")])
MILLION = Usage(1_000_000, 100_000)


def metered_call(
    model: str, usage: Usage = MILLION, provider: str | None = None, **reply: Any
) -> MeteredCall:
    request = OutgoingRequest(model, provider, None, 1, 0)
    return MeteredCall(request, Reply("", **reply), usage)


@pytest.mark.parametrize(
    ("models", "others", "call", "dollars", "source"),
    [
        ([(GPT, Price(3, 20))], {}, {"model": "gpt-5.4"}, "5", "given"),
        (
            [(GPT, None)],
            {},
            {"model": "gpt-5.4", "usage": Usage(10_000, 1_000)},
            "0.040",
            "genai-prices",
        ),
        (
            [(GPT, None)],
            {},
            {"model": "gpt-5.4", "cost": Decimal("0.0123")},
            "0.0123",
            "provider",
        ),
        (
            [(GPT, Price(3, 20))],
            {},
            {"model": "gpt-5.4", "cost": Decimal("0.0123")},
            "5",
            "given",
        ),
        ([(GPT, None)], {}, {"model": "gpt-5.4", "is_cache_hit": True}, "0", "local cache"),
        ([(FALLBACK, Price(3, 20))], {"gpt-5.4-mini": Price(1, 1)}, {"model": "gpt-5.4"}, "5", ""),
        (
            [(FALLBACK, Price(3, 20))],
            {"gpt-5.4-mini": Price(1, 1)},
            {"model": "gpt-5.4-mini"},
            "1.1",
            "given",
        ),
        ([(OWN, Price(1, 1)), (OWN, None)], {}, {"model": "my-own"}, "1.1", "given"),
        (
            [(OWN.bind(model="dear"), Price(1, 1))],
            {"dear": Price(9, 9)},
            {"model": "dear"},
            "9.9",
            "given",
        ),
        (
            [(OWN.bind(model="dear"), Price(1, 1))],
            {"dear": Price(9, 9)},
            {"model": "my-own"},
            "1.1",
            "given",
        ),
        (
            [(GPT.bind(model="gpt-5.4-mini"), Price(1, 1))],
            {},
            {"model": "gpt-5.4-mini", "provider": "openai"},
            "1.2",
            "genai-prices",
        ),
        (
            [(ScriptedModel(answer=hashed_answer), Price(1, 1, "0.1"))],
            {},
            {"model": "scripted", "usage": Usage(1_000_000, 0, 500_000)},
            "0.55",
            "given",
        ),
    ],
    ids=[
        "a given price overrides the packaged one",
        "packaged price",
        "a reported cost comes before the packaged price",
        "a given price comes before a reported cost",
        "the answer of a local cache is free",
        "first of fallbacks",
        "a fallback is priced as the model that answered",
        "a guide of the same name shares the price",
        "a bound name has its own price",
        "a price is that of the constructor's name",
        "a bound name that is listed has its list price",
        "cached tokens have their own price",
    ],
)
def test_a_call_is_priced_by_the_name_that_was_asked(models, others, call, dollars, source):
    metered = metered_call(**call)
    quote = price_book(models, others).quote(metered)
    assert quote.cost(metered.usage) == Decimal(dollars)
    assert quote.source.startswith(source)


def test_the_offline_model_has_the_papers_price():
    metered = metered_call("offline")
    quote = price_book([(offline_model(), None)], {}).quote(metered)
    assert quote.cost(metered.usage) == Decimal("0.792")
    assert quote.source.startswith("the paper's GLM-5 price")


def test_the_cost_of_a_call_stands_beside_its_list_price():
    call = metered_call("gpt-5.4", cost=Decimal("0.0123"))
    quote = price_book([(GPT, None)], {}).quote(call)
    assert (quote.input_per_million, quote.output_per_million) == (Decimal("2.5"), Decimal(15))


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([(GPT.with_fallbacks([OWN]), Price(3, 20))], "model 'my-own' has no known price"),
        (
            [(OWN.bind(model="dear"), Price(1, 1))],
            "that of 'my-own' for a model that is asked as 'dear'",
        ),
        (
            [(OWN, Price(1, 1)), (openai_model("my-own"), Price(9, 9))],
            "model 'my-own' has two prices; expected one",
        ),
        ([(RunnableLambda(str), Price(1, 1))], "expected a LangChain chat model"),
        (
            [(ChatOpenAI(model="mine", api_key="-", base_url="http://localhost:1/v1"), None)],
            "model 'mine' has no known price; give one",
        ),
    ],
)
def test_models_that_cannot_be_priced_are_refused_by_name(models, message: str):
    with pytest.raises(ValueError, match=message):
        price_book(models, {})


def test_a_call_to_a_model_without_a_price_cannot_be_charged():
    with pytest.raises(ValueError, match="model 'other' has no known price"):
        price_book([(GPT, None)], {}).quote(metered_call("other"))


def test_a_list_price_holds_for_the_providers_own_address_only_and_there_are_two_ways_out():
    model = ChatOpenAI(
        model="gpt-5.4", api_key="unused", base_url="https://me:secret@other.example/v1?key=secret"
    )
    with pytest.raises(ValueError) as refused:
        price_book([(model, None)], {})
    message = str(refused.value)
    assert message.startswith(
        "model 'gpt-5.4' has no known price at other.example: its list price holds for the"
        " provider's own address only"
    )
    assert "price=Price(input, output) or --price IN,OUT" in message
    assert "call the provider itself: without base_url, OPENAI_API_BASE and OPENAI_BASE_URL" in (
        message
    )
    assert "secret" not in message
    assert price_book([(model, Price(1, 2))], {}).prices["gpt-5.4"].source == "given"
