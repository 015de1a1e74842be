"""Searches with several calls in flight inside other graphs and agents."""

import asyncio
import time
from dataclasses import replace
from decimal import Decimal
from threading import Barrier

import pytest
from fakes import ScriptedModel, hashed_answer, program, toy_problem
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from two_models import AGENT, CALL_COST, SEARCHER
from typing_extensions import TypedDict

from costada.agents.node import as_discovery_node
from costada.agents.tool import create_discovery_tool
from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.purse import Purse
from costada.values.usage import Price

PARALLEL = 4
BUDGET = 0.04
THREAD = {"configurable": {"thread_id": "1"}}
NARROW = {"recursion_limit": 10}
"""Superstep limit of a parent, too low for the steps of a search."""


class Work(TypedDict, total=False):
    seed: int
    code: str
    best_program: str
    spent: float
    dollars: float
    iterations: int


def search(purse, **options):
    """A search whose first calls wait until all that may be are in flight; and its prompts."""
    barrier, prompts = Barrier(PARALLEL), []

    def answer(prompt):
        prompts.append(prompt)
        if len(prompts) <= PARALLEL:
            barrier.wait(60)
        time.sleep(0.01)
        return hashed_answer(prompt)

    graph = compile_search(
        toy_problem(),
        ScriptedModel(answer=answer),
        budget=BUDGET,
        settings=Settings(price=Price("1", "2")),
        purse=purse,
        parallel=PARALLEL,
        **options,
    )
    return graph, prompts


def parent_of(node, saver=None):
    parent = StateGraph(Work)
    parent.add_node("discover", node)
    parent.add_edge(START, "discover")
    parent.add_edge("discover", END)
    return parent.compile(checkpointer=saver)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("way", ["node", "subgraph"])
def test_a_search_in_a_parent_graph_has_all_its_calls_in_flight(way, is_async):
    purse = Purse(1.0)
    graph, prompts = search(purse)
    node = as_discovery_node(
        graph, input={"seed": "seed"}, output={"best_program": "code", "spent": "dollars"}
    )
    parent = parent_of(graph if way == "subgraph" else node)
    given = {"seed": 7}
    state = asyncio.run(parent.ainvoke(given, NARROW)) if is_async else parent.invoke(given, NARROW)
    spent = state["spent" if way == "subgraph" else "dollars"]
    assert purse.spent == len(prompts) * CALL_COST == Decimal(str(spent)) >= Decimal(str(BUDGET))
    assert purse.remaining == 1 - purse.spent


@pytest.mark.parametrize("mode", [None, True])
def test_a_cancelled_parent_repeats_no_call_when_it_continues(mode):
    purse, saver = Purse(1.0), InMemorySaver()
    graph, prompts = search(purse, checkpointer=mode)
    parent = parent_of(graph, saver)

    async def begin():
        async for _ in parent.astream({}, THREAD, stream_mode="custom", subgraphs=True):
            return

    asyncio.run(begin())
    begun = len(prompts)
    assert 1 <= begun < BUDGET / float(CALL_COST)
    state = asyncio.run(parent.ainvoke(None, THREAD))
    assert purse.spent == len(prompts) * CALL_COST == Decimal(str(state["spent"]))


def test_an_agents_searches_have_their_calls_in_flight_and_stay_within_a_hard_purse(provider):
    order = {"problem": "toy", "budget": 0.02}
    ordered = provider.orders(order, order).default

    def answer(body):
        reply = ordered(body)
        allowed = body.get("max_completion_tokens", reply.output_tokens)
        return replace(reply, output_tokens=min(reply.output_tokens, allowed))

    provider.default = answer
    purse = Purse(0.05, policy="hard")
    tool = create_discovery_tool(
        toy_problem(),
        chat_model(f"openai:{SEARCHER}", base_url=provider.url, retry_wait=0, max_tokens=500),
        max_budget=0.02,
        price=Price("1", "2"),
        budget_policy="hard",
        purse=purse,
        parallel=PARALLEL,
    )
    model = chat_model(f"openai:{AGENT}", base_url=provider.url, max_attempts=1).bound
    said = create_agent(model, [tool]).invoke({"messages": [("user", "Find a large number.")]})
    messages = [each for each in said["messages"] if isinstance(each, ToolMessage)]
    assert [message.status for message in messages] == ["success", "success"]
    found = [message.artifact for message in messages]
    assert all(0 < each["spent"] <= 0.02 for each in found)
    billed = sum(
        (
            Decimal(entry.input_tokens + 2 * entry.output_tokens) / 1_000_000
            for entry in provider.bill
            if entry.model == SEARCHER
        ),
        Decimal(0),
    )
    assert purse.spent == billed == sum(Decimal(str(each["spent"])) for each in found)
    assert found[0]["best_program"] == program(found[0]["best_score"])
