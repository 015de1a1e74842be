"""Every way of asking a model, against a server that keeps its own bill.

A case ends exact (rows and bill agree and claim to), in doubt (a row says that more may have been
billed, and what is charged covers the bill), estimated (a row says that its counts are guessed),
or with an exception. Nothing else may happen."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from billing_server import BillingServer, Refusal, Reply, Silence
from gateways import until
from impatience import SOON
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph import END, START, StateGraph
from metered_calls import (
    CAP,
    INPUT_BOUND,
    Point,
    agent_loop,
    asked,
    asked_twice,
    assert_exact,
    assert_in_doubt,
    cancelled,
    client,
    context_for,
    first_then_second,
    given_up,
    in_other_threads,
    left_early,
    plain,
    retried,
    rows_of,
    streamed,
    streamed_asynchronously,
    structured,
    through,
    without_client_retries,
)

from costada.models.errors import UnmeteredCall
from costada.models.metering import CallMeter
from costada.nodes.context import RunContext
from costada.store.rows import CallStatus

PAID = Reply("one two three", 70, 20, cached_tokens=30, reasoning_tokens=10)
WORST = {"input_tokens": INPUT_BOUND, "output_tokens": CAP}
BROKEN, FAILED = Reply("one two", **WORST, breaks_after=1), Reply(**WORST, fails_after=1)
LOST = Silence(**WORST, is_billed=True)


POINT_SCHEMA = {"title": "Point", "type": "object", "properties": {"x": {"type": "integer"}}}


def assert_estimated(context: RunContext, server: BillingServer):
    assert any(row.is_estimated for row in rows_of(context))


def assert_nothing(context: RunContext, server: BillingServer):
    """The exception is all that tells of the call."""


ENDINGS: dict[str, Callable[[RunContext, BillingServer], None]] = {
    "exact": assert_exact,
    "in doubt": assert_in_doubt,
    "estimated": assert_estimated,
    "unseen": assert_nothing,
}


def structured_stream(server: BillingServer) -> Any:
    model = client(server).with_structured_output(Point, method="json_schema")
    return RunnableLambda(lambda prompt, config: AIMessage(str(list(model.stream(prompt, config)))))


def with_unknown_parameter(model: Any, prompt: Any, config: Any) -> Any:
    return model.invoke(prompt, config, no_such_option=1)


@dataclass(frozen=True)
class Case:
    """One way of asking, what the server answers, and how the account must end."""

    name: str
    way: Callable[[BillingServer], Any]
    answers: tuple[Any, ...] = (PAID,)
    ends: str = "exact"
    raises: str | None = None
    rows: int | None = None
    listed: bool = False
    policy: str = "raise"


REPORTED = Reply("yes", 70, 20, cost=0.000123)
RESPONSES = {"use_responses_api": True}
NOT_JSON = Reply("not json", 70, 20)
UNCOUNTED = Reply(reports_usage=False)
NO_CHOICES = b'{"choices": [], "usage": {"prompt_tokens": 70, "completion_tokens": 20}}'
POINT = Reply('{"x": 1}', 70, 20)

CASES = [
    Case("invoke", plain()),
    Case("asynchronous invoke", through(lambda m, p, c: asyncio.run(m.ainvoke(p, c)))),
    Case("batch", through(lambda m, p, c: m.batch([p] * 3, c)[0]), (PAID, PAID, POINT)),
    Case(
        "abatch", through(lambda m, p, c: asyncio.run(m.abatch([p] * 3, c))[0]), (PAID, PAID, POINT)
    ),
    Case(
        "generate without the config",
        through(lambda m, p, c: m.generate([p, p]).generations[0][0].message),
        (PAID, POINT),
    ),
    Case("invoke without the config", through(lambda m, p, c: m.invoke(p, {"callbacks": []}))),
    Case("stream", through(streamed)),
    Case("asynchronous stream", through(streamed_asynchronously)),
    Case(
        "stream counted with each part",
        through(streamed),
        (Reply("a b c d e", 70, 5, counts_parts=True),),
    ),
    Case("three choices", plain(n=3)),
    Case("three streamed choices", through(streamed, n=3)),
    Case("structured", structured(Point), (POINT,)),
    Case("structured, streamed", structured_stream, (POINT,)),
    Case("structured, raw too", structured(Point, include_raw=True), (POINT,)),
    Case("structured by a schema", structured(POINT_SCHEMA), (POINT,)),
    Case("structured by a schema, invalid", structured(POINT_SCHEMA), (NOT_JSON,)),
    Case("structured in JSON mode", structured(Point, method="json_mode"), (POINT,)),
    Case("structured in JSON mode, invalid", structured(Point, method="json_mode"), (NOT_JSON,)),
    Case(
        "structured by a function",
        structured(Point, method="function_calling"),
        (Reply('{"x": 1}', 70, 20, tool="Point"),),
    ),
    Case(
        "structured by a function, invalid",
        structured(Point, method="function_calling"),
        (Reply('{"x": "?"}', 70, 20, tool="Point"),),
        raises="validation error",
    ),
    Case("structured, invalid", structured(Point), (NOT_JSON,)),
    Case("structured, invalid, raw too", structured(Point, include_raw=True), (NOT_JSON,)),
    Case("structured, cut off", structured(Point), (Reply("{", finish_reason="length"),)),
    Case("agent", through(agent_loop), (Reply('{"text": "a"}', 50, 9, tool="shout"), PAID)),
    Case("retries of LangChain", retried, (Refusal(500), Refusal(500), PAID), rows=3),
    Case(
        "retries of the client",
        without_client_retries(max_retries=2),
        (Refusal(500), Refusal(429), PAID),
        rows=3,
    ),
    Case(
        "retries of the client by default",
        without_client_retries(max_retries=None),
        (Refusal(500), PAID),
    ),
    Case(
        "timeouts and retries of the client",
        without_client_retries(max_retries=2, timeout=SOON),
        (LOST, LOST, LOST),
        "in doubt",
        raises="none of the 3 requests",
        rows=3,
    ),
    Case(
        "a timeout before the answer",
        without_client_retries(max_retries=2, timeout=3.0),
        (LOST, PAID),
        "in doubt",
    ),
    Case("fallback after a refusal", first_then_second, (Refusal(404), PAID), rows=2),
    Case(
        "fallback after an unreadable answer",
        first_then_second,
        (Reply(body=b"{", **WORST), PAID),
        "in doubt",
    ),
    Case(
        "fallback after an answer without counts",
        first_then_second,
        (UNCOUNTED,),
        "estimated",
        "without token counts",
    ),
    Case("cache hit", through(asked_twice, cache=InMemoryCache()), rows=2),
    Case("broken stream", through(streamed), (BROKEN,), "in doubt"),
    Case("broken stream, estimated", through(streamed), (BROKEN,), "in doubt", policy="estimate"),
    Case("error inside a stream", through(streamed), (FAILED,), "in doubt"),
    Case("stream left early", through(left_early), (Reply("one two", **WORST),), "in doubt"),
    Case("cancelled", cancelled, (LOST,), "in doubt"),
    Case("timeout", plain(timeout=SOON), (LOST,), "in doubt"),
    Case(
        "timeout of three choices",
        plain(timeout=SOON, n=3),
        (Silence(INPUT_BOUND, True, 3 * CAP),),
        "in doubt",
    ),
    Case("no counts", plain(), (UNCOUNTED,), "estimated", "answered without token counts"),
    Case("no counts, estimated", plain(), (UNCOUNTED,), "estimated", policy="estimate"),
    Case(
        "stream without counts",
        through(streamed, stream_usage=None),
        ends="estimated",
        raises="set stream_usage=True",
    ),
    Case(
        "no choices",
        plain(),
        (Reply(input_tokens=70, output_tokens=20, body=NO_CHOICES),),
    ),
    Case(
        "unreadable answer",
        plain(),
        (Reply(body=b"{", **WORST),),
        "in doubt",
        raises="did not answer as a chat model",
    ),
    Case(
        "error in place of an answer",
        plain(),
        (Reply(body=b'{"error": {"code": 502}}', **WORST),),
        "in doubt",
    ),
    Case("refused", plain(), (Refusal(401),), raises="status 401"),
    Case("Responses API", plain(**RESPONSES)),
    Case("Responses API, streamed", through(streamed, **RESPONSES)),
    Case("Responses API, structured", structured(Point, options=RESPONSES), (POINT,)),
    Case("Responses API, structured, invalid", structured(Point, options=RESPONSES), (NOT_JSON,)),
    Case("Responses API, broken stream", through(streamed, **RESPONSES), (BROKEN,), "in doubt"),
    Case("unknown parameter", through(with_unknown_parameter), (), raises="no_such_option", rows=1),
    Case(
        "Responses API, unknown parameter",
        through(with_unknown_parameter, **RESPONSES),
        (),
        raises="no_such_option",
        rows=1,
    ),
    Case(
        "Responses API, unknown parameter, streamed",
        through(with_unknown_parameter, streaming=True, **RESPONSES),
        (),
        raises="no_such_option",
        rows=1,
    ),
    Case("Responses API, timeout", plain(timeout=SOON, **RESPONSES), (LOST,), "in doubt"),
    Case("reported cost", plain(), (REPORTED,), listed=True),
    Case(
        "reported cost, structured, invalid",
        structured(Point),
        (Reply("not json", cost=0.000123),),
        listed=True,
    ),
    Case(
        "meters at the model",
        plain(callbacks=[UsageMetadataCallbackHandler(), CallMeter([].append)]),
    ),
    Case(
        "threads without a context",
        through(in_other_threads),
        ends="unseen",
        raises="no request was seen",
        rows=0,
    ),
]


@pytest.mark.filterwarnings("ignore:Unexpected type for token usage:UserWarning")
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_call_is_charged_as_billed_or_says_that_it_may_not_be(server: BillingServer, case: Case):
    server.script(*case.answers)
    server.default = Refusal(500, "nothing more was scripted")
    context = context_for(case.way(server), is_listed=case.listed, on_missing_usage=case.policy)
    if case.raises:
        with pytest.raises(Exception, match=case.raises):
            asked(context)
    else:
        asked(context)
    rows = rows_of(context)
    until(lambda: server.num_taken >= len(case.answers))
    assert len(server.requests) == len(case.answers)
    assert len(rows) == (len(case.answers) if case.rows is None else case.rows)
    ENDINGS[case.ends](context, server)


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
    context = context_for(client(server, timeout=3.0))
    running = []

    async def give_up_soon():
        try:
            await given_up(server, graph_on(context).ainvoke({}))
        finally:
            running.extend(rows_of(context))

    with pytest.raises(TimeoutError):
        asyncio.run(give_up_soon())
    assert [(row.status, row.is_in_doubt) for row in running] == [(CallStatus.STARTED, True)]
    assert [row.status for row in rows_of(context)] == [CallStatus.ERROR]
    assert_in_doubt(context, server)
