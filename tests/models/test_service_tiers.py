"""The service tier that answers decides what is charged, and the bound of a request covers it.

The prices of gpt-5.4 that are expected here are those that OpenAI prints: flex costs half, except
for cached input, which is printed as $0.13.
"""

from dataclasses import replace
from decimal import Decimal

import pytest
from billing_server import BillingServer, Reply
from hypothesis import given
from hypothesis import strategies as st
from langchain_openai import ChatOpenAI
from metered_calls import (
    PRICE,
    Way,
    asked,
    charged,
    client,
    context_for,
    plain,
    rows_of,
    streamed,
    streamed_asynchronously,
    structured,
    through,
)

from costada.models import reply_content
from costada.models.errors import UnmeteredCall
from costada.models.metering import MeteredCall
from costada.models.prices import (
    GivenPrice,
    PackagedPrice,
    PriceBook,
    packaged_price,
    price_book,
)
from costada.models.runnable_tree import OutgoingRequest, asked_models
from costada.values.usage import Price, Usage

FLEX = Price("0.5", "1", "0.13")
PAID = Reply('{"x": 4}', 70, 20, cached_tokens=30, reasoning_tokens=10)
LISTED = {
    None: ("2.5", "0.25", "15"),
    "flex": ("1.25", "0.13", "7.5"),
    "priority": ("5", "0.5", "30"),
}


def by_hand(reply: Reply, price: Price) -> Decimal:
    fresh = reply.input_tokens - reply.cached_tokens
    return (
        fresh * price.input_per_million
        + reply.cached_tokens * price.cached_per_million
        + reply.output_tokens * price.output_per_million
    ) / 1_000_000


POINT = {"title": "Point", "type": "object", "properties": {"x": {"type": "integer"}}}
WAYS: dict[str, Way] = {
    "invoke": plain(service_tier="flex"),
    "stream": through(streamed, service_tier="flex"),
    "astream": through(streamed_asynchronously, service_tier="flex"),
    "streaming": plain(service_tier="flex", streaming=True),
    "responses": plain(service_tier="flex", use_responses_api=True),
    "streamed responses": through(streamed, service_tier="flex", use_responses_api=True),
    "structured": structured(POINT, options={"service_tier": "flex"}, method="json_schema"),
    "bound": lambda server: client(server).bind(service_tier="flex"),
}


@pytest.mark.parametrize("tier", ["flex", "default", None])
@pytest.mark.parametrize("way", WAYS)
def test_the_tier_that_answered_is_charged_to_the_last_digit(
    server: BillingServer, way: str, tier: str | None
):
    model = WAYS[way](server)
    server.script(replace(PAID, service_tier=tier))
    book = price_book([(model, GivenPrice(PRICE, {"flex": FLEX}))], {})
    context = context_for(model, prices=book)
    asked(context)
    assert server.requests[0]["service_tier"] == "flex"
    (row,) = rows_of(context)
    expected = by_hand(PAID, FLEX if tier == "flex" else PRICE)
    assert (row.cost, row.bound, row.is_estimated) == (expected, 0, False)
    assert charged(context) == expected
    shown = ("0.5", "1") if tier == "flex" else ("1", "2")
    assert (row.price_in, row.price_out) == shown
    assert row.price_source == ("given, flex tier" if tier == "flex" else "given")


@pytest.mark.parametrize("tier", ["flex", "priority", None])
def test_a_price_without_tiers_is_that_of_every_answer(server: BillingServer, tier: str | None):
    model = client(server, service_tier="flex")
    server.script(replace(PAID, service_tier=tier))
    context = context_for(model)
    asked(context)
    assert charged(context) == by_hand(PAID, PRICE)


def test_a_stream_that_broke_before_it_named_a_tier_is_bounded_by_the_full_price(
    server: BillingServer,
):
    model = through(streamed, service_tier="flex")(server)
    server.script(Reply("one two", 70, 1000, service_tier="flex", breaks_after=1))
    book = price_book([(model, GivenPrice(PRICE, {"flex": FLEX}))], {})
    context = context_for(model, prices=book)
    asked(context)
    (row,) = rows_of(context)
    assert row.is_in_doubt
    assert row.cost + row.bound >= by_hand(Reply("", 70, 1000), PRICE)


def test_an_answer_of_a_dear_tier_that_no_request_asked_for_ends_the_run(server: BillingServer):
    server.script(Reply("hello", 300, 1000, service_tier="priority"))
    model = client(server)
    context = context_for(model, prices=PriceBook({"stand-in": listed_price()}))
    with pytest.raises(ValueError, match="service tier 'priority', which the request did not ask"):
        asked(context)
    assert charged(context) == (Decimal(5) * 300 + Decimal(30) * 1000) / 1_000_000


