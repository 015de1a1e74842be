"""An agent with a purse of half a dollar orders searches from it, and ends within it."""

import json
from decimal import Decimal

import pytest
from billing_server import Reply
from fakes import IDEAS, hashed_answer, is_guide_prompt, toy_problem
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from costada.agents.middleware import BudgetMiddleware
from costada.agents.tool import create_discovery_tool
from costada.models.chat_models import chat_model
from costada.store.purse import Purse
from costada.values.usage import Price

PRICES = {"planner": Price("3", "15"), "searcher": Price("1.25", "10")}


def answer(body):
    """Answer as long as is allowed: the planner orders one search after the other."""
    allowed = body.get("max_completion_tokens", 32_000)
    size = sum(len(str(message["content"]).encode()) for message in body["messages"])
    if body["model"] == "planner":
        order = json.dumps({"problem": "toy", "budget": 0.11})
        return Reply(order, input_tokens=size, output_tokens=min(900, allowed), tool="discover")
    prompt = body["messages"][-1]["content"]
    text = IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt)
    return Reply(text, input_tokens=size // 4, output_tokens=min(1500, allowed))


def billed(server):
    """Return the server's own bill: a sum over its requests."""
    return sum(
        (
            entry.input_tokens * PRICES[entry.model].input_per_million
            + entry.output_tokens * PRICES[entry.model].output_per_million
            for entry in server.bill
        ),
        Decimal(0),
    ) / Decimal(1_000_000)


@pytest.mark.parametrize("policy", ["hard", "crossing"])
def test_an_agent_and_its_searches_end_within_half_a_dollar(provider, policy):
    provider.default = answer
    purse = Purse(0.50, policy=policy)
    search = create_discovery_tool(
        toy_problem(),
        chat_model("openai:searcher", base_url=provider.url, retry_wait=0),
        max_budget=0.15,
        price=PRICES["searcher"],
        budget_policy=policy,
        purse=purse,
    )
    planner = ChatOpenAI(model="planner", base_url=provider.url, api_key=SecretStr("none"))
    agent = create_agent(
        planner, [search], middleware=[BudgetMiddleware(purse, price=PRICES["planner"])]
    )
    said = agent.invoke({"messages": [("user", "Find large numbers.")]})["messages"]
    spent = {account.name: account.spent for account in purse.accounts()}
    searched = [amount for name, amount in spent.items() if name != "purse"]
    print(
        f"\n{policy}: ${purse.spent:f} of $0.50 spent, ${billed(provider):f} billed in"
        f" {len(provider.bill)} requests; {len(searched)} searches for ${sum(searched):f}"
    )
    assert said[-1].response_metadata == {"finish_reason": "budget"}
    assert purse.spent == billed(provider)
    assert len(searched) >= 3
    if policy == "hard":
        assert purse.spent <= Decimal("0.50")
        assert all(amount <= Decimal("0.11") for amount in searched)
    else:
        assert purse.spent < Decimal("0.56")
