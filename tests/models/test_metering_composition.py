import asyncio

import pytest
from billing_server import BillingServer, Refusal, Reply
from bills import as_billed
from langchain_core.runnables import RunnableConfig

from costada.models.chat_models import chat_model
from costada.models.errors import UnmeteredCall
from costada.models.metering import CallMeter, MeteredCall

PROMPT = "twelve bytes"


def metered(calls: list[MeteredCall]) -> RunnableConfig:
    return {"callbacks": [CallMeter(calls.append)]}


def test_each_attempt_of_a_retry_is_reported(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Refusal(429), Refusal(500), Reply("at last", 70, 20))
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    assert model.invoke(PROMPT, metered(calls)).text == "at last"
    assert [call.error is None for call in calls] == [False, False, True]
    assert as_billed(calls) == server.bill


def test_each_attempt_of_an_asynchronous_retry_is_reported(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Refusal(503), Reply("at last", 70, 20))
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    assert asyncio.run(model.ainvoke(PROMPT, metered(calls))).text == "at last"
    assert len(calls) == 2
    assert as_billed(calls) == server.bill


def test_a_fallback_is_reported_under_its_own_name(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Refusal(404), Reply("from the second", 70, 20))
    first = chat_model("openai:first", base_url=server.url)
    second = chat_model("openai:second", base_url=server.url)
    answer = first.with_fallbacks([second]).invoke(PROMPT, metered(calls))
    assert answer.text == "from the second"
    assert [call.model for call in calls] == ["first", "second"]
    assert as_billed(calls) == server.bill


def test_a_fallback_does_not_hide_an_answer_without_counts(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Reply(reports_usage=False))
    first = chat_model("openai:first", base_url=server.url)
    second = chat_model("openai:second", base_url=server.url)
    with pytest.raises(UnmeteredCall, match="'first'"):
        first.with_fallbacks([second]).invoke(PROMPT, metered(calls))
    assert len(server.requests) == 1


def test_a_name_bound_at_call_time_is_the_one_reported(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    model = chat_model("openai:first", base_url=server.url)
    model.bind(model="other").invoke(PROMPT, metered(calls))
    assert as_billed(calls) == server.bill
    assert calls[0].model == "other"