def test_an_answer_of_the_standard_tier_beyond_its_limit_is_not_blamed_on_the_tier(
    server: BillingServer,
):
    server.script(Reply("hello", 300, 1000, service_tier="default"))
    context = context_for(client(server, max_tokens=50))
    with pytest.raises(UnmeteredCall, match="counts 1,000 output tokens, expected at most 50"):
        asked(context)
    assert charged(context) == by_hand(Reply("hello", 300, 1000), PRICE)


def listed_price() -> PackagedPrice:
    listed = packaged_price("gpt-5.4", "openai")
    assert listed is not None
    return listed


def book_of(*models: ChatOpenAI) -> PriceBook:
    return price_book([(model, None) for model in models], {})


def openai(tier: str | None = None) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-5.4", api_key="none", service_tier=tier)


def answered(tier: str | None, usage: Usage) -> MeteredCall:
    request = OutgoingRequest("gpt-5.4", "openai", None, 1, 0)
    return MeteredCall(request, reply_content.Reply("", service_tier=tier), usage)


@pytest.mark.parametrize("requested", [None, "flex", "priority"])
@pytest.mark.parametrize("tier", ["default", "flex", "priority", "scale", None])
def test_listed_tiers_are_charged_at_their_printed_prices(requested: str | None, tier: str | None):
    usage = Usage(1_000_003, 777, cached_tokens=12_347)
    short = Usage(100_003, 777, cached_tokens=12_347)
    quote = book_of(openai(requested)).quote(answered(tier, short))
    prices = LISTED.get(tier, LISTED[None])
    fresh, cached, output = map(Decimal, prices)
    expected = (fresh * (100_003 - 12_347) + cached * 12_347 + output * 777) / 1_000_000
    assert quote.cost(short) == expected
    assert (str(quote.input_per_million), str(quote.output_per_million)) == prices[::2]
    assert quote.source.endswith(f"gpt-5.4, {tier} tier" if tier in LISTED and tier else "gpt-5.4")
    if tier == "flex":  # prompts above 272,000 tokens cost twice as much, and answers half again
        long = (Decimal("2.5") * (1_000_003 - 12_347) + Decimal("0.25") * 12_347) / 1_000_000
        assert quote.cost(usage) == long + Decimal("11.25") * 777 / 1_000_000


@given(
    requested=st.sampled_from([None, "default", "flex", "priority"]),
    sent=st.integers(1, 2_000_000),
    received=st.integers(0, 100_000),
    share=st.floats(0, 1),
    data=st.data(),
)
def test_no_answer_of_the_standard_or_the_requested_tier_costs_more_than_its_bound(
    requested: str | None, sent: int, received: int, share: float, data: st.DataObject
):
    tier = data.draw(st.sampled_from([None, "default", requested or "flex", "flex"]))
    usage = Usage(sent, received, cached_tokens=int(share * sent))
    model, other = openai(requested), openai()
    for book in (book_of(model), book_of(model, other), book_of(other, model)):
        bound = book.listed("gpt-5.4").worst_cost(sent, received)
        assert book.quote(answered(tier, usage)).cost(usage) <= bound
    if requested == "flex":
        assert bound >= book_of(other).listed("gpt-5.4").worst_cost(sent, received)


@given(prices=st.lists(st.tuples(*[st.decimals(0, 100, places=3)] * 3), min_size=2, max_size=2))
def test_the_bound_of_a_given_price_covers_its_tiers(prices: list[tuple[Decimal, ...]]):
    standard, tier = (Price(*each) for each in prices)
    found = GivenPrice(standard, {"flex": tier})
    for cached in (0, 500, 1000):
        usage = Usage(1000, 300, cached)
        for name in ("flex", "default", None):
            assert found.at_tier(name).cost(usage) <= found.worst_cost(1000, 300)


def test_the_expected_price_is_that_of_the_requested_tier():
    for tier, (price_in, _, price_out) in LISTED.items():
        model = openai(tier)
        (part,) = asked_models(model)
        quote = book_of(model).expected(part)
        assert (str(quote.input_per_million), str(quote.output_per_million)) == (
            price_in,
            price_out,
        )


def test_a_model_without_a_price_at_a_tier_is_known():
    listed = book_of(openai("flex"))
    assert listed.has_tiers(openai("flex"))
    old = ChatOpenAI(model="gpt-4.1", api_key="none", service_tier="flex")
    assert not book_of(old).has_tiers(old)
    assert isinstance(listed.listed("gpt-5.4"), PackagedPrice)
