"""Steps in flight under a hard budget that wait for money get it in the order of launch."""

import time
from decimal import Decimal
from itertools import count

import pytest
from billing_server import Body, Reply
from fakes import IDEAS, hashed_answer, is_guide_prompt
from toy_graph import billed, calls_of, client, discovery, rows_of, spent_by

from costada.nodes.state import Flight
from costada.reports.page.failures import failures_of
from costada.reports.summary import failures_text
from costada.reports.trace import failures_in_a_row
from costada.store.ledger import Landing
from costada.store.run_store import RunStore

BUDGET = 0.06
"""Pays for three roomy answers at once, and for many more of those that come."""


class Answers:
    """Answers of 1,500 tokens, or the cap if it is lower; the first one takes the longest."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def __call__(self, body: Body) -> Reply:
        prompt = body["messages"][-1]["content"]
        time.sleep(0.5 if next(self._numbers) == 1 else 0.05)
        text = IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt)
        return Reply(text, 500, min(1500, body["max_completion_tokens"]))


def search(server, store, **options):
    server.default = Answers()
    model = client(server, max_tokens=8000)
    given = {"budget": BUDGET, "budget_policy": "hard", "parallel": 4, "iterations": 60}
    return discovery(model, store=store, **given, **options)


@pytest.mark.parametrize("method", ["costada", "uniform"])
def test_no_step_overtakes_one_that_waits(server, method) -> None:
    store = RunStore()
    found = search(server, store, method=method).invoke({})
    first = {}
    for call in sorted(calls_of(store), key=lambda call: call.ended_at - call.seconds):
        first.setdefault(call.ticket, call)
    # those that are launched at the same moment, at most four, may begin in any order
    assert all(abs(place - number) < 4 for place, number in enumerate(first, 1))
    assert len(first) >= 10
    assert found["stop_reason"] == "budget"
    assert billed(server) == spent_by(store) <= Decimal(str(BUDGET))


def test_nothing_is_launched_while_a_step_waits(server) -> None:
    store = RunStore()
    graph, waited = search(server, store), 0
    for before, after in neighbours(graph.stream({}, stream_mode="values")):
        flight = before.get("flight", Flight())
        if flight.is_waiting_for_funds and flight.tickets:
            waited += 1
            assert after["flight"].last_ticket == flight.last_ticket
    assert waited > 0


def neighbours(items):
    last = None
    for item in items:
        if last is not None:
            yield last, item
        last = item


class OneGreedyRetry(Answers):
    """The first answer holds no program, and the one to its retry is as long as it may be."""

    def __call__(self, body: Body) -> Reply:
        prompt = body["messages"][-1]["content"]
        if "## Failed attempt" in prompt:
            time.sleep(0.5)
            return Reply("nothing", 500, body["max_completion_tokens"])
        if next(self._numbers) == 1:
            time.sleep(0.3)
            return Reply("nothing", 500, 500)
        return Reply(hashed_answer(prompt), 500, 1500)


@pytest.mark.parametrize("parallel", [4, 8])
def test_at_most_one_iteration_of_a_hard_budget_holds_no_call(server, parallel) -> None:
    """The one that says why the run stops: those that still waited for money are not iterations."""
    store, server.default = RunStore(), OneGreedyRetry()
    model = client(server, max_tokens=60_000)
    given = {"budget": 0.04, "budget_policy": "hard", "parallel": parallel, "method": "uniform"}
    found = discovery(model, store=store, **given).invoke({})
    rows, called = rows_of(store), {call.ticket for call in calls_of(store)}
    assert len([row for row in rows if row["ticket"] not in called]) <= 1
    assert found["iterations"] == len(rows)
    assert called <= {row["ticket"] for row in rows}
    assert billed(server) == spent_by(store) <= Decimal("0.04")


def test_a_step_that_got_no_money_is_no_failure(server) -> None:
    store = RunStore()
    search(server, store).invoke({})
    unpaid = [row for row in rows_of(store) if "out_of_money" in row["events"]]
    assert unpaid
    made = sum(row["attempts"] - 1 for row in unpaid)
    assert failures_text([{**row, "global_gain": 0.0} for row in unpaid]) == ""
    assert failures_in_a_row(unpaid, 99, 1) == len(failures_of([], [], [], [], unpaid, int)) == made


def test_a_landing_records_whether_another_step_waited(tmp_path) -> None:
    path = tmp_path / "run.sqlite"
    landings = [Landing(3, is_waiting_for_funds=True), Landing(1, is_waiting_for_funds=False)]
    with RunStore(path) as store:
        for place, landing in enumerate(landings, 1):
            store.ledger.put_landing("run", place, landing)
    with RunStore(path) as store:
        assert [store.ledger.landing("run", place) for place in (1, 2, 3)] == [*landings, None]
