"""When a request is sent again, after which wait, and when a call is given up."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic
from typing import Any

import pytest
from billing_server import BillingServer, Drip, Refusal, Reply, Silence
from gateways import Gateway
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from costada.models.asking import FailureKind, ModelFailure, ask
from costada.models.chat_models import chat_model
from costada.models.deadline import run_with_deadline
from costada.models.gateway.client import through_gateway, with_call_key
from costada.models.metering import CallMeter, MeteredCall
from costada.models.requests import OutgoingRequest
from costada.models.retries import JITTER, growing_wait, sleep_between_requests, with_retries
from costada.models.retry_policy import RetryPolicy

MESSAGES = [HumanMessage("hi")]
QUICK = RetryPolicy(call_timeout=0.3)


def served(server: BillingServer, **options: Any) -> Runnable[Any, AIMessage]:
    return chat_model("openai:stand-in", base_url=server.url, **{"retry_wait": 0, **options})


def of_the_users(server: BillingServer) -> ChatOpenAI:
    key = SecretStr("none")
    return ChatOpenAI(model="stand-in", base_url=server.url, api_key=key, max_retries=0)


@contextmanager
def waits_noted() -> Iterator[list[float]]:
    """Spend no time between two requests, and note how much it should have been."""
    waits: list[float] = []
    before = sleep_between_requests.set(waits.append)
    try:
        yield waits
    finally:
        sleep_between_requests.reset(before)


def test_waits_double_up_to_the_longest_with_jitter_on_top() -> None:
    for number, least in [(1, 4.0), (2, 8.0), (3, 16.0), (4, 30.0), (2000, 30.0)]:
        drawn = {growing_wait(4.0, 30.0, number) for _ in range(50)}
        assert least <= min(drawn) < max(drawn) <= least * (1 + JITTER)


def test_requests_are_repeated_after_growing_waits(server: BillingServer) -> None:
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
) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=21), usegmt=True)
    server.script(Refusal(status, headers=headers or {"Retry-After": moment}))
    with waits_noted() as waits:
        assert served(server, longest_wait=30).invoke("hi").text == "hello"
    (wait,) = waits
    assert 19 < wait <= 21 * (1 + JITTER)
    assert len(server.requests) == 2


def test_a_longer_wait_than_allowed_is_told_with_the_time_to_go_on(server: BillingServer) -> None:
    server.default = Refusal(429, "come back later", headers={"Retry-After": "3600"})
    with waits_noted() as waits, pytest.raises(ValueError, match="asks to wait 3600 s") as caught:
        ask(served(server), MESSAGES, {})
    assert (waits, len(server.requests)) == ([], 1)
    assert "longer than longest_wait (300 s); resume after" in str(caught.value)
    told = str(caught.value).partition("resume after ")[2].partition(" (")[0]
    left = datetime.fromisoformat(told) - datetime.now(UTC)
    assert timedelta(seconds=3500) < left <= timedelta(seconds=3601)


@pytest.mark.parametrize("told", ["1e300", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_an_absurd_wait_is_told_as_a_year(server: BillingServer, told: str) -> None:
    server.default = Refusal(429, headers={"Retry-After": told})
    with pytest.raises(ValueError, match="asks to wait 31622400 s"):
        ask(served(server), MESSAGES, {})


@pytest.mark.parametrize("told", ["soon", "-5", "nan", ""])
def test_a_wait_that_cannot_be_read_is_none(server: BillingServer, told: str) -> None:
    server.script(Refusal(429, headers={"Retry-After": told}))
    with waits_noted() as waits:
        assert served(server).invoke("hi").text == "hello"
    assert waits == [0]


def test_another_model_may_answer_in_place_of_one_that_asks_for_a_long_wait(
    server: BillingServer,
) -> None:
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
) -> None:
    server.default = refusal
    model = served(server)
    if is_streamed:
        model = with_retries(
            ChatOpenAI(
                model="stand-in",
                base_url=server.url,
                api_key=SecretStr("none"),
                max_retries=0,
                streaming=True,
            ),
            3,
            0,
        )
    with pytest.raises(ValueError, match="quota of model 'stand-in' is used up: add credit"):
        ask(model, MESSAGES, {})
    assert len(server.requests) == 1


def test_a_limit_per_minute_in_the_words_of_a_used_up_quota_is_waited_for(
    server: BillingServer,
) -> None:
    """Gemini says the same of both; only `insufficient_quota` tells a used-up account."""
    server.script(Refusal(429, "You exceeded your current quota. Please retry in 34s."))
    assert isinstance(ask(served(server), MESSAGES, {}), AIMessage)
    assert len(server.requests) == 2


def through(gateway: Gateway, model: Runnable[Any, AIMessage]) -> Runnable[Any, AIMessage]:
    return with_call_key(through_gateway(model, gateway.door), gateway.call)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("way", ["ours", "the user's", "gateway"])
def test_a_body_that_drips_is_given_up_at_the_deadline_and_its_connection_closed(
    server: BillingServer, gateway: Gateway, way: str, is_streamed: bool
) -> None:
    drip = Drip()
    server.default = drip
    model: Any = of_the_users(server) if way == "the user's" else served(server)
    if is_streamed:
        bare = model if way == "the user's" else model.bound
        model = bare.model_copy(update={"streaming": True})
    if way == "gateway":
        model = through(gateway, model)
    calls: list[MeteredCall] = []
    began = monotonic()
    with CallMeter(calls.append) as meter:
        failure = ask(model, MESSAGES, {"callbacks": [meter]}, QUICK)
    assert 0.3 <= monotonic() - began < 2
    assert isinstance(failure, ModelFailure)
    assert failure.kind is FailureKind.TIMEOUT
    assert len(server.requests) == 1
    assert [(call.may_be_billed, call.error is None) for call in calls] == [(True, False)]
    if way == "ours":
        assert drip.was_hung_up.wait(5)


class Stuck(BaseChatModel):
    """Fails with a passing error once it is told to."""

    go: threading.Event
    ended: threading.Event

    @property
    def _llm_type(self) -> str:
        return "stuck"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.go.wait(10)
        try:
            raise ConnectionError("late")
        finally:
            self.ended.set()


def test_no_request_of_a_call_that_was_given_up_leaves_any_more() -> None:
    sent: list[OutgoingRequest] = []
    others = set(threading.enumerate())
    model = Stuck(go=threading.Event(), ended=threading.Event())
    meter = CallMeter(lambda call: None, on_start=sent.append)
    with meter:
        failure = ask(with_retries(model, 9, 0), MESSAGES, {"callbacks": [meter]}, QUICK)
    assert isinstance(failure, ModelFailure)
    model.go.set()
    assert model.ended.wait(10)
    for thread in set(threading.enumerate()) - others:
        thread.join(10)
    assert len(sent) == 1


def test_retries_end_where_a_wait_would_pass_the_deadline(server: BillingServer) -> None:
    server.default = Refusal(503, "busy")
    with waits_noted() as waits:
        failure = ask(served(server, retry_wait=4), MESSAGES, {}, RetryPolicy(call_timeout=3))
    assert isinstance(failure, ModelFailure)
    assert (failure.kind, waits, len(server.requests)) == (FailureKind.DOWN, [], 1)


def test_no_fallback_is_asked_after_the_deadline(server: BillingServer) -> None:
    server.default = Silence()
    model = served(server, timeout=60).with_fallbacks([served(server)])
    others = set(threading.enumerate())
    with CallMeter(lambda call: None) as meter:
        failure = ask(model, MESSAGES, {"callbacks": [meter]}, QUICK)
    assert isinstance(failure, ModelFailure)
    assert failure.kind is FailureKind.TIMEOUT
    for thread in set(threading.enumerate()) - others:
        if thread.name == "costada-call":
            thread.join(10)
            assert not thread.is_alive()
    assert len(server.requests) == 1


@pytest.mark.parametrize("error", [KeyError("bug"), TimeoutError("own"), KeyboardInterrupt()])
def test_work_within_a_deadline_raises_what_it_raises(error: BaseException) -> None:
    def work() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        run_with_deadline(5, work)
    assert caught.value is error


@pytest.mark.parametrize("field", ["call_timeout", "retry_wait", "longest_wait", "longest_pause"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12])
def test_a_time_that_is_none_is_refused_by_name(field: str, seconds: float) -> None:
    build: Callable[..., RetryPolicy] = RetryPolicy
    with pytest.raises(ValueError, match=f"{field}: got {seconds}, expected seconds > 0"):
        build(**{field: seconds})


def test_an_answer_in_time_is_returned(server: BillingServer) -> None:
    server.default = Reply("yes")
    answer = ask(served(server), MESSAGES, {}, RetryPolicy(call_timeout=20))
    assert isinstance(answer, AIMessage)
