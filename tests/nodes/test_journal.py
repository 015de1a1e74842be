"""What is written down of a call, and when it is not made again."""

import socket
from dataclasses import replace
from decimal import Decimal

from billing_server import Refusal, Reply, Silence
from fakes import rewrite, toy_problem

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.call_log import CallKey
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore
from costada.values.prices import Price

CAP = 1000


def run_once(url, store, *, lost_calls="count", timeout=20.0, attempts=1, iterations=1):
    model = chat_model(
        "openai:stand-in",
        base_url=url,
        retry_wait=0,
        timeout=timeout,
        max_tokens=CAP,
        max_attempts=attempts,
    )
    constants = Constants(max_iterations=iterations, max_attempts=1)
    settings = Settings(price=Price(1, 2), constants=constants, lost_calls=lost_calls)
    graph = create_discovery_graph(toy_problem(), model, budget=1.0, settings=settings, store=store)
    return graph.invoke({})


def calls_of(store):
    return list(store.call_log.calls(store.run_ids()[-1]))


def bound_of(call):
    """Return the bound by hand: a token for each byte of both messages and 64, and the cap."""
    task = toy_problem().task
    taken = len(task.encode()) + len(call.prompt.encode()) + 64
    return (Decimal(taken) + 2 * Decimal(CAP)) / 1_000_000


def test_an_answered_call_is_done_and_has_no_bound(server):
    store = RunStore()
    run_once(server.url, store)
    (call,) = calls_of(store)
    assert (call.status, call.bound, call.is_in_doubt) == (CallStatus.DONE, 0, False)


def test_a_call_that_timed_out_counts_at_its_bound_and_is_shown_apart(server):
    server.default = Silence()
    store = RunStore()
    result = run_once(server.url, store, timeout=0.2)
    (call,) = calls_of(store)
    assert (call.status, call.cost, call.is_in_doubt) == (CallStatus.ERROR, 0, True)
    assert call.bound == bound_of(call)
    assert result["spent"] == float(call.bound)


def test_a_call_in_doubt_can_be_left_out_of_the_account(server):
    server.default = Silence()
    store = RunStore()
    assert run_once(server.url, store, timeout=0.2, lost_calls="ignore")["spent"] == 0
    assert calls_of(store)[0].bound > 0


def test_an_error_status_is_not_in_doubt(server):
    server.script(Refusal(500), Refusal(429))
    store = RunStore()
    run_once(server.url, store, attempts=3)
    assert [(call.status, call.bound) for call in calls_of(store)] == [
        (CallStatus.ERROR, 0),
        (CallStatus.ERROR, 0),
        (CallStatus.DONE, 0),
    ]


def test_a_request_that_reached_nobody_is_not_in_doubt(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        store = RunStore()
        assert run_once(url, store)["spent"] == 0
    (call,) = calls_of(store)
    assert (call.status, call.is_in_doubt) == (CallStatus.ERROR, False)


def test_a_request_is_on_record_before_it_leaves(server):
    store = RunStore()
    seen = []

    def look(body):
        seen.extend(calls_of(store))
        return Reply(rewrite(0.3))

    server.default = look
    run_once(server.url, store)
    (call,) = seen
    assert (call.status, call.answer) == (CallStatus.STARTED, "")
    assert call.bound == bound_of(call)


def test_a_request_that_a_dead_process_left_is_lost_and_asked_again(server):
    store = RunStore()
    run_once(server.url, store)
    (done,) = calls_of(store)
    key = CallKey("another run", 1, "generation", 1)
    begun = replace(done, status=CallStatus.STARTED, cost=Decimal(0), bound=Decimal("0.5"))
    store.call_log.put_call(key.run_id, begun)
    store.call_log.mark_lost(key)
    store.call_log.put_call(key.run_id, done)
    assert [call.status for call in store.call_log.calls(key.run_id)] == [
        CallStatus.LOST,
        CallStatus.DONE,
    ]
    counted = store.call_log.charge(key.run_id, 1, counts_lost=True)
    ignored = store.call_log.charge(key.run_id, 1, counts_lost=False)
    assert (counted.cost, counted.in_doubt) == (done.cost + Decimal("0.5"), Decimal("0.5"))
    assert (ignored.cost, ignored.in_doubt) == (done.cost, 0)
