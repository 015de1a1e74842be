import asyncio
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from billing_server import BillingServer, Refusal, Reply, Silence
from bills import as_billed
from langchain_core.caches import InMemoryCache
from langchain_core.messages import HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr, ValidationError

from costada.models.errors import UnmeteredCall
from costada.models.metering import CallMeter, MeteredCall

PROMPT = "twelve bytes"


class Point(BaseModel):
    x: int


def client(server: BillingServer, **options: Any) -> ChatOpenAI:
    settings = {"model": "stand-in", "max_retries": 0, "timeout": 5.0, "stream_usage": True}
    headers = {"Connection": "close"}
    key = SecretStr("none")
    return ChatOpenAI(
        **{**settings, **options}, base_url=server.url, api_key=key, default_headers=headers
    )


def test_an_answer_is_reported_as_billed(server: BillingServer, calls: list[MeteredCall]) -> None:
    server.script(Reply("yes", 70, 20, cached_tokens=30, reasoning_tokens=10))
    client(server).invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    (call,) = calls
    assert as_billed(calls) == server.bill
    assert (call.model, call.provider, call.answer) == ("stand-in", "openai", "yes")
    assert (call.finish_reason, call.provider_id, call.error) == ("stop", "answer-1", None)
    assert not call.is_cache_hit
    assert not call.is_estimated
    assert 0 < call.duration < 5


def test_the_cost_that_a_provider_reports_is_passed_on(server, calls):
    server.script(Reply("yes", cost=0.000123))
    client(server).invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    assert calls[0].reported_cost == Decimal("0.000123")


