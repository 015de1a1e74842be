import asyncio
from typing import Any, TypedDict
from uuid import uuid4

import pytest
from billing_server import BillingServer, Reply
from bills import as_billed
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, SecretStr

from costada.models.errors import UnmeteredCall
from costada.models.metering import CallMeter, MeteredCall

PROMPT = "twelve bytes"


class Point(BaseModel):
    x: int


def client(server: BillingServer, *, stream_usage: bool | None = True) -> ChatOpenAI:
    return ChatOpenAI(
        model="stand-in",
        max_retries=0,
        timeout=5.0,
        stream_usage=stream_usage,
        base_url=server.url,
        api_key=SecretStr("none"),
        default_headers={"Connection": "close"},
    )


def test_a_stream_is_reported_as_billed(server: BillingServer, calls: list[MeteredCall]) -> None:
    server.script(Reply("one two three", 70, 20, cached_tokens=30, reasoning_tokens=10))
    config: RunnableConfig = {"callbacks": [CallMeter(calls.append)]}
    text = "".join(chunk.text for chunk in client(server).stream(PROMPT, config))
    assert text == calls[0].answer == "one two three"
    assert as_billed(calls) == server.bill


def test_an_asynchronous_stream_is_reported_as_billed(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    async def read() -> list[str]:
        config: RunnableConfig = {"callbacks": [CallMeter(calls.append)]}
        return [chunk.text async for chunk in client(server).astream(PROMPT, config)]

    assert "".join(asyncio.run(read())) == "hello"
    assert as_billed(calls) == server.bill


def test_a_stream_without_counts_is_refused(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    config: RunnableConfig = {"callbacks": [CallMeter(calls.append)]}
    with pytest.raises(UnmeteredCall, match="set stream_usage=True"):
        list(client(server, stream_usage=None).stream(PROMPT, config))
    assert [call.is_estimated for call in calls] == [True]


def test_a_broken_stream_is_reported_with_what_had_arrived(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Reply("one two three", breaks_after=2))
    config: RunnableConfig = {"callbacks": [CallMeter(calls.append)]}
    with pytest.raises(Exception, match=r"Connection error|peer closed"):
        list(client(server).stream(PROMPT, config))
    (call,) = calls
    assert (call.answer, call.usage.input_tokens, call.is_estimated) == ("one two", 0, False)


def test_a_broken_stream_is_estimated_on_request(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Reply("one two three", breaks_after=2))
    meter = CallMeter(calls.append, on_missing_usage="estimate")
    with pytest.raises(Exception, match=r"Connection error|peer closed"):
        list(client(server).stream(PROMPT, {"callbacks": [meter]}))
    (call,) = calls
    # 12 bytes of prompt, 7 bytes of "one two".
    assert (call.usage.input_tokens, call.usage.output_tokens, call.is_estimated) == (4, 3, True)


def test_a_broken_stream_is_charged_what_its_parts_had_counted(calls: list[MeteredCall]) -> None:
    meter, run_id = CallMeter(calls.append), uuid4()
    meter.on_chat_model_start({"name": "Custom"}, [[HumanMessage(PROMPT)]], run_id=run_id)
    for text, sent, received in (("one", 70, 1), (" two", 0, 19)):
        usage = UsageMetadata(
            input_tokens=sent, output_tokens=received, total_tokens=sent + received
        )
        message = AIMessageChunk(content=text, usage_metadata=usage)
        meter.on_llm_new_token(text, run_id=run_id, chunk=ChatGenerationChunk(message=message))
    meter.on_llm_error(ConnectionError("gone"), run_id=run_id)
    (call,) = calls
    assert (call.usage.input_tokens, call.usage.output_tokens, call.answer) == (70, 20, "one two")


def test_a_stream_the_reader_leaves_is_reported_once(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    stream = client(server).stream(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert ["GeneratorExit" in (call.error or "") for call in calls] == [True]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
def test_a_streamed_structured_answer_is_reported_as_billed(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Reply('{"x": 1}', 70, 20))
    model = client(server).with_structured_output(Point, method="json_schema")
    assert list(model.stream(PROMPT, {"callbacks": [CallMeter(calls.append)]})) == [Point(x=1)]
    assert as_billed(calls) == server.bill


class State(TypedDict, total=False):
    answer: str


def test_a_graph_that_streams_messages_is_metered_although_it_streams_the_model(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    model = client(server)

    def generate(state: State, config: RunnableConfig) -> State:
        meter: Any = CallMeter(calls.append)
        answer = model.invoke(PROMPT, merge_configs(config, {"callbacks": [meter]}))
        assert isinstance(answer, AIMessage)
        return {"answer": answer.text}

    graph = StateGraph(State)
    graph.add_node("generate", generate)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", END)
    assert list(graph.compile().stream({}, stream_mode="messages"))
    assert server.requests[0]["stream"] is True
    assert as_billed(calls) == server.bill
