"""Many calls at once: none is lost to a rate limit, and no executor holds any of them up."""

import asyncio
import threading
from time import sleep

import pytest
from billing_server import Answer, BillingServer, Body, Refusal, Reply
from fakes import rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import PRICE, THREAD, billed, calls_of, client, discovery, rows_of, spent_by

from costada.controller.constants import Constants
from costada.graph.build import compile_search
from costada.models.providers import RetryPolicy
from costada.nodes.settings import Settings
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

SEARCHES = 32


@pytest.fixture
def server():
    """A server at an address without a limit."""
    with BillingServer() as running:
        yield running


def test_no_step_of_a_parallel_run_is_lost_to_a_rate_limit(server: BillingServer):
    """The provider serves two requests at once and refuses the others; eight are in flight."""
    now, lock, has_refused = [0], threading.Lock(), threading.Event()

    def answer(body: Body) -> Answer:
        with lock:
            now[0] += 1
            is_refused = now[0] > 2
        if is_refused:
            has_refused.set()
        else:
            assert has_refused.wait(60)
            sleep(0.03)
        with lock:
            now[0] -= 1
        return Refusal(429, "too many") if is_refused else Reply(rewrite(0.5))

    server.default = answer
    policy = RetryPolicy(retry_wait=0.01, longest_wait=0.1)
    constants = Constants(max_iterations=24)
    store = RunStore()
    graph = compile_search(
        toy_problem(),
        client(server, max_attempts=1),
        budget=1.0,
        settings=Settings(price=PRICE, constants=constants, **dict(policy)),
        checkpointer=InMemorySaver(),
        store=store,
        parallel=8,
    )
    result = graph.invoke({}, THREAD)
    rows = rows_of(store)
    assert result["stop_reason"] == "iterations"
    assert [row["iteration"] for row in rows] == [*range(1, result["iterations"] + 1)]
    assert not any("too many" in str(row["failure"]) for row in rows)
    statuses = [call.status for call in calls_of(store)]
    assert statuses.count(CallStatus.ERROR) == len(server.requests) - len(server.bill) > 0
    assert statuses.count(CallStatus.DONE) == len(server.bill) >= 24
    assert spent_by(store) == billed(server)


def test_as_many_calls_are_made_at_once_as_there_are_searches(server: BillingServer):
    """More than the default executor of asyncio has threads for."""
    together = threading.Barrier(SEARCHES)

    def answer(body: Body) -> Answer:
        together.wait(60)
        return Reply(rewrite(0.5))

    server.default = answer
    graphs = [discovery(client(server), iterations=1) for _ in range(SEARCHES)]

    async def searches() -> list[str]:
        found = await asyncio.gather(*(graph.ainvoke({}) for graph in graphs))
        return [each["stop_reason"] for each in found]

    assert asyncio.run(searches()) == ["iterations"] * SEARCHES
