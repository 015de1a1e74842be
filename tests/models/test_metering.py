import asyncio
import json
from contextlib import suppress
from decimal import Decimal
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from billing_server import BillingServer, Refusal, Reply, Silence
from fakes import ScriptedModel, hashed_answer
from impatience import SOON
from langchain_core.caches import InMemoryCache
from langchain_core.messages import HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult
from metered_calls import (
    CAP,
    INPUT_BOUND,
    Point,
    as_billed,
    asked,
    assert_exact,
    assert_in_doubt,
    charged,
    client,
    context_for,
    given_up,
    rows_of,
)

from costada.models.chat_models import chat_model
from costada.models.errors import UnmeteredCall
from costada.models.metering import CallMeter, MeteredCall
from costada.models.prices import price_book
from costada.models.retries import with_visible_requests
from costada.values.usage import Price, Usage

PROMPT = "twelve bytes"


@pytest.fixture
def metered(calls: list[MeteredCall]) -> Any:
    """A config whose meter reports to `calls`."""
    return {"callbacks": [CallMeter(calls.append)]}


def answer_of(model: Any, config: Any, is_asynchronous: bool) -> Any:
    if is_asynchronous:
        return asyncio.run(model.ainvoke(PROMPT, config))
    return model.invoke(PROMPT, config)


def test_an_answer_is_reported_as_billed(server: BillingServer, calls, metered):
    server.script(Reply("yes", 70, 20, cached_tokens=30, reasoning_tokens=10))
    began = monotonic()
    client(server).invoke(PROMPT, metered)
    took = monotonic() - began
    (call,) = calls
    assert as_billed(calls) == server.bill
    assert (call.request.model, call.request.provider, call.reply.answer) == (
        "stand-in",
        "openai",
        "yes",
    )
    assert (call.reply.finish_reason, call.reply.provider_id, call.error) == (
        "stop",
        "answer-1",
        None,
    )
    assert (call.reply.is_cache_hit, call.is_estimated) == (False, False)
    assert 0 < call.duration <= took


def test_an_answer_from_langchains_cache_costs_nothing_and_says_so(server, calls, metered):
    model = client(server, cache=InMemoryCache())
    for _ in range(3):
        model.invoke(PROMPT, metered)
    assert as_billed(calls) == server.bill
    assert [(call.reply.is_cache_hit, call.reply.answer) for call in calls] == [
        (False, "hello"),
        (True, "hello"),
        (True, "hello"),
    ]


def test_a_meter_attached_twice_reports_once(server: BillingServer, calls):
    meter = CallMeter(calls.append)
    client(server, callbacks=[meter]).invoke(PROMPT, {"callbacks": [meter]})
    assert as_billed(calls) == server.bill


@pytest.mark.parametrize("is_asynchronous", [False, True])
@pytest.mark.parametrize(
    "answer", [Reply("not json", 70, 20), Reply('{"x": 1', 70, 20, finish_reason="length")]
)
def test_a_structured_answer_that_does_not_parse_is_paid_and_an_error(
    server: BillingServer, calls, metered, answer: Reply, is_asynchronous: bool
):
    server.script(answer)
    model = client(server).with_structured_output(Point, method="json_schema")
    with pytest.raises(Exception, match=r"validation error|length limit"):
        answer_of(model, metered, is_asynchronous)
    assert as_billed(calls) == server.bill
    assert calls[0].error is not None


def test_a_request_without_answer_is_reported_once_with_the_reason(server, calls, metered):
    server.script(Silence())
    with pytest.raises(Exception, match="timed out"):
        client(server, timeout=SOON).invoke(PROMPT, metered)
    (call,) = calls
    assert call.usage == Usage(0, 0)
    assert "timed out" in (call.error or "")
    assert call.duration >= 0.2


def test_a_cancelled_request_is_reported_when_the_meter_is_closed(server, calls):
    server.script(Silence(is_billed=True))
    meter = CallMeter(calls.append)

    asking = client(server).ainvoke(PROMPT, {"callbacks": [meter]})
    with pytest.raises(TimeoutError):
        asyncio.run(given_up(server, asking))
    assert calls == []
    meter.close()
    meter.close()
    assert ["may have been billed" in (call.error or "") for call in calls] == [True]


@pytest.mark.parametrize(
    "silent", [Reply(reports_usage=False), Reply(input_tokens=0, output_tokens=0)]
)
def test_an_answer_without_counts_is_reported_and_lets_no_further_request_out(
    server: BillingServer, calls, metered, silent: Reply
):
    server.default = silent
    stubborn = client(server).with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    with pytest.raises(UnmeteredCall, match=r"'stand-in' answered without .* stream_usage=True"):
        stubborn.invoke(PROMPT, metered)
    (call,) = calls
    # 12 bytes of prompt, 5 bytes of "hello".
    assert (call.usage, call.is_estimated) == (Usage(4, 2), True)
    assert "answered without token counts" in (call.error or "")
    assert len(server.requests) == 1


