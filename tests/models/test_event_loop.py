"""One event loop makes the paid calls of a process; callers wait for it and can interrupt it."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial

import pytest
from billing_server import BillingServer
from gateways import Gate, until
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from metered_calls import ask, client

from costada.models.chat_models import chat_model
from costada.models.event_loop import (
    MAX_THREADS,
    PaidLoop,
    ThreadPool,
    close_with_loop,
    paid_loop,
    run,
)
from costada.models.retries import with_visible_requests

MESSAGES = [HumanMessage("hi")]
PATIENCE = 60.0


def test_a_coroutine_sees_the_context_of_its_caller_and_leaves_it_unchanged():
    name = ContextVar("name", default="nobody")

    async def seen():
        before = name.get()
        name.set("another")
        return before, threading.current_thread().name

    name.set("caller")
    assert run(seen()) == ("caller", "costada-calls")
    assert name.get() == "caller"


def test_a_caller_that_is_interrupted_waits_until_its_coroutine_has_ended():
    ended = []

    async def work():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(PATIENCE)
        finally:
            await asyncio.sleep(0.05)
            ended.append("work")

    with pytest.raises(KeyboardInterrupt):
        run(work())
    assert ended == ["work"]


def test_a_coroutine_of_the_loop_is_told_to_await_a_model():
    async def work():
        return run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="in the event loop of paid calls, expected `ainvoke`"):
        run(work())


def test_functions_that_ask_do_not_wait_for_each_other_though_they_fill_the_pool(
    server: BillingServer,
):
    inner = chat_model("openai:stand-in", base_url=server.url)
    all_in = threading.Barrier(MAX_THREADS)

    def ask_inside(prompt):
        all_in.wait(PATIENCE)
        return inner.invoke(prompt)

    async def calls():
        model = RunnableLambda(ask_inside)
        return await asyncio.gather(*(model.ainvoke("hi") for _ in range(MAX_THREADS)))

    assert {answer.text for answer in run(calls())} == {"hello"}


def test_no_more_threads_are_started_than_work_is_pending_and_never_too_many(monkeypatch):
    monkeypatch.setattr("costada.models.event_loop.MAX_THREADS", 3)
    pool, names, go = ThreadPool(), set(), threading.Event()

    def work():
        names.add(threading.get_ident())
        assert go.wait(PATIENCE)

    go.set()
    for _ in range(5):
        pool.submit(work).result(PATIENCE)
    assert len(names) <= 2  # the first thread may not be waiting again yet
    go.clear()
    futures = [pool.submit(work) for _ in range(9)]
    until(lambda: len(names) == 3)
    go.set()
    for future in futures:
        future.result(PATIENCE)
    assert len(names) == 3


def test_work_that_comes_one_after_the_other_needs_one_thread():
    pool = ThreadPool()
    assert len({pool.submit(threading.get_ident).result() for _ in range(200)}) == 1


def test_calls_in_flight_take_no_thread_each(server: BillingServer):
    gates = [Gate() for _ in range(20)]
    server.script(*gates)
    model = chat_model("openai:stand-in", base_url=server.url)

    async def calls():
        return await asyncio.gather(*(model.ainvoke("hi") for _ in gates))

    with ThreadPoolExecutor(1) as caller:
        answers = caller.submit(run, calls())
        until(lambda: all(gate.arrived.is_set() for gate in gates))
        ours = [each.name for each in threading.enumerate() if each.name == "costada-calls"]
        for gate in gates:
            gate.opened.set()
        assert len(answers.result(PATIENCE)) == 20
    assert ours == ["costada-calls"]


@pytest.mark.process
def test_a_forked_process_makes_its_calls_in_a_loop_of_its_own(server: BillingServer):
    server.keeps_alive = True
    model = chat_model("openai:stand-in", base_url=server.url)
    assert model.invoke("hi").text == "hello"
    child = os.fork()
    if not child:
        is_answered = model.invoke("hi").text == "hello"
        os._exit(0 if is_answered else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert model.invoke("hi").text == "hello"
    assert len(server.clients) == 2


ENDING = """
import sys, threading
sys.path.insert(0, {tests!r})
from billing_server import BillingServer
from costada.models.chat_models import chat_model
from costada.models.event_loop import run
from langchain_core.runnables import RunnableLambda
import asyncio
with BillingServer() as server:
    server.keeps_alive = True
    model = chat_model("openai:stand-in", base_url=server.url)
    print(model.invoke("hi").text)
    dropped = chat_model("openai:stand-in", base_url=server.url)
    print(dropped.invoke("hi").text)
    del dropped

    async def abandon():
        async with asyncio.timeout(0.2):
            await RunnableLambda(lambda _: threading.Event().wait()).ainvoke("hang")
    try:
        run(abandon())
    except TimeoutError:
        print("abandoned")
"""


@pytest.mark.process
def test_a_process_ends_without_warnings_though_a_model_hangs(tmp_path):
    tests = os.path.dirname(os.path.dirname(__file__))
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", ENDING.format(tests=tests)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["hello", "hello", "abandoned"])
    assert "Warning" not in ended.stderr


def test_connections_of_a_model_that_nobody_has_any_more_are_closed(server: BillingServer):
    server.keeps_alive = True
    model, others = chat_model("openai:stand-in", base_url=server.url), {*paid_loop().closing}
    assert model.invoke("hi").text == "hello"
    (own,) = {*paid_loop().closing} - others
    del model
    # again and again: the thread of the loop may hold the answer's last frame a while longer
    until(lambda: gc.collect() >= 0 and own not in paid_loop().closing)


def test_what_cannot_be_closed_with_the_loop_keeps_nothing_else_open(
    monkeypatch: pytest.MonkeyPatch,
):
    loop, closed, owners = PaidLoop(), [], [type("Owner", (), {})() for _ in range(3)]
    monkeypatch.setattr("costada.models.event_loop._current", loop)

    async def close(number):
        closed.append(number)
        if number == 1:
            raise ConnectionError("cannot be closed")

    async def hold():
        for number, owner in enumerate(owners):
            close_with_loop(owner, partial(close, number))

    run(hold())
    with pytest.raises(ConnectionError, match="cannot be closed"):
        loop.close()
    assert sorted(closed) == [0, 1, 2]
    assert loop.loop.is_closed()


def test_a_model_with_an_http_client_of_its_user_is_asked_through_it(server: BillingServer):
    import httpx

    used = []

    class Transport(httpx.HTTPTransport):
        def handle_request(self, request):
            used.append(request.url.path)
            return super().handle_request(request)

    with httpx.Client(transport=Transport()) as own:
        try:
            model = client(server, http_client=own)
        except TypeError as error:
            pytest.skip(f"the OpenAI SDK takes no client of httpx: {error}")
        ask(with_visible_requests(model), MESSAGES, {})
    assert used == ["/v1/chat/completions"]


class Overridden(ChatOpenAI):
    """Changes no more than the synchronous path."""

    def _generate(self, *args, **kwargs):
        result = super()._generate(*args, **kwargs)
        result.generations[0].message.content = "changed"
        return result


def test_a_class_with_a_synchronous_path_of_its_own_is_asked_there(server: BillingServer):
    model = Overridden(model="stand-in", base_url=server.url, api_key="none", stream_usage=True)
    assert ask(with_visible_requests(model), MESSAGES, {}).text == "changed"
