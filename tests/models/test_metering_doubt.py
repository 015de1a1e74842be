"""What a meter says when it cannot be sure, and what it then prevents."""

import socket
from dataclasses import replace
from decimal import Decimal
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx
import pytest
from billing_server import BillingServer, Reply, Silence
from gateways import until
from impatience import SOON
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, LLMResult
from langchain_core.runnables import RunnableLambda
from metered_calls import (
    CAP,
    INPUT_BOUND,
    Point,
    asked,
    assert_exact,
    assert_in_doubt,
    billed,
    charged,
    client,
    context_for,
    rows_of,
)

from costada.models.errors import UnmeteredCall
from costada.models.metering import UNSEEN_INPUT, CallMeter, MeteredCall
from costada.models.reply_content import is_cumulative, read_reply, streamed_usage
from costada.models.runnable_tree import OutgoingRequest
from costada.values.usage import Usage

PROMPT = "twelve bytes"


def part(text: str, inputs: int, outputs: int) -> ChatGenerationChunk:
    usage = UsageMetadata(input_tokens=inputs, output_tokens=outputs, total_tokens=inputs + outputs)
    return ChatGenerationChunk(message=AIMessageChunk(content=text, usage_metadata=usage))


@pytest.mark.parametrize("ends_with_an_error", [False, True])
def test_counts_of_a_stream_that_never_ended_are_a_part_of_its_bill_only(
    calls: list[MeteredCall], ends_with_an_error: bool
):
    meter, run_id = CallMeter(calls.append), uuid4()
    meter.on_chat_model_start({"name": "Custom"}, [[HumanMessage(PROMPT)]], run_id=run_id)
    meter.on_llm_new_token("one", run_id=run_id, chunk=part("one", 70, 1))
    meter.on_llm_new_token(" two", run_id=run_id, chunk=part(" two", 0, 19))
    if ends_with_an_error:
        meter.on_llm_error(ConnectionError("gone"), run_id=run_id)
    meter.close()
    (call,) = calls
    assert (call.usage, call.reply.answer, call.may_be_billed) == (Usage(70, 20), "one two", True)


def test_counts_that_each_part_repeats_do_not_add_up():
    parts = [Usage(70, 1), Usage(70, 2, 30), Usage(70, 5, 30, 3)]
    assert is_cumulative(parts)
    assert streamed_usage(parts) == Usage(70, 5, 30, 3)


def test_counts_that_parts_share_add_up():
    parts = [Usage(70, 1, 30), Usage(0, 19)]
    assert not is_cumulative(parts)
    assert streamed_usage(parts) == Usage(70, 20, 30)
    assert streamed_usage([]) is None


def test_the_input_bound_knows_messages_tools_and_schemas(server: BillingServer):
    sent: list[OutgoingRequest] = []

    def bound(model: Any) -> int:
        model.invoke(PROMPT, {"callbacks": [CallMeter(print, on_start=sent.append)]})
        return sent[-1].input_bound

    server.default = Reply('{"x": 1}')
    model = client(server)
    assert bound(model) == 12 + 32
    schema = len(str(Point.model_json_schema())) - 10
    assert bound(model.bind_tools([Point])) > 12 + 32 + schema
    assert bound(model.with_structured_output(Point)) > 12 + 32 + schema


def test_each_choice_may_be_as_long_as_the_cap(server: BillingServer):
    sent: list[OutgoingRequest] = []
    config: Any = {"callbacks": [CallMeter(print, on_start=sent.append)]}
    client(server, n=3).invoke(PROMPT, config)
    client(server).invoke(PROMPT, config)
    assert [(each.output_cap, each.choices) for each in sent] == [(CAP, 3), (CAP, 1)]


def test_a_row_in_doubt_is_charged_its_bound_and_no_more(server: BillingServer):
    server.script(Reply("one two three", INPUT_BOUND, CAP, breaks_after=2))
    model = client(server)
    way = RunnableLambda(lambda prompt, config: next(model.stream(prompt, config)))
    context = context_for(way, on_missing_usage="estimate")
    asked(context)
    (row,) = rows_of(context)
    assert row.is_estimated
    assert row.cost > 0
    assert row.cost + row.bound == Decimal(INPUT_BOUND + 2 * CAP) / 1_000_000