def test_an_answer_without_counts_is_estimated_on_request(server, calls):
    server.script(Reply(reports_usage=False))
    meter = CallMeter(calls.append, on_missing_usage="estimate")
    client(server).invoke(PROMPT, {"callbacks": [meter]})
    (call,) = calls
    assert (call.usage, call.is_estimated, call.error) == (Usage(4, 2), True, None)


def test_an_unknown_policy_is_refused(calls):
    policy: Any = "ignore"
    with pytest.raises(ValueError, match='on_missing_usage must be "raise" or "estimate", got'):
        CallMeter(calls.append, on_missing_usage=policy)


def test_counts_may_come_from_the_raw_record_alone(calls):
    meter, run_id = CallMeter(calls.append), uuid4()
    meter.on_chat_model_start({"name": "Custom"}, [[HumanMessage(PROMPT)]], run_id=run_id)
    usage = {"token_usage": {"prompt_tokens": 7, "completion_tokens": 5}}
    result = ChatResult(generations=[ChatGeneration(message=HumanMessage("x"))])
    response = LLMResult(generations=[list(result.generations)], llm_output=usage)
    meter.on_llm_end(response, run_id=run_id)
    meter.on_llm_end(response, run_id=run_id)
    assert [(call.request.model, call.usage) for call in calls] == [("Custom", Usage(7, 5))]


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_each_attempt_of_a_retry_is_reported(server, calls, metered, is_asynchronous: bool):
    server.script(Refusal(429), Refusal(500), Reply("at last", 70, 20))
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    assert answer_of(model, metered, is_asynchronous).text == "at last"
    assert [call.error is None for call in calls] == [False, False, True]
    assert as_billed(calls) == server.bill


def test_fallbacks_and_bound_names_are_reported_under_the_name_asked(server, calls, metered):
    server.script(Refusal(404), Reply("from the second", 70, 20))
    first = chat_model("openai:first", base_url=server.url)
    second = chat_model("openai:second", base_url=server.url)
    answer = first.with_fallbacks([second]).invoke(PROMPT, metered)
    assert answer.text == "from the second"
    first.bind(model="other").invoke(PROMPT, metered)
    assert [call.request.model for call in calls] == ["first", "second", "other"]
    assert as_billed(calls) == server.bill


@pytest.mark.parametrize("protocol", [{}, {"use_responses_api": True}])
@pytest.mark.parametrize("breaks_after", [None, 2])
def test_a_streamed_answer_keeps_the_id_of_the_provider(
    server: BillingServer, calls, metered, protocol, breaks_after
):
    server.script(Reply("one two three", breaks_after=breaks_after))
    model = with_visible_requests(client(server, **protocol))
    with suppress(Exception):
        list(model.stream(PROMPT, metered))
    (call,) = calls
    assert (call.reply.provider_id, call.error is None) == ("answer-1", breaks_after is None)


def test_an_answer_streamed_in_an_event_loop_keeps_the_id_of_the_provider(
    server: BillingServer, calls, metered
):
    async def ids() -> set[str | None]:
        model = with_visible_requests(client(server))
        return {part.id async for part in model.astream(PROMPT, metered) if part.content}

    assert asyncio.run(ids()) == {"answer-1"}
    assert [call.reply.provider_id for call in calls] == ["answer-1"]


def test_the_text_of_a_stream_is_reported(server: BillingServer, calls, metered):
    server.script(Reply("one two three", 70, 20))
    text = "".join(chunk.text for chunk in client(server).stream(PROMPT, metered))
    assert text == calls[0].reply.answer == "one two three"


@pytest.mark.parametrize(
    ("policy", "usage", "is_estimated"),
    # 12 bytes of prompt, 7 bytes of "one two".
    [("raise", Usage(0, 0), False), ("estimate", Usage(4, 3), True)],
)
def test_a_broken_stream_is_reported_with_what_had_arrived(
    server: BillingServer, calls, policy: Any, usage: Usage, is_estimated: bool
):
    server.script(Reply("one two three", breaks_after=2))
    meter = CallMeter(calls.append, on_missing_usage=policy)
    with pytest.raises(Exception, match=r"Connection error|peer closed"):
        list(client(server).stream(PROMPT, {"callbacks": [meter]}))
    (call,) = calls
    assert (call.reply.answer, call.usage, call.is_estimated) == ("one two", usage, is_estimated)


