from typing import Any

import pytest
from billing_server import BillingServer
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import (
    ConfigurableField,
    RunnableBranch,
    RunnableLambda,
    RunnableParallel,
)
from langchain_openai import ChatOpenAI
from metered_calls import Point
from pydantic import SecretStr

from costada.models.chat_models import chat_model
from costada.models.langchain_openai import RequestFacts
from costada.models.metering import CallMeter, MeteredCall
from costada.models.runnable_tree import (
    AskedModel,
    asked_models,
    requested_model,
    underlying_models,
)


def openai(name: str) -> ChatOpenAI:
    return ChatOpenAI(model=name, api_key=SecretStr("none"), base_url="http://127.0.0.1:9/v1")


FIRST, SECOND = openai("first"), openai("second")
FIELD = ConfigurableField(id="llm")


@pytest.mark.parametrize(
    "runnable",
    [
        FIRST,
        FIRST.bind(stop=["x"]),
        FIRST.with_retry(),
        FIRST.with_config(tags=["x"]).with_retry().bind(stop=["x"]),
        FIRST.with_structured_output(Point),
        FIRST.with_structured_output(Point, include_raw=True),
        FIRST.bind_tools([Point]),
        RunnableLambda(str) | FIRST,
        RunnableLambda(lambda prompt: FIRST.invoke(prompt)),
    ],
)
def test_a_wrapped_model_is_found(runnable: Any):
    assert underlying_models(runnable) == (FIRST,)


@pytest.mark.parametrize(
    "runnable",
    [
        FIRST.with_fallbacks([SECOND]),
        FIRST.with_retry().with_fallbacks([FIRST, SECOND.with_retry()]).with_retry(),
        RunnableParallel(a=FIRST, b=SECOND),
        RunnableBranch((lambda prompt: not prompt, FIRST), SECOND),
    ],
)
def test_every_model_that_may_answer_is_found_once(runnable: Any):
    assert underlying_models(runnable) == (FIRST, SECOND)


@pytest.mark.parametrize(
    ("runnable", "names"),
    [
        (FIRST.bind(model="x").with_fallbacks([FIRST]).with_retry(), ["x", "first"]),
        (FIRST.with_fallbacks([SECOND]).bind(model="x"), ["x", "x"]),
        (RunnableLambda(str) | FIRST.bind(model="x"), ["x"]),
        ((RunnableLambda(str) | FIRST).bind(model="x"), ["first"]),
        ((FIRST | RunnableLambda(str)).bind(model="x"), ["x"]),
        (RunnableParallel(a=FIRST.bind(model="x"), b=SECOND).bind(model="y"), ["x", "second"]),
        (FIRST.bind(extra_body={"model": "x"}), ["x"]),
        (FIRST.bind(extra_body={"model": "dear/first"}), ["dear/first"]),
        (FIRST.model_copy(update={"model_name": "x-1"}).bind(extra_body={"model": "x"}), ["x"]),
        (FIRST.model_copy(update={"metadata": {"ls_model_name": "second"}}), ["first"]),
        (FIRST.configurable_fields(model_name=FIELD), ["first"]),
        (FIRST.configurable_fields(model_name=FIELD).with_config(configurable={"llm": "x"}), ["x"]),
        (FIRST.configurable_alternatives(FIELD, b=SECOND.bind(model="x")), ["first", "x"]),
    ],
)
def test_a_model_has_the_name_that_its_requests_ask_for(runnable: Any, names: list[str]):
    assert [asked.name for asked in asked_models(runnable)] == names


@pytest.mark.parametrize(
    ("sent", "reported", "name"),
    [
        ("models/gemini-2.5-flash", "gemini-2.5-flash", "gemini-2.5-flash"),
        ("gpt-4o", "gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("gpt-4o", "gpt-4o-mini", "gpt-4o"),
        ("", "scripted", "scripted"),
        ("dear", "", "dear"),
        ("", "", "Class"),
    ],
)
def test_langchains_name_counts_where_it_is_what_is_sent(sent: str, reported: str, name: str):
    facts = RequestFacts({"model": sent}, {"ls_model_name": reported}, {"name": "Class"})
    assert requested_model(facts) == name


def test_an_openai_model_has_the_address_of_its_server():
    asked = AskedModel(FIRST)
    assert (asked.name, asked.provider) == ("first", "openai")
    assert asked.base_url == "http://127.0.0.1:9/v1/"


def test_openai_itself_is_known_by_its_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (model,) = underlying_models(chat_model("openai:gpt-5.4"))
    assert AskedModel(model).base_url == "https://api.openai.com/v1/"


@pytest.mark.parametrize("is_served", [False, True])
def test_the_name_is_the_one_a_meter_reports(server: BillingServer, is_served: bool):
    served = chat_model("openai:glm-5", base_url=server.url)
    runnable = served if is_served else FakeListChatModel(responses=["x"])
    calls: list[MeteredCall] = []
    meter = CallMeter(calls.append, on_missing_usage="estimate")
    runnable.invoke("x", {"callbacks": [meter]})
    (model,) = underlying_models(runnable)
    asked = AskedModel(model)
    assert [(call.request.model, call.request.provider) for call in calls] == [
        (asked.name, asked.provider)
    ]
