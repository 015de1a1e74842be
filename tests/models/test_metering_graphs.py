"""A call inside a graph, however the graph is run."""

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from billing_server import BillingServer, Reply, Silence
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from metered_calls import (
    CAP,
    INPUT_BOUND,
    asked,
    assert_exact,
    assert_in_doubt,
    client,
    context_for,
    rows_of,
)

from costada.models.errors import UnmeteredCall
from costada.nodes.context import RunContext
from costada.store.rows import CallStatus

ANSWER = Reply("one two three", 70, 20, cached_tokens=30, reasoning_tokens=10)


class State(TypedDict, total=False):
    is_done: bool


def graph_on(context: RunContext) -> Any:
    def generate(state: State, config: RunnableConfig) -> State:
        asked(context, config)
        return {"is_done": True}

    graph = StateGraph(State)
    graph.add_node("generate", generate)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", END)
    return graph.compile()


async def read(stream: Any):
    async for _ in stream:
        pass


def inside_another_graph(graph: Any):
    outer = StateGraph(State)
    outer.add_node("search", graph)
    outer.add_edge(START, "search")
    outer.add_edge("search", END)
    list(outer.compile().stream({}, stream_mode="messages", subgraphs=True))


RUNS: dict[str, Callable[[Any], object]] = {
    "invoke": lambda graph: graph.invoke({}),
    "ainvoke": lambda graph: asyncio.run(graph.ainvoke({})),
    "values": lambda graph: list(graph.stream({}, stream_mode="values")),
    "messages": lambda graph: list(graph.stream({}, stream_mode="messages")),
    "messages and values": lambda graph: list(graph.stream({}, stream_mode=["messages", "values"])),
    "asynchronous messages": lambda graph: asyncio.run(
        read(graph.astream({}, stream_mode="messages"))
    ),
    "events": lambda graph: asyncio.run(read(graph.astream_events({}, version="v2"))),
    "messages of another graph": inside_another_graph,
}
STREAMING = {"messages", "messages and values", "asynchronous messages", "events"}


@pytest.mark.parametrize("run", RUNS)
def test_a_call_is_charged_as_billed(server: BillingServer, run: str):
    server.script(ANSWER)
    context = context_for(client(server))
    RUNS[run](graph_on(context))
    assert_exact(context, server)
    assert len(rows_of(context)) == 1


@pytest.mark.parametrize("run", sorted(STREAMING))
def test_a_stream_that_a_graph_forces_is_not_charged_silently_without_counts(
    server: BillingServer, run: str
):
    server.script(ANSWER)
    context = context_for(client(server, stream_usage=None))
    with pytest.raises(UnmeteredCall, match="stream_usage=True"):
        RUNS[run](graph_on(context))
    (row,) = rows_of(context)
    assert (server.requests[0]["stream"], row.is_estimated, row.is_in_doubt) == (True, True, True)
    assert_in_doubt(context, server)


@pytest.mark.parametrize("run", sorted(STREAMING))
def test_a_graph_that_streams_does_not_lose_the_cost_of_a_model_that_does_not(
    server: BillingServer, run: str
):
    server.script(Reply("yes", cost=0.000123))
    context = context_for(client(server, disable_streaming=True), is_listed=True)
    RUNS[run](graph_on(context))
    assert_exact(context, server)
    assert rows_of(context)[0].price_source == "provider"


def test_a_stream_that_breaks_inside_a_graph_is_in_doubt(server: BillingServer):
    server.script(Reply("one two three", INPUT_BOUND, CAP, breaks_after=2))
    context = context_for(client(server))
    RUNS["messages"](graph_on(context))
    assert [row.answer for row in rows_of(context)] == ["one two"]
    assert_in_doubt(context, server)


def test_a_request_of_a_cancelled_graph_is_in_doubt_while_it_runs_and_after(server: BillingServer):
    server.script(Silence(INPUT_BOUND, is_billed=True, output_tokens=CAP))
    context = context_for(client(server, timeout=0.5))
    under_way = []

    async def give_up_soon():
        try:
            async with asyncio.timeout(0.2):
                await graph_on(context).ainvoke({})
        finally:
            under_way.extend(rows_of(context))

    with pytest.raises(TimeoutError):
        asyncio.run(give_up_soon())
    assert [(row.status, row.is_in_doubt) for row in under_way] == [(CallStatus.STARTED, True)]
    assert [row.status for row in rows_of(context)] == [CallStatus.ERROR]
    assert_in_doubt(context, server)