def test_a_stream_the_reader_leaves_is_reported_once(server: BillingServer, calls, metered):
    stream = client(server).stream(PROMPT, metered)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert ["GeneratorExit" in (call.error or "") for call in calls] == [True]


CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TEXT = {"content": "twelve bytes"}
ONLY_PROMPT = {"prompt_tokens": 70, "total_tokens": 70}
NO_OUTPUT = {**ONLY_PROMPT, "completion_tokens": 0}
WITHOUT_OUTPUT = pytest.mark.parametrize(
    "usage", [NO_OUTPUT, ONLY_PROMPT], ids=["zero", "left out"]
)


def reporting(usage: dict[str, int], message: dict[str, Any], outputs: int = CAP) -> Reply:
    """An answer that is billed with `outputs` tokens and reports a usage of its own."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "stand-in"}
    return Reply(
        input_tokens=usage["prompt_tokens"],
        output_tokens=outputs,
        body=json.dumps(body | {"choices": [choice], "usage": usage}).encode(),
    )


def test_output_that_only_the_total_holds_is_charged(server: BillingServer):
    server.script(reporting({"prompt_tokens": 1000, "total_tokens": 1900}, TEXT, 900))
    context = context_for(client(server))
    asked(context)
    assert_exact(context, server)
    assert [row.usage.output_tokens for row in rows_of(context)] == [900]


@WITHOUT_OUTPUT
@pytest.mark.parametrize(
    "message", [TEXT, {"content": None, "tool_calls": [CALL]}], ids=["text", "tool call"]
)
def test_an_answer_of_no_tokens_that_says_something_is_refused(
    server: BillingServer, usage: dict[str, int], message: dict[str, Any]
):
    server.script(reporting({**usage, "prompt_tokens": INPUT_BOUND}, message))
    context = context_for(client(server))
    with pytest.raises(UnmeteredCall, match="answered without token counts"):
        asked(context)
    assert_in_doubt(context, server)


def test_an_estimate_keeps_the_counts_that_were_reported(server: BillingServer):
    server.script(reporting(NO_OUTPUT, TEXT))
    context = context_for(client(server), on_missing_usage="estimate")
    asked(context)
    (row,) = rows_of(context)
    # 12 bytes of answer.
    assert (row.usage.input_tokens, row.usage.output_tokens, row.is_estimated) == (70, 4, True)


@WITHOUT_OUTPUT
def test_an_empty_answer_of_no_tokens_is_exact(server: BillingServer, usage: dict[str, int]):
    server.script(reporting(usage, {"content": ""}, 0))
    context = context_for(client(server))
    asked(context)
    assert_exact(context, server)


def test_an_unparsable_answer_of_no_tokens_is_in_doubt(server: BillingServer):
    server.script(reporting({**NO_OUTPUT, "prompt_tokens": INPUT_BOUND}, TEXT))
    context = context_for(client(server).with_structured_output(Point))
    asked(context)
    assert_in_doubt(context, server)


class Caching(ScriptedModel):
    """Reports its counts as langchain-anthropic does: those of the cache are part of the input."""

    input_tokens: int = 1000
    output_tokens: int = 10
    details: dict[str, int]

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_provider": "anthropic", "ls_model_name": "claude-sonnet-4-5"}

    def _usage(self) -> Any:
        return super()._usage() | {"input_token_details": self.details}


WRITTEN = {"cache_creation": 1000, "ephemeral_5m_input_tokens": 1000}
FOR_AN_HOUR = {"cache_creation": 0, "ephemeral_1h_input_tokens": 1000}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_meter_reports_what_was_written_to_a_cache(calls, metered, is_streamed: bool):
    model = Caching(answer=hashed_answer, details={**FOR_AN_HOUR, "cache_read": 0})
    list(model.stream("hi", metered)) if is_streamed else model.invoke("hi", metered)
    (call,) = calls
    assert call.usage == Usage(1000, 10, 0, 0, 1000, 1000)


@pytest.mark.parametrize(
    ("details", "price", "cost"),
    [
        (WRITTEN, None, "0.0039"),
        (FOR_AN_HOUR, None, "0.00615"),
        (WRITTEN, Price(3, 15, "0.3"), "0.00315"),
    ],
    ids=["listed", "listed, for an hour", "given"],
)
def test_a_call_is_charged_what_its_cache_writes_cost(
    details: dict[str, int], price: Price | None, cost: str
):
    model = Caching(answer=hashed_answer, details=details)
    context = context_for(model, prices=price_book([(model, price)], {}))
    asked(context)
    assert charged(context) == Decimal(cost)
