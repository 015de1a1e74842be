"""Prompt caches that cost more than they save: bounds and hard budgets hold nevertheless."""

from decimal import Decimal

import pytest
from billing_server import BillingServer, Reply
from fakes import rewrite, toy_problem
from genai_prices.types import ModelPrice

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.models.prices import GivenPrice, PackagedPrice, PriceBook, Quote
from costada.models.requests import OutgoingRequest
from costada.nodes.calls.budget import (
    MESSAGE_TOKENS,
    affordable_answer,
    call_bound,
    input_bound,
    sent_bound,
)
from costada.nodes.settings import Settings
from costada.prompts.render import Prompt
from costada.values.prices import Price

WRITES = PackagedPrice(
    "test",
    ModelPrice(
        input_mtok=Decimal(4),
        output_mtok=Decimal(10),
        cache_read_mtok=Decimal(1),
        cache_write_mtok=Decimal(5),
    ),
)
READS = GivenPrice(Price(4, 10, 5))


@pytest.mark.parametrize("quote", [WRITES, READS], ids=["writes", "reads"])
def test_bounds_take_the_input_at_its_dearest_price(quote: Quote) -> None:
    prices = PriceBook({"x": quote})
    sent = OutgoingRequest("x", None, output_cap=100, choices=2, input_bound=1000)
    # 1,000 tokens at 5 and 200 at 10 dollars per million.
    assert sent_bound(sent, prices) == Decimal("0.007")
    prompt = Prompt("be brief", "improve it")
    taken = input_bound(prompt)
    assert call_bound(quote, prompt, 100) == Decimal(taken * 5 + 1000) / 1_000_000


@pytest.mark.parametrize("quote", [WRITES, READS], ids=["writes", "reads"])
def test_an_answer_is_as_long_as_the_dearest_input_leaves_money_for(quote: Quote) -> None:
    announced = OutgoingRequest("x", None, output_cap=1000, choices=1, input_bound=1000)
    # 5,000 of 12,000 millionths go to the input, an answer token costs 10.
    left = Decimal("0.012")
    assert affordable_answer(announced, left, PriceBook({"x": quote})) == 700


def all_cached(body) -> Reply:
    """Answer as long as allowed, all of the longest prompt possible read from a cache."""
    taken = sum(len(message["content"].encode()) for message in body["messages"]) + MESSAGE_TOKENS
    return Reply(
        rewrite(0.3),
        input_tokens=taken,
        cached_tokens=taken,
        output_tokens=body["max_completion_tokens"],
    )


@pytest.mark.parametrize("budget", [0.05, 0.7])
def test_a_cache_that_costs_more_than_fresh_input_passes_no_hard_budget(
    server: BillingServer, budget: float
) -> None:
    server.default = all_cached
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    settings = Settings(
        price=Price("0.1", "1", "100"), budget_policy="hard", constants=Constants(max_iterations=5)
    )
    graph = create_discovery_graph(toy_problem(), model, budget=budget, settings=settings)
    result = graph.invoke({})
    total = server.total()
    bill = Decimal(total.cached_tokens * 100 + total.output_tokens) / 1_000_000
    assert float(bill) == pytest.approx(result["spent"])
    assert bill <= Decimal(str(budget))
    assert bool(server.bill) == (budget > 0.1)