def test_an_answer_without_counts_that_ends_the_run_is_charged_its_bound(server: BillingServer):
    server.script(Reply("yes", INPUT_BOUND, CAP, reports_usage=False))
    context = context_for(client(server))
    with pytest.raises(UnmeteredCall):
        asked(context)
    assert_in_doubt(context, server)


def test_no_further_request_leaves_when_one_could_not_be_accounted_for(server: BillingServer):
    def full_disk(call: MeteredCall):
        raise OSError(f"no room for {call.request.model}")

    model = client(server).with_fallbacks([client(server)])
    with CallMeter(full_disk) as meter, pytest.raises(OSError, match="no room"):
        model.invoke(PROMPT, {"callbacks": [meter]})
    assert len(server.requests) == 1


def test_a_client_that_kept_its_connection_may_have_used_it(
    server: BillingServer, calls: list[MeteredCall]
):
    """Nothing tells of a second request over it, so an error after one is in doubt."""
    server.keeps_alive = True
    body = {"model": "stand-in", "messages": []}
    with httpx.Client(base_url=server.url) as session:

        class Own(BaseChatModel):
            """Posts, and cannot read every second answer."""

            @property
            def _llm_type(self) -> str:
                return "own"

            def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
                answer = session.post("/chat/completions", json=body).json()
                text = answer["choices" if len(server.requests) == 1 else "no such key"]
                return ChatResult(generations=[ChatGeneration(message=AIMessage(str(text)))])

        model = Own()
        for number in (1, 2):
            with CallMeter(calls.append, on_missing_usage="estimate") as meter:
                outcome = model.batch([PROMPT], {"callbacks": [meter]}, return_exceptions=True)
                assert isinstance(outcome[0], AIMessage if number == 1 else KeyError)
    assert [call.may_be_billed for call in calls] == [False, True]


def test_connections_of_other_threads_are_not_held_against_a_model_for_ever(
    calls: list[MeteredCall],
):
    class Local(FakeListChatModel):
        """Raises, once while a thread of another client connects."""

        def _call(self, *args: Any, **kwargs: Any) -> str:
            if not calls:
                with socket.socket() as held:
                    held.bind(("127.0.0.1", 0))
                    held.listen()
                    address = held.getsockname()
                    thread = Thread(target=lambda: socket.create_connection(address).close())
                    thread.start()
                    thread.join()
            raise KeyError("local")

    model = Local(responses=["x"])
    for _ in range(2):
        with CallMeter(calls.append) as meter, pytest.raises(KeyError):
            model.invoke(PROMPT, {"callbacks": [meter]})
    assert [call.may_be_billed for call in calls] == [True, False]


ABSURD = 10**15


@pytest.mark.parametrize(
    ("reply", "model"),
    [
        (Reply("ten words", ABSURD, 10), {}),
        (Reply("ten words", INPUT_BOUND + UNSEEN_INPUT + 1, 10), {}),
        (Reply("ten words", 10, ABSURD), {}),
        (Reply("ten words", 10, CAP + 1), {}),
        (Reply("ten words", 10, 3 * CAP + 1), {"n": 3}),
        (Reply("ten words", 10, ABSURD), {"max_tokens": None}),
        (Reply("ten words", ABSURD, 10), {"streaming": True}),
        (Reply("ten words", ABSURD, 10, body=b"HTML"), {"streaming": True}),
    ],
)
@pytest.mark.parametrize("on_missing_usage", ["raise", "estimate"])
def test_counts_that_the_request_cannot_have_caused_are_charged_and_end_the_run(
    server: BillingServer, reply: Reply, model: dict[str, Any], on_missing_usage: str
):
    server.default = reply
    ways = client(server, **model).with_fallbacks([client(server)])
    context = context_for(ways, on_missing_usage=on_missing_usage)
    with pytest.raises(UnmeteredCall, match=r"'stand-in' counts [0-9,]+ (in|out)put tokens"):
        asked(context)
    (row,) = rows_of(context)
    counted = row.usage.input_tokens, row.usage.output_tokens
    assert counted == (reply.input_tokens, reply.output_tokens)
    assert charged(context) == billed(server)
    resumed = asked(context)
    assert isinstance(resumed, AIMessage)
    assert resumed.text == "ten words"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "model"),
    [
        (Reply("ten words", INPUT_BOUND + UNSEEN_INPUT, CAP), {}),
        (Reply("ten words", 10, 3 * CAP), {"n": 3}),
        (Reply("ten words", 10, 100_000), {"max_tokens": None}),
    ],
)
def test_counts_at_the_limits_of_the_request_are_believed(
    server: BillingServer, reply: Reply, model: dict[str, Any]
):
    server.default = reply
    context = context_for(client(server, **model))
    asked(context)
    assert_exact(context, server)


