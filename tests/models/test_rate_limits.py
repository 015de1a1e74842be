"""Requests wait for their turn at an address that refuses some of them with status 429."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
from billing_server import Answer, BillingServer, Body, Refusal, Reply
from gateways import Gate, until
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import Runnable
from langchain_openai import ChatOpenAI
from metered_calls import ask, client
from needed_plugins import offline_model
from openai import RateLimitError
from pydantic import SecretStr

from costada.models.asking import FailureKind, ModelFailure, with_limited_answers
from costada.models.chat_models import chat_model
from costada.models.event_loop import deadline
from costada.models.metering import CallMeter
from costada.models.providers import RetryPolicy
from costada.models.rate_limits import (
    _LIMITS,
    RateLimit,
    RequestQueue,
    rate_limit,
    with_rate_limits,
)
from costada.models.retries import may_send_again, sleep_between_requests
from costada.models.runnable_tree import OutgoingRequest

pytestmark = pytest.mark.process

MESSAGES = [HumanMessage("hi")]
PATIENCE = 60.0
QUICK = RetryPolicy(call_timeout=PATIENCE, retry_wait=0.01, longest_wait=0.4)
THREADS, CAPACITY = 16, 4


def test_a_forked_process_does_not_wait_for_the_requests_of_its_parent():
    limit = rate_limit(ChatOpenAI(model="forked", api_key=SecretStr("none")))
    first, second = (limit.take(limit.enter()) for _ in range(2))
    assert (first, second) == (1, 2)
    limit.note_refusal(1, None, 0)
    slot = limit.enter()
    assert limit.take(slot) is None
    child = os.fork()
    if not child:
        has_left = limit.allowed == 1 and limit.take(limit.enter()) is not None
        os._exit(0 if has_left else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert limit.take(slot) is None


class Crowded:
    """A provider that refuses what exceeds its capacity, and answers nothing before it has.

    Attributes:
        seen: For each request, how many requests it found, itself included.
    """

    def __init__(self, capacity: int, seconds: float = 0.03) -> None:
        self.capacity, self.seconds = capacity, seconds
        self.seen: list[int] = []
        self._now = 0
        self._lock = threading.Lock()
        self._has_refused = threading.Event()

    def __call__(self, body: Body) -> Answer:
        with self._lock:
            self._now += 1
            self.seen.append(self._now)
            is_refused = self._now > self.capacity
            if is_refused:
                self._now -= 1
        if is_refused:
            self._has_refused.set()
            return Refusal(429, "too many requests")
        assert self._has_refused.wait(PATIENCE)
        sleep(self.seconds)
        with self._lock:
            self._now -= 1
        return Reply()


@pytest.fixture
def server() -> Iterator[BillingServer]:
    """A server whose models have no limit, whatever an earlier one at its port had."""
    _LIMITS.clear()
    with BillingServer() as running:
        yield running


def limited(
    server: BillingServer, policy: RetryPolicy = QUICK, **options: Any
) -> Runnable[Any, AIMessage]:
    """A model that never retries by itself."""
    return with_rate_limits(client(server, default_headers={}, **options), policy)


def limit_of(server: BillingServer, name: str = "stand-in") -> RateLimit:
    return rate_limit(client(server, model=name))


def limit_with(in_flight: int) -> RateLimit:
    """A limit after so many requests have left."""
    limit = RateLimit("gpt")
    assert [limit.take(limit.enter()) for _ in range(in_flight)] == [*range(1, in_flight + 1)]
    return limit


def test_a_refusal_halves_what_is_in_flight_once_for_requests_that_left_together():
    limit = limit_with(in_flight=9)
    assert limit.allowed is None
    for number in range(1, 7):
        assert limit.note_refusal(number, None, 0)
        limit.release()
        assert limit.allowed == 4
    assert limit.take(limit.enter()) is not None
    late = limit.enter()
    assert limit.take(late) is None


def test_a_later_refusal_halves_again_and_never_below_one():
    limit = limit_with(in_flight=5)
    assert limit.note_refusal(1, None, 0)
    assert limit.allowed == 2
    for _ in range(5):
        limit.release()
    for _ in range(3):
        number = limit.take(limit.enter())
        assert number is not None
        assert not limit.note_refusal(number, None, 0)
        limit.release()
        assert limit.allowed == 1


def test_the_number_rises_by_one_after_as_many_answers_until_the_limit_is_lifted(
    caplog: pytest.LogCaptureFixture,
):
    limit = limit_with(in_flight=8)
    with caplog.at_level(logging.WARNING, "costada.rate"):
        limit.note_refusal(1, None, 0)
        allowed = [limit.allowed]
        for answers in (4, 5, 6, 7, 8):
            for _ in range(answers):
                assert limit.allowed == answers
                limit.note_answer()
            allowed.append(limit.allowed)
    assert allowed == [4, 5, 6, 7, 8, None]
    assert caplog.messages == [
        "Rate limit of gpt: at most 4 requests at a time now",
        "Rate limit of gpt: recovered, no limit now",
    ]


def test_a_limit_is_not_lifted_while_it_keeps_requests_waiting():
    """Two are in flight and four wait, so that six are wanted."""
    limit = limit_with(in_flight=2)
    limit.note_refusal(1, None, 0)
    for _ in range(4):
        limit.enter()
    for answers in (1, 2, 3, 4, 5):
        assert limit.allowed == answers
        for _ in range(answers):
            limit.note_answer()
    assert limit.allowed is None


def test_a_number_that_rises_and_falls_is_told_where_it_is_lower_than_before(
    caplog: pytest.LogCaptureFixture,
):
    limit, last = limit_with(in_flight=8), 8
    with caplog.at_level(logging.WARNING, "costada.rate"):
        limit.note_refusal(1, 2.0, 0)
        for _ in range(4):
            limit.note_answer()
        assert limit.allowed == 5
        for _ in range(4):
            limit.release()
        for in_flight in (5, 5, 5):
            limit._paused_until = 0.0
            number = limit.take(limit.enter())
            assert number == (last := last + 1)
            limit.note_refusal(number, None, 0)
            assert limit.allowed == in_flight // 2
            limit.release()
            for answers in (2, 3, 4):
                for _ in range(answers):
                    limit.note_answer()
    assert caplog.messages == [
        "Rate limit of gpt: at most 4 requests at a time now, the next in 2 s",
        "Rate limit of gpt: at most 2 requests at a time now",
    ]


def test_requests_leave_in_the_order_in_which_they_came():
    limit = limit_with(in_flight=4)
    limit.note_refusal(1, None, 0)
    places = [limit.enter() for _ in range(3)]
    assert [limit.take(place) for place in places] == [None, None, None]
    for _ in range(3):
        limit.release()
    assert limit.take(places[1]) is None
    assert limit.take(places[0]) == 5
    limit.leave(places[1])
    limit.release()
    assert limit.take(places[2]) == 6


def test_a_request_far_behind_looks_less_often_whether_it_may_leave():
    limit = RateLimit("gpt")
    places = [limit.enter() for _ in range(200)]
    seconds = [limit.poll_interval(places[index]) for index in (0, 7, 8, 40, 199)]
    assert seconds == pytest.approx([0.05, 0.05, 0.1, 0.3, 0.5])


def check_crowded(provider: Crowded, server: BillingServer, calls: int) -> None:
    """No call was lost, and what followed the first burst found at most half of it."""
    assert len(server.bill) == calls
    refused = [seen for seen in provider.seen if seen > CAPACITY]
    assert refused
    assert max(provider.seen[THREADS:]) <= THREADS // 2
    assert len(refused) < calls / 2


def test_no_call_of_many_threads_is_lost_and_the_server_is_spared(
    server: BillingServer, caplog: pytest.LogCaptureFixture
):
    provider = server.default = Crowded(CAPACITY)
    model = limited(server)
    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(lambda _: ask(model, MESSAGES, {}, QUICK), range(5 * THREADS)))
    assert all(isinstance(answer, AIMessage) for answer in answers)
    check_crowded(provider, server, 5 * THREADS)
    assert f"Rate limit of stand-in at {server.url}: at most " in caplog.text


def test_no_call_of_many_tasks_is_lost(server: BillingServer):
    provider = server.default = Crowded(CAPACITY)
    model = limited(server)

    async def calls() -> list[AIMessage]:
        return await asyncio.gather(*(model.ainvoke("hi") for _ in range(3 * THREADS)))

    assert [answer.text for answer in asyncio.run(calls())] == ["hello"] * 3 * THREADS
    assert len(server.bill) == 3 * THREADS
    assert max(provider.seen[3 * THREADS :]) <= 3 * THREADS // 2


def test_a_server_with_room_again_gets_as_many_requests_as_before(
    server: BillingServer, caplog: pytest.LogCaptureFixture
):
    provider = server.default = Crowded(CAPACITY, seconds=0.01)
    model = limited(server)

    def make_calls(number: int) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            for answer in pool.map(lambda _: ask(model, MESSAGES, {}, QUICK), range(number)):
                assert isinstance(answer, AIMessage)

    make_calls(THREADS)
    assert f"Rate limit of stand-in at {server.url}: at most " in caplog.text
    provider.capacity = THREADS
    make_calls(sum(range(1, THREADS + 1)))
    assert limit_of(server).allowed is None


@contextmanager
def one_in_flight(model: Runnable[Any, AIMessage], server: BillingServer) -> Iterator[Gate]:
    """A request that the server answers at the end of the block, or earlier if told to."""
    gate = Gate()
    server.script(gate)
    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(ask, model, MESSAGES, {}, QUICK)
        assert gate.arrived.wait(PATIENCE)
        try:
            yield gate
        finally:
            gate.opened.set()
            assert isinstance(answered.result(PATIENCE), AIMessage)


def test_no_request_leaves_before_the_time_that_the_provider_names(server: BillingServer):
    model, arrivals = limited(server), list[float]()

    def noted(answer: Answer) -> Callable[[Body], Answer]:
        def arrive(body: Body) -> Answer:
            arrivals.append(monotonic())
            return answer

        return arrive

    server.default = noted(Reply())
    with one_in_flight(model, server) as gate:
        server.script(noted(Refusal(429, headers={"retry-after-ms": "300"})))
        with ThreadPoolExecutor(4) as pool:
            first = pool.submit(ask, model, MESSAGES, {}, QUICK)
            until(lambda: limit_of(server).allowed)  # the refusal has come back
            gate.opened.set()
            others = [pool.submit(ask, model, MESSAGES, {}, QUICK) for _ in range(3)]
            for call in (first, *others):
                assert isinstance(call.result(PATIENCE), AIMessage)
    refused, *later = arrivals
    assert len(later) == 4
    assert min(later) - refused >= 0.3


def test_a_longer_wait_than_allowed_stops_its_run_and_no_other(server: BillingServer):
    model = limited(server)
    with one_in_flight(model, server):
        server.script(Refusal(429, headers={"Retry-After": "3600"}))
        with pytest.raises(ValueError, match="asks to wait 3600 s, longer than longest_wait"):
            ask(model, MESSAGES, {}, QUICK)
    assert isinstance(ask(model, MESSAGES, {}, QUICK), AIMessage)


def test_a_quota_that_is_used_up_is_final_and_no_rate_limit(server: BillingServer):
    model = limited(server)
    with one_in_flight(model, server):
        server.script(Refusal(429, "no credits", code="insufficient_quota"))
        with pytest.raises(ValueError, match="quota of model 'stand-in' is used up"):
            ask(model, MESSAGES, {}, QUICK)
        assert limit_of(server).allowed is None
    assert len(server.requests) == 2


def test_a_single_call_is_retried_as_often_as_ever(
    server: BillingServer, caplog: pytest.LogCaptureFixture
):
    server.default = Refusal(429, "slow down")
    retried = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    failure = ask(with_rate_limits(retried, QUICK), MESSAGES, {}, QUICK)
    assert isinstance(failure, ModelFailure)
    assert (failure.kind, len(server.requests)) == (FailureKind.DOWN, 3)
    assert caplog.messages == []


def test_a_request_that_is_always_refused_ends_with_its_call(server: BillingServer):
    """A prompt may exceed what the provider allows per minute, while others are served."""
    policy = RetryPolicy(call_timeout=60, retry_wait=10)  # the fifth request would be too late
    model, is_over, waits = limited(server, policy), threading.Event(), list[float]()
    limit = limit_of(server)

    def answer(body: Body) -> Answer:
        sleep(0.01)
        if "large" not in str(body):
            return Reply()
        if not waits:
            answers = limit.num_answers
            until(lambda: limit.num_answers > answers)
        return Refusal(429, "too large")

    def others() -> None:
        while not is_over.is_set():
            assert isinstance(ask(model, MESSAGES, {}, QUICK), AIMessage)

    async def pass_quickly(seconds: float) -> None:
        if seconds >= policy.retry_wait:
            waits.append(seconds)
        await asyncio.sleep(0.01)

    def refused() -> AIMessage | ModelFailure:
        sleep_between_requests.set(pass_quickly)
        return ask(model, [HumanMessage("large")], {}, policy)

    server.default = answer
    with ThreadPoolExecutor(3) as pool:
        served = [pool.submit(others) for _ in range(2)]
        try:
            until(lambda: server.bill)
            failure = pool.submit(refused).result(PATIENCE)
            billed = len(server.bill)
            until(lambda: len(server.bill) > billed + 3)
        finally:
            is_over.set()
        for each in served:
            each.result(PATIENCE)
    assert isinstance(failure, ModelFailure)
    assert failure.kind is FailureKind.DOWN
    assert [round(wait / 10 / 1.1) for wait in waits] == [1, 2, 4]
    assert len(server.requests) - len(server.bill) == 4


def reduced_to_one(server: BillingServer) -> None:
    """Let one request at a time leave, and none of them be lifted by the next answers."""
    limit = limit_of(server)
    for _ in range(3):
        assert limit.take(limit.enter())
    limit.note_refusal(1, None, 0)
    for _ in range(3):
        limit.release()


def test_the_last_answer_of_a_model_lets_a_refused_call_ask_once_more_and_not_until_its_deadline():
    queue, asked = RequestQueue(RateLimit("exhausted"), QUICK), []

    async def answered() -> None:
        """Another request of the model, the last that it serves."""

    async def refused() -> None:
        asked.append(len(asked))
        if len(asked) == 1:
            await queue.send(answered)
        response = httpx.Response(429, request=httpx.Request("POST", "http://exhausted"))
        raise RateLimitError("refused", response=response, body=None)

    with pytest.raises(RateLimitError):
        asyncio.run(asyncio.wait_for(queue.send(refused), PATIENCE))
    assert asked == [0, 1]


def test_what_waits_for_its_turn_is_not_begun_and_its_deadline_does_not_come_nearer(
    server: BillingServer,
):
    reduced_to_one(server)
    policy = RetryPolicy(call_timeout=3, retry_wait=0.01)
    model, begun = limited(server, policy), list[OutgoingRequest]()
    meter = CallMeter(lambda call: None, on_start=begun.append)

    def call() -> AIMessage | ModelFailure:
        with meter:
            return ask(model, MESSAGES, {"callbacks": [meter]}, policy)

    with one_in_flight(model, server) as gate, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call)
        sleep(3.3)
        assert (begun, waiting.done(), len(server.requests)) == ([], False, 1)
        gate.opened.set()
        assert isinstance(waiting.result(PATIENCE), AIMessage)
    assert [request.number for request in begun] == [1]


def test_a_call_that_waits_can_be_interrupted_and_loses_its_place(server: BillingServer):
    reduced_to_one(server)
    model = limited(server)

    def interrupted() -> AIMessage | ModelFailure:
        async def stop(seconds: float) -> None:
            raise InterruptedError("asked to stop")

        sleep_between_requests.set(stop)
        return ask(model, MESSAGES, {}, QUICK)

    with one_in_flight(model, server), ThreadPoolExecutor(1) as pool:
        call = pool.submit(interrupted)
        assert isinstance(call.exception(PATIENCE), InterruptedError)
    assert isinstance(ask(model, MESSAGES, {}, QUICK), AIMessage)


def test_a_call_that_is_given_up_gives_its_turn_back_although_its_request_never_ends(
    server: BillingServer,
):
    reduced_to_one(server)
    model, gate = limited(server), Gate()
    server.script(gate)
    failure = ask(model, MESSAGES, {}, RetryPolicy(call_timeout=3))
    assert isinstance(failure, ModelFailure)
    assert failure.kind is FailureKind.TIMEOUT
    assert isinstance(ask(model, MESSAGES, {}, QUICK), AIMessage)
    gate.opened.set()


def test_a_task_that_outlives_its_call_and_then_gets_a_slot_gives_it_back():
    """A runnable of a user may race two requests and leave the slower one behind."""
    queue, answer = RequestQueue(limit_with(1)), "late"
    queue.limit.note_refusal(1, None, 0)
    sleep_between_requests.set(lambda seconds: asyncio.sleep(0))

    async def request() -> str:
        return answer

    async def outlive() -> str:
        async with deadline(PATIENCE):
            left_behind = asyncio.create_task(queue.send(request))
            await asyncio.sleep(0)
        queue.limit.release()
        return await asyncio.wait_for(left_behind, PATIENCE)

    assert asyncio.run(outlive()) == answer
    assert queue.limit.take(queue.limit.enter()) is not None


def test_an_answer_is_limited_when_its_request_leaves(server: BillingServer):
    """A hard budget limits it to what is left then, not to what was left before the wait."""
    reduced_to_one(server)
    model, asked = limited(server), threading.Event()

    def limit(request: OutgoingRequest) -> int:
        asked.set()
        return 7

    with one_in_flight(model, server) as gate, ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, with_limited_answers(model, limit), MESSAGES, {}, QUICK)
        assert not asked.wait(0.2)
        gate.opened.set()
        assert isinstance(call.result(PATIENCE), AIMessage)
    assert server.requests[-1]["max_completion_tokens"] == 7


@pytest.mark.parametrize("bound", [{}, {"model": "other"}])
def test_a_model_that_is_refused_slows_no_other_down_at_its_address(
    server: BillingServer, bound: dict[str, str]
):
    """The other one is asked by its constructor's name, or by one that is bound."""
    reduced_to_one(server)
    other = limited(server).bind(model="other") if bound else limited(server, model="other")
    gates = [Gate() for _ in range(3)]
    with one_in_flight(limited(server), server), ThreadPoolExecutor(3) as pool:
        server.script(*gates)
        calls = [pool.submit(ask, other, MESSAGES, {}, QUICK) for _ in gates]
        for gate in gates:
            assert gate.arrived.wait(PATIENCE)
        for gate in gates:
            gate.opened.set()
        assert all(isinstance(call.result(PATIENCE), AIMessage) for call in calls)
    assert limit_of(server).allowed is not None
    assert limit_of(server, "other").allowed is None


def test_a_request_is_not_repeated_where_its_call_may_send_nothing_again(server: BillingServer):
    def ask_once() -> AIMessage | ModelFailure:
        may_send_again.set(lambda: False)
        return ask(limited(server), MESSAGES, {}, QUICK)

    with one_in_flight(limited(server), server), ThreadPoolExecutor(1) as pool:
        server.script(Refusal(429, "slow down"))
        assert isinstance(pool.submit(ask_once).result(PATIENCE), ModelFailure)
    assert len(server.requests) == 2


def test_calls_of_one_model_share_its_limit_and_the_offline_model_has_none(server: BillingServer):
    assert rate_limit(client(server)) is rate_limit(client(server, max_tokens=7))
    assert rate_limit(client(server)) is not rate_limit(client(server, model="other"))
    offline = offline_model()
    assert with_rate_limits(offline) is offline