def test_several_choices_of_one_response_are_counted_once(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    client(server, n=3).invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    assert as_billed(calls) == server.bill
    assert len(calls) == 1


def test_each_prompt_of_a_batch_is_reported(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(*(Reply("yes", 10 + size, size) for size in range(1, 7)))
    client(server).batch([PROMPT] * 6, {"callbacks": [CallMeter(calls.append)]})
    assert sorted(as_billed(calls), key=str) == sorted(server.bill, key=str)


def test_asynchronous_calls_are_reported(server: BillingServer, calls: list[MeteredCall]) -> None:
    model, meter = client(server), CallMeter(calls.append)

    async def ask_twice() -> None:
        config: Any = {"callbacks": [meter]}
        await asyncio.gather(model.ainvoke(PROMPT, config), model.ainvoke(PROMPT, config))

    asyncio.run(ask_twice())
    assert as_billed(calls) == server.bill
    assert len(calls) == 2


def test_an_answer_from_langchains_cache_costs_nothing_and_says_so(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    model = client(server, cache=InMemoryCache())
    for _ in range(3):
        model.invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    assert as_billed(calls) == server.bill
    assert [call.is_cache_hit for call in calls] == [False, True, True]
    assert [call.answer for call in calls] == ["hello"] * 3


def test_a_meter_attached_twice_reports_once(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    meter = CallMeter(calls.append)
    client(server, callbacks=[meter]).invoke(PROMPT, {"callbacks": [meter]})
    assert as_billed(calls) == server.bill


@pytest.mark.parametrize(
    "answer",
    [Reply("not json", 70, 20), Reply('{"x": 1', 70, 20, finish_reason="length")],
    ids=["unparseable", "cut off"],
)
def test_a_structured_answer_that_does_not_parse_is_still_paid(
    server: BillingServer, calls: list[MeteredCall], answer: Reply
) -> None:
    server.script(answer)
    model = client(server).with_structured_output(Point, method="json_schema")
    with pytest.raises(Exception, match=r"validation error|length limit"):
        model.invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    assert as_billed(calls) == server.bill
    assert calls[0].error is not None


def test_an_asynchronous_structured_answer_that_does_not_parse_is_still_paid(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Reply("not json", 70, 20))
    model = client(server).with_structured_output(Point, method="json_schema")
    with pytest.raises(ValidationError):
        asyncio.run(model.ainvoke(PROMPT, {"callbacks": [CallMeter(calls.append)]}))
    assert as_billed(calls) == server.bill


def test_a_response_without_choices_is_still_paid(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    body = b'{"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}'
    server.script(Reply(body=body))
    with pytest.raises(IndexError):
        client(server).invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    assert as_billed(calls) == server.bill


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_a_refused_request_is_reported_as_free(
    server: BillingServer, calls: list[MeteredCall], status: int
) -> None:
    server.script(Refusal(status, "no way"))
    with pytest.raises(Exception, match="no way"):
        client(server).invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    assert as_billed(calls) == server.bill == []
    assert [str(status) in (call.error or "") for call in calls] == [True]


def test_a_request_without_answer_is_reported_once_with_the_reason(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Silence())
    with pytest.raises(Exception, match="timed out"):
        client(server, timeout=0.2).invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    (call,) = calls
    assert (call.usage.input_tokens, call.usage.output_tokens) == (0, 0)
    assert "timed out" in (call.error or "")
    assert call.duration >= 0.2


def test_a_cancelled_request_is_reported_when_the_meter_is_closed(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Silence(is_billed=True))
    meter = CallMeter(calls.append)

    async def give_up_soon() -> None:
        async with asyncio.timeout(0.2):
            await client(server).ainvoke(PROMPT, {"callbacks": [meter]})

    with pytest.raises(TimeoutError):
        asyncio.run(give_up_soon())
    assert calls == []
    meter.close()
    meter.close()
    assert ["may have been billed" in (call.error or "") for call in calls] == [True]


@pytest.mark.parametrize(
    "silent", [Reply(reports_usage=False), Reply(input_tokens=0, output_tokens=0)]
)
def test_an_answer_without_counts_is_reported_and_stops_the_call(
    server: BillingServer, calls: list[MeteredCall], silent: Reply
) -> None:
    server.script(silent)
    with pytest.raises(UnmeteredCall, match=r"'stand-in' answered without .* stream_usage=True"):
        client(server).invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    (call,) = calls
    assert call.is_estimated
    assert "answered without token counts" in (call.error or "")
    assert (call.usage.input_tokens, call.usage.output_tokens) == (4, 2)


def test_an_answer_without_counts_is_estimated_on_request(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Reply(reports_usage=False))
    meter = CallMeter(calls.append, on_missing_usage="estimate")
    client(server).invoke(PROMPT, {"callbacks": [meter]})
    (call,) = calls
    # 12 bytes of prompt, 5 bytes of "hello".
    assert (call.usage.input_tokens, call.usage.output_tokens) == (4, 2)
    assert call.is_estimated
    assert call.error is None


def test_after_an_answer_without_counts_no_further_request_leaves(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.default = Reply(reports_usage=False)
    stubborn = client(server).with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    with pytest.raises(UnmeteredCall):
        stubborn.invoke(PROMPT, {"callbacks": [CallMeter(calls.append)]})
    assert len(server.requests) == len(calls) == 1


def test_an_unknown_policy_is_refused(calls: list[MeteredCall]) -> None:
    policy: Any = "ignore"
    with pytest.raises(ValueError, match='on_missing_usage must be "raise" or "estimate", got'):
        CallMeter(calls.append, on_missing_usage=policy)


def test_an_error_of_the_receiver_is_not_swallowed(server: BillingServer) -> None:
    def full_disk(call: MeteredCall) -> None:
        raise OSError(f"no room for {call.model}")

    with pytest.raises(OSError, match="no room for stand-in"):
        client(server).invoke(PROMPT, {"callbacks": [CallMeter(full_disk)]})


def test_counts_may_come_from_the_raw_record_alone(calls: list[MeteredCall]) -> None:
    meter, run_id = CallMeter(calls.append), uuid4()
    meter.on_chat_model_start({"name": "Custom"}, [[HumanMessage(PROMPT)]], run_id=run_id)
    usage = {"token_usage": {"prompt_tokens": 7, "completion_tokens": 5}}
    result = ChatResult(generations=[ChatGeneration(message=HumanMessage("x"))])
    response = LLMResult(generations=[list(result.generations)], llm_output=usage)
    meter.on_llm_end(response, run_id=run_id)
    meter.on_llm_end(response, run_id=run_id)
    assert [(call.model, call.usage.input_tokens, call.usage.output_tokens) for call in calls] == [
        ("Custom", 7, 5)
    ]
