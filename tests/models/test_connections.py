"""Connections stay open between calls, and a deadline closes only those of its own call."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from billing_server import BillingServer, Drip, Refusal, Reply
from gateways import Gate, Gateway
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import Runnable
from metered_calls import ask, client

from costada.models.asking import FailureKind, ModelFailure, with_call_key
from costada.models.chat_models import chat_model
from costada.models.providers import RetryPolicy
from costada.models.retries import sleep_between_requests, with_visible_requests

through_gateway = pytest.importorskip("costada.plugins.gateway.client").through_gateway

MESSAGES = [HumanMessage("hi")]
PATIENCE = 60.0


@pytest.fixture
def keeping(server: BillingServer) -> BillingServer:
    """A server that leaves connections open."""
    server.keeps_alive = True
    return server


def served(server: BillingServer) -> Runnable[Any, AIMessage]:
    return chat_model("openai:stand-in", base_url=server.url, retry_wait=0)


MODELS = {
    "ours": served,
    "the user's": lambda server: with_visible_requests(client(server, default_headers={})),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_calls_one_after_the_other_share_a_connection(keeping: BillingServer, model: Any):
    asked = model(keeping)
    for _ in range(20):
        assert isinstance(ask(asked, MESSAGES, {}), AIMessage)
    assert (len(keeping.requests), len(keeping.clients)) == (20, 1)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_more_connections_are_opened_than_calls_are_made_at_once(
    keeping: BillingServer, model: Any
):
    asked = model(keeping)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask(asked, MESSAGES, {}), range(40)))
    assert all(isinstance(answer, AIMessage) for answer in answers)
    assert len(keeping.requests) == 40
    assert len(keeping.clients) <= 8


def test_the_gateway_keeps_its_connection_to_the_provider_open(
    keeping: BillingServer, gateway: Gateway
):
    model = through_gateway(served(keeping), gateway.address)
    for number in range(20):
        keyed = with_call_key(model, f"{gateway.call}/{number}")
        assert isinstance(ask(keyed, MESSAGES, {}), AIMessage)
    assert (len(keeping.requests), len(keeping.clients)) == (20, 1)


def test_a_connection_that_served_before_is_closed_at_the_deadline_of_the_call_that_uses_it(
    keeping: BillingServer,
):
    drip, model = Drip(), served(keeping)
    keeping.script(Reply(), drip)
    assert isinstance(ask(model, MESSAGES, {}), AIMessage)
    failure = ask(model, MESSAGES, {}, RetryPolicy(call_timeout=3))
    assert isinstance(failure, ModelFailure)
    assert failure.kind is FailureKind.TIMEOUT
    assert drip.was_hung_up.wait(PATIENCE)
    assert len(keeping.clients) == 1


def test_a_call_that_is_given_up_leaves_the_connection_to_the_call_that_uses_it_since(
    keeping: BillingServer,
):
    """The first call is waiting between two requests when the second takes its connection."""
    model, gate, is_waiting, woken = (
        served(keeping),
        Gate(),
        threading.Event(),
        threading.Event(),
    )
    keeping.script(Refusal(503), gate)

    async def wait(_: float) -> None:
        is_waiting.set()
        assert await asyncio.to_thread(woken.wait, PATIENCE)

    def first() -> AIMessage | ModelFailure:
        sleep_between_requests.set(wait)
        return ask(model, MESSAGES, {}, RetryPolicy(call_timeout=4))

    with ThreadPoolExecutor(2) as pool:
        given_up = pool.submit(first)
        assert is_waiting.wait(PATIENCE)
        answered = pool.submit(ask, model, MESSAGES, {})
        assert gate.arrived.wait(PATIENCE)
        assert isinstance(given_up.result(PATIENCE), ModelFailure)
        gate.opened.set()
        assert isinstance(answered.result(PATIENCE), AIMessage)
    woken.set()
    assert len(keeping.clients) == 1


def test_each_event_loop_has_connections_of_its_own(keeping: BillingServer):
    model = served(keeping)
    for _ in range(2):
        assert asyncio.run(model.ainvoke("hi")).text == "hello"
    assert len(keeping.clients) == 2


def test_a_machine_that_accepts_no_connection_is_not_waited_for_as_for_an_answer(monkeypatch):
    monkeypatch.setattr("costada.models.langchain_openai.CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        with suppress(TimeoutError):
            while True:  # until the kernel has no room and drops what asks for a connection
                client = waiting.enter_context(socket.socket())
                client.settimeout(1)
                client.connect(full.getsockname())
        model = chat_model(
            "openai:stand-in", base_url=f"http://127.0.0.1:{full.getsockname()[1]}", max_attempts=1
        )
        failure = ask(model, MESSAGES, {}, RetryPolicy(call_timeout=PATIENCE))
    assert isinstance(failure, ModelFailure)
    assert failure.kind is FailureKind.DOWN