def test_an_estimate_above_the_limit_of_an_answer_does_not_end_the_run(server: BillingServer):
    server.default = Reply("word " * 2000, 10, 10, reports_usage=False)
    context = context_for(client(server), on_missing_usage="estimate")
    asked(context)
    (row,) = rows_of(context)
    assert (row.is_estimated, row.usage.output_tokens > CAP) == (True, True)


def test_a_cost_that_no_price_explains_is_charged_and_ends_the_run(server: BillingServer):
    server.default = Reply("ten words", 10, 10, cost=2_500_000_000.0)
    context = context_for(client(server).with_fallbacks([client(server)]), is_listed=True)
    with pytest.raises((ValueError, UnmeteredCall), match=r"request cost \$2,500,000,000.00"):
        asked(context)
    assert_exact(context, server)
    assert len(server.requests) == 1


def test_what_an_image_or_a_tool_of_the_provider_takes_is_not_measured_in_bytes(
    server: BillingServer, calls: list[MeteredCall]
):
    server.default = Reply("a cat", 50_000, 5)
    model, config = client(server), {"callbacks": [CallMeter(calls.append)]}
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    model.invoke([HumanMessage([picture])], config)
    model.bind(tools=[{"type": "file_search"}]).invoke(PROMPT, config)
    assert [call.usage.input_tokens for call in calls] == [50_000, 50_000]
    with pytest.raises(UnmeteredCall):
        model.invoke([HumanMessage([{"type": "text", "text": PROMPT}])], config)


def test_the_answer_of_a_model_without_a_price_is_never_asked_for(server: BillingServer):
    context = context_for(client(server, model="second"))
    other = client(server).bind(model="unpriced").with_fallbacks([client(server, model="second")])
    asked(replace(context, menu=(replace(context.menu[0], model=other),)))
    assert [body["model"] for body in server.requests] == ["second"]
    assert_exact(context, server)


def test_a_request_that_could_not_be_written_down_does_not_leave(
    server: BillingServer, calls: list[MeteredCall]
):
    def full_disk(sent: OutgoingRequest):
        raise OSError(f"no room for {sent.model}")

    with CallMeter(calls.append, on_start=full_disk) as meter, pytest.raises(OSError, match="room"):
        client(server).invoke(PROMPT, {"callbacks": [meter]})
    assert server.requests == calls == []


def test_a_timeout_after_a_request_that_reached_no_server_is_in_doubt(server: BillingServer):
    server.script(Silence(INPUT_BOUND, is_billed=True, output_tokens=CAP))
    missing = client(server, base_url="http://127.0.0.1:9/v1")
    reachable = client(server, timeout=SOON)

    def ask_both(prompt: Any, config: Any) -> Any:
        try:
            return missing.invoke(prompt, config)
        except Exception:  # noqa: BLE001
            return reachable.invoke(prompt, config)

    context = context_for(RunnableLambda(ask_both))
    asked(context)
    until(lambda: server.num_taken)
    assert [row.is_in_doubt for row in rows_of(context)] == [False, True]
    assert_in_doubt(context, server)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        ({"is_byok": False, "cost_details": {"upstream_inference_cost": 0.5}}, "0.01"),
        ({"is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, "0.51"),
        ({"is_byok": True}, None),
        ({"cost": -1}, None),
        ({"cost": "0.01"}, None),
    ],
)
def test_with_a_key_of_ones_own_two_providers_charge(usage: Any, dollars: str | None):
    metadata = {"token_usage": {"cost": 0.01, **usage}}
    answer = ChatGeneration(message=AIMessage("yes", response_metadata=metadata))
    cost = read_reply(LLMResult(generations=[[answer]])).cost
    assert cost == (None if dollars is None else Decimal(dollars))
