"""A run whose requests a bill has settled continues with the account of the bill."""

from dataclasses import replace
from decimal import Decimal

import httpx
import openai
import pytest
from fakes import ScriptedModel, hashed_answer
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import Runtime
from rows import call_row
from toy_graph import THREAD, discovery, run_until, spent_by

from costada.nodes.charge_ledger import charge_ledger, charged_with, settled_account
from costada.nodes.state import Flight, Step
from costada.runs.reconcile import settle_requests
from costada.runs.reconciliation import Billed, SentCall
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore


@pytest.mark.parametrize(
    ("ticket", "iteration"),
    [(0, 0), (1, 1), (3, 2), (4, 3), (2, 2), (5, None), (6, None)],
    ids=["start", "first", "second", "guide alone", "guide with the last step", "open", "unsaved"],
)
def test_tickets_are_charged_with_the_iteration_as_which_they_landed(ticket, iteration):
    flight = Flight(last_ticket=5, open_tickets=(4, 5), guide_ticket=4)
    assert charged_with(ticket, {1: 1, 3: 2}, flight) == iteration


def doubtful_graph(store, saver, iterations):
    """A graph whose second request times out."""
    calls = []

    def answer(prompt):
        calls.append(prompt)
        if len(calls) == 2:
            raise openai.APITimeoutError(httpx.Request("POST", "http://localhost"))
        return hashed_answer(prompt)

    model = ScriptedModel(answer=answer, prompts=[])
    return discovery(model, budget=0.5, iterations=iterations, store=store, saver=saver)


def settle(store, flight, dollars):
    """Settle the only request in doubt."""
    run_id = store.last_run()
    (call,) = [SentCall(*each) for each in store.call_log.numbered(run_id) if each[2].bound]
    settle_requests(store, run_id, flight, [(call, Billed(Decimal(dollars)))], counts_lost=True)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_was_settled_is_no_longer_in_doubt_in_the_resumed_run(is_stopped):
    store, saver = RunStore(), InMemorySaver()
    if is_stopped:
        graph = doubtful_graph(store, saver, 3)
        assert graph.invoke({}, THREAD)["in_doubt"] > 0
    else:
        graph = doubtful_graph(store, saver, 5)
        run_until(graph, THREAD, 3)
    settle(store, graph.get_state(THREAD).values["flight"], "0.0001")
    found = discovery(budget=0.5, iterations=5, store=store, saver=saver).invoke(None, THREAD)
    assert (found["iterations"], found["in_doubt"]) == (5, 0)
    billed = sum(each.cost for each in store.call_log.calls(store.last_run()))
    assert found["spent"] == pytest.approx(float(billed))
    assert spent_by(store) == billed


def test_a_guide_that_was_charged_alone_is_settled_before_its_step_is_charged():
    store, saver = RunStore(), InMemorySaver()
    graph = discovery(iterations=3, store=store, saver=saver)
    graph.invoke({}, THREAD)
    before, run_id = graph.get_state(THREAD).values, store.last_run()
    guide = call_row(
        ticket=4, role="guide", cost=Decimal(0), bound=Decimal("0.5"), status=CallStatus.LOST
    )
    store.call_log.put_call(run_id, guide)
    charge = store.ledger.charge(run_id, 4, [4])
    stopped = before | {
        "flight": replace(before["flight"], last_ticket=4, open_tickets=(4,), guide_ticket=4),
        "account": replace(before["account"], doubtful=(4, 0.5)),
        "spent": float(charge.spent),
        "in_doubt": 0.5,
    }
    settle(store, stopped["flight"], "0.125")
    settled = settled_account(stopped, graph.search)
    assert settled["spent"] == pytest.approx(before["spent"] + 0.125)
    assert settled["in_doubt"] == 0
    begun = stopped | settled
    begun |= {
        "flight": replace(stopped["flight"], guide_ticket=0),
        "step": Step(ticket=4, iteration=4),
    }
    charged = charge_ledger(begun, Runtime(context=graph.search))
    assert charged["spent"] == pytest.approx(before["spent"] + 0.125)
    assert charged["in_doubt"] == 0


@pytest.mark.parametrize(("counts_lost", "before"), [(True, "0.75"), (False, "0.25")])
def test_an_iteration_that_is_charged_again_begins_from_the_bill(counts_lost, before):
    # $0.50 in doubt at the first iteration were billed at $0.125; the second cost $0.25.
    store = RunStore()
    store.open_run("run", "test", "toy")
    lost = {"cost": Decimal(0), "bound": Decimal("0.5"), "status": CallStatus.LOST}
    for ticket, facts in ((1, lost), (2, {"cost": Decimal("0.25")})):
        store.call_log.put_call("run", call_row(ticket=ticket, **facts))
        store.ledger.charge("run", ticket, [ticket], counts_lost=counts_lost)
        store.put_step("run", ticket, {"ticket": ticket})
    assert store.ledger.spent("run", 2) == Decimal(before)
    (call,) = [SentCall(*each) for each in store.call_log.numbered("run") if each[2].bound]
    billed = [(call, Billed(Decimal("0.125")))]
    settle_requests(store, "run", Flight(last_ticket=2), billed, counts_lost=counts_lost)
    accounts = [store.ledger.spent("run", each) for each in (1, 2)]
    assert accounts == [Decimal("0.125"), Decimal("0.375")]
    again = store.ledger.charge("run", 2, [2], counts_lost=counts_lost)
    assert again.spent == Decimal("0.375")
