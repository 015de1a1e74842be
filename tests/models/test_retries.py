"""When a request is sent again, after which wait, and when a call is given up."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic
from typing import Any

import pytest
from billing_server import BillingServer, Drip, Refusal, Reply, Silence
from fakes import ScriptedModel, hashed_answer, toy_problem
from gateways import PATIENCE, Gateway
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_openai import ChatOpenAI
from metered_calls import Point, as_billed, ask, client
from needed_plugins import offline_model
from pydantic import SecretStr

from costada.graph.build import compile_search
from costada.models.asking import FailureKind, ModelFailure, with_call_key
from costada.models.chat_models import chat_model
from costada.models.errors import UnmeteredCall
from costada.models.event_loop import deadline, run
from costada.models.metering import CallMeter, MeteredCall
from costada.models.providers import RetryPolicy
from costada.models.retries import (
    JITTER,
    growing_wait,
    hidden_retries,
    sleep_between_requests,
    with_retries,
    with_visible_requests,
)
from costada.models.runnable_tree import (
    AskedModel,
    OutgoingRequest,
    returns_raw_answers,
    underlying_models,
)
from costada.nodes.settings import Settings
from costada.values.usage import Price

through_gateway = pytest.importorskip("costada.plugins.gateway.client").through_gateway

MESSAGES = [HumanMessage("hi")]
KEY = SecretStr("none")


def served(server: BillingServer, **options: Any) -> Runnable[Any, AIMessage]:
    return chat_model("openai:stand-in", base_url=server.url, **{"retry_wait": 0, **options})


def of_the_users(server: BillingServer, **options: Any) -> ChatOpenAI:
    return client(server, **{"stream_usage": None, **options})


@contextmanager
def waits_noted() -> Iterator[list[float]]:
    """Spend no time between two requests, and note how much it should have been."""
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    before = sleep_between_requests.set(note)
    try:
        yield waits
    finally:
        sleep_between_requests.reset(before)


def test_waits_double_up_to_the_longest_with_jitter_on_top():
    for number, least in [(1, 4.0), (2, 8.0), (3, 16.0), (4, 30.0), (2000, 30.0)]:
        drawn = {growing_wait(4.0, 30.0, number) for _ in range(50)}
        assert least <= min(drawn) < max(drawn) <= least * (1 + JITTER)


def test_requests_are_repeated_after_growing_waits(server: BillingServer):
    server.script(*[Refusal(503)] * 3)
    with waits_noted() as waits:
        served(server, retry_wait=4, max_attempts=4).invoke("hi")
    assert [round(wait / 4 / (1 + JITTER / 2)) for wait in waits] == [1, 2, 4]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    "headers",
    [{"Retry-After": "20"}, {"retry-after-ms": "20000"}, None],
    ids=["seconds", "milliseconds", "a date"],
)
def test_the_wait_that_a_provider_asks_for_is_kept_with_jitter_on_top(
    server: BillingServer, status: int, headers: dict[str, str] | None
):
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20)
    date = {"Retry-After": format_datetime(moment, usegmt=True)}
    server.script(Refusal(status, headers=headers or date))
    with waits_noted() as waits:
        assert served(server, longest_wait=30).invoke("hi").text == "hello"
    (wait,) = waits
    left = (moment - datetime.now(UTC)).total_seconds()
    assert (20 if headers else left) <= wait <= 20 * (1 + JITTER)
    assert len(server.requests) == 2


def test_a_longer_wait_than_allowed_is_refused_with_the_time_to_resume(server: BillingServer):
    server.default = Refusal(429, "come back later", headers={"Retry-After": "3600"})
    with waits_noted() as waits, pytest.raises(ValueError, match="asks to wait 3600 s") as caught:
        ask(served(server), MESSAGES, {})
    assert (waits, len(server.requests)) == ([], 1)
    assert "longer than longest_wait (300 s); resume after" in str(caught.value)
    value = str(caught.value).partition("resume after ")[2].partition(" (")[0]
    left = datetime.fromisoformat(value) - datetime.now(UTC)
    assert timedelta(seconds=3500) < left <= timedelta(seconds=3601)


@pytest.mark.parametrize("value", ["1e300", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_an_absurd_wait_counts_as_a_year(server: BillingServer, value: str):
    server.default = Refusal(429, headers={"Retry-After": value})
    with pytest.raises(ValueError, match="asks to wait 31622400 s"):
        ask(served(server), MESSAGES, {})


@pytest.mark.parametrize("value", ["soon", "-5", "nan", ""])
def test_a_wait_that_cannot_be_read_is_none(server: BillingServer, value: str):
    server.script(Refusal(429, headers={"Retry-After": value}))
    with waits_noted() as waits:
        assert served(server).invoke("hi").text == "hello"
    assert waits == [0]


def test_another_model_may_answer_in_place_of_one_that_asks_for_a_long_wait(server: BillingServer):
    server.script(Refusal(429, headers={"Retry-After": "3600"}))
    answer = ask(served(server).with_fallbacks([served(server)]), MESSAGES, {})
    assert isinstance(answer, AIMessage)
    assert len(server.requests) == 2


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(429, "You have no credits", code="insufficient_quota"),
        Refusal(429, "Your account is not active", code="billing_not_active"),
        Refusal(400, "Your credit balance is too low to access the API"),
    ],
    ids=str,
)
def test_a_quota_that_is_used_up_is_final(
    server: BillingServer, refusal: Refusal, is_streamed: bool
):
    server.default = refusal
    model = served(server)
    if is_streamed:
        model = with_retries(of_the_users(server, streaming=True), 3, 0)
    with pytest.raises(ValueError, match="quota of model 'stand-in' is used up: add credit"):
        ask(model, MESSAGES, {})
    assert len(server.requests) == 1


def test_a_limit_per_minute_in_the_words_of_a_used_up_quota_is_waited_for(server: BillingServer):
    """Gemini says the same of both; only `insufficient_quota` tells a used-up account."""
    server.script(Refusal(429, "You exceeded your current quota. Please retry in 34s."))
    assert isinstance(ask(served(server), MESSAGES, {}), AIMessage)
    assert len(server.requests) == 2


def through(gateway: Gateway, model: Runnable[Any, AIMessage]) -> Runnable[Any, AIMessage]:
    return with_call_key(through_gateway(model, gateway.address), gateway.call)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("way", ["ours", "the user's", "gateway"])
def test_a_body_that_drips_is_given_up_at_the_deadline_and_its_connection_closed(
    server: BillingServer, gateway: Gateway, way: str, is_streamed: bool
):
    drip = Drip()
    server.default = drip
    model: Any = of_the_users(server) if way == "the user's" else served(server)
    if is_streamed:
        bare = model if way == "the user's" else model.bound
        model = bare.model_copy(update={"streaming": True})
    if way == "gateway":
        model = through(gateway, model)
    for seconds in (0.3, 3, 12):
        calls: list[MeteredCall] = []
        began = monotonic()
        with CallMeter(calls.append) as meter:
            policy = RetryPolicy(call_timeout=seconds)
            failure = ask(model, MESSAGES, {"callbacks": [meter]}, policy)
        assert seconds <= monotonic() - began < 60
        assert isinstance(failure, ModelFailure)
        assert failure.kind is FailureKind.TIMEOUT
        if server.requests:  # otherwise the machine was too slow to send it in time
            break
    assert len(server.requests) == 1
    assert [(call.may_be_billed, call.error is None) for call in calls] == [(True, False)]
    if way != "gateway":
        assert drip.was_hung_up.wait(PATIENCE)


class Stuck(BaseChatModel):
    """Fails with a transient error when asked to."""

    go: threading.Event
    ended: threading.Event

    @property
    def _llm_type(self) -> str:
        return "stuck"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        assert self.go.wait(PATIENCE)
        try:
            raise ConnectionError("late")
        finally:
            self.ended.set()


def test_no_request_of_a_call_that_was_given_up_leaves_any_more():
    sent: list[OutgoingRequest] = []
    model = Stuck(go=threading.Event(), ended=threading.Event())
    meter = CallMeter(lambda call: None, on_start=sent.append)
    with meter:
        failure = ask(
            with_retries(model, 9, 0), MESSAGES, {"callbacks": [meter]}, RetryPolicy(call_timeout=3)
        )
    assert isinstance(failure, ModelFailure)
    model.go.set()
    assert model.ended.wait(PATIENCE)
    assert len(sent) == 1


def test_retries_end_where_a_wait_would_pass_the_deadline(server: BillingServer):
    server.default = Refusal(503, "busy")
    with waits_noted() as waits:
        failure = ask(served(server, retry_wait=80), MESSAGES, {}, RetryPolicy(call_timeout=60))
    assert isinstance(failure, ModelFailure)
    assert (failure.kind, waits, len(server.requests)) == (FailureKind.DOWN, [], 1)


def test_no_fallback_is_asked_after_the_deadline(server: BillingServer):
    server.default = Silence()
    model = served(server, timeout=60).with_fallbacks([served(server)])
    with CallMeter(lambda call: None) as meter:
        failure = ask(model, MESSAGES, {"callbacks": [meter]}, RetryPolicy(call_timeout=3))
    assert isinstance(failure, ModelFailure)
    assert failure.kind is FailureKind.TIMEOUT
    assert len(server.requests) == 1


@pytest.mark.parametrize("error", [KeyError("bug"), TimeoutError("own"), KeyboardInterrupt()])
def test_work_within_a_deadline_raises_what_it_raises(error: BaseException):
    async def work() -> None:
        async with deadline(5):
            raise error

    with pytest.raises(type(error)) as caught:
        run(work())
    assert caught.value is error
    assert run(asyncio.sleep(0, "the loop still runs")) == "the loop still runs"


def test_an_answer_in_time_is_returned(server: BillingServer):
    server.default = Reply("yes")
    answer = ask(served(server), MESSAGES, {}, RetryPolicy(call_timeout=20))
    assert isinstance(answer, AIMessage)


class Stubborn(ScriptedModel):
    """Retries in a way that cannot be seen or changed."""

    max_retries: int = 6


def retrying(server: BillingServer, **options: Any) -> ChatOpenAI:
    """A client that hides retries and does not ask for the counts of a stream."""
    return of_the_users(server, **{"max_retries": None, **options})


def retries(runnable: Runnable[Any, Any]) -> list[int]:
    return [hidden_retries(model) for model in underlying_models(runnable)]


WRAPPED: dict[str, Any] = {
    "bare": lambda model: model,
    "bound": lambda model: model.bind(stop=["x"]),
    "with tools": lambda model: model.bind_tools([Point]),
    "structured": lambda model: model.with_structured_output(Point),
    "configured": lambda model: model.with_config(tags=["x"]),
    "retried": lambda model: model.with_retry(),
    "with fallbacks": lambda model: model.with_fallbacks([model.bind(stop=["x"])]),
    "in a sequence": lambda model: RunnableLambda(list) | model | RunnableLambda(str),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_no_client_retries_and_the_given_one_still_does(server: BillingServer, wrapped: str):
    model = retrying(server)
    given = WRAPPED[wrapped](model)
    changed = with_visible_requests(given)
    assert set(retries(changed)) == {0}
    assert set(retries(given)) == {2}
    assert (model.max_retries, model.root_client.max_retries) == (None, 2)


def test_as_many_requests_are_sent_as_the_client_would_have_sent(server: BillingServer):
    server.default = Refusal(503)
    with pytest.raises(Exception, match="refused"):
        with_visible_requests(retrying(server, max_retries=4), RetryPolicy(retry_wait=1e-9)).invoke(
            "hi"
        )
    assert len(server.requests) == 5


def test_the_copy_is_the_same_model(server: BillingServer):
    model = retrying(server, default_query={"a": "b"}, temperature=0.3, timeout=7.0)
    (copy,) = underlying_models(with_visible_requests(model))
    assert isinstance(copy, ChatOpenAI)
    before, after = AskedModel(model), AskedModel(copy)
    assert (after.name, after.provider) == (before.name, before.provider)
    assert after.base_url == before.base_url
    assert (copy.temperature, copy.root_client.timeout) == (0.3, 7.0)
    assert copy.root_client.default_query == {"a": "b"}
    assert returns_raw_answers(with_visible_requests(model))


def test_what_hides_nothing_is_returned_as_it_is(server: BillingServer):
    unchanged = (
        offline_model(),
        with_visible_requests(chat_model("openai:stand-in", base_url=server.url)),
        with_visible_requests(retrying(server, max_retries=3).with_retry()),
    )
    assert [with_visible_requests(model) is model for model in unchanged] == [True, True, True]


@pytest.mark.parametrize("in_a_function", [False, True])
def test_a_model_that_cannot_be_kept_from_retrying_is_refused(
    server: BillingServer, in_a_function: bool
):
    inner, stubborn = retrying(server), Stubborn(answer=hashed_answer)
    given = RunnableLambda(lambda prompt: inner.invoke(prompt)) if in_a_function else stubborn
    name = "stand-in" if in_a_function else "scripted"
    with pytest.raises(ValueError, match=f"'{name}' sends a failed request again .* max_retries=0"):
        with_visible_requests(given)


@pytest.mark.parametrize(
    ("address", "is_whole"),
    [("https://openrouter.ai/api/v1", True), ("https://api.openai.com/v1", False)],
)
def test_answers_arrive_in_one_piece_where_a_stream_would_lose_their_cost(
    address: str, is_whole: bool
):
    model = ChatOpenAI(model="x", base_url=address, api_key=KEY, max_retries=0)
    (copy,) = underlying_models(with_visible_requests(model))
    assert (copy.disable_streaming, model.disable_streaming) == (is_whole, False)


@pytest.mark.parametrize("wrapped", ["bare", "bound", "retried", "with fallbacks"])
@pytest.mark.parametrize("max_retries", [0, 2])
def test_streams_report_their_counts_at_any_address(
    server: BillingServer, calls: list[MeteredCall], wrapped: str, max_retries: int
):
    server.script(Reply("one two", 70, 20, cached_tokens=30))
    given = retrying(server, max_retries=max_retries)
    model = with_visible_requests(WRAPPED[wrapped](given))
    assert list(model.stream("hi", {"callbacks": [CallMeter(calls.append)]}))
    assert as_billed(calls) == server.bill
    assert given.stream_usage is None


def test_a_server_whose_streams_report_no_counts_is_refused(
    server: BillingServer, calls: list[MeteredCall]
):
    server.script(Reply("one two", reports_usage=False))
    model = with_visible_requests(retrying(server))
    with pytest.raises(UnmeteredCall, match="answered without token counts"):
        list(model.stream("hi", {"callbacks": [CallMeter(calls.append)]}))
    assert server.requests[0]["stream_options"] == {"include_usage": True}


def test_a_graph_shows_all_requests_of_its_models(server: BillingServer):
    settings = Settings(price=Price(1, 2))
    compile_search(toy_problem(), retrying(server), budget=1.0, settings=settings)
    with pytest.raises(ValueError, match="sends a failed request again by itself"):
        compile_search(toy_problem(), Stubborn(answer=hashed_answer), budget=1.0, settings=settings)
