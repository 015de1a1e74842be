"""A run that draws slices of its account: exact whenever it does not run, with few writes."""

import asyncio
from contextlib import suppress
from decimal import Decimal
from threading import Event

import psycopg
import pytest
from fakes import ScriptedModel, hashed_answer
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from toy_graph import CALL_COST, THREAD, discovery, run_until, scripted, spent_by
from waiting import within

from costada.nodes.calls.purse_slice import SLICE
from costada.store.purse import Purse
from costada.store.run_store import RunStore

OPTIONS = {"budget": 0.2, "iterations": 12, "purse_slice": 0.05}


def ledger(store):
    costs = store.ledger.step_costs(store.run_ids()[-1]).values()
    return sum((cost + bound for cost, bound in costs), Decimal(0))


def run_with_slices(purse, **changes):
    return discovery(purse=purse, saver=InMemorySaver(), **{**OPTIONS, **changes})


@pytest.mark.parametrize("parallel", [1, 4])
def test_the_slice_counts_while_the_run_runs_and_nothing_does_beyond_its_calls_afterwards(parallel):
    purse, store = Purse(1), RunStore()
    seen = []

    def answer(prompt):
        # What has been sent, not what the ledger has: that has a request before it is reserved.
        sent = CALL_COST * (len(seen) + 1)
        seen.append((purse.accounts()[1].spent, sent))
        return hashed_answer(prompt)

    graph = run_with_slices(purse, model=scripted(answer), store=store, parallel=parallel)
    run_until(graph, THREAD, 6)
    # Calls in flight may end, and be settled, between the two sums.
    within(20, lambda: purse.spent == ledger(store) > 0)
    assert not purse.accounts()[1].is_closed
    graph.invoke(None, THREAD)
    assert all(spent >= sent for spent, sent in seen)
    assert any(spent >= sent + Decimal("0.02") for spent, sent in seen)
    assert purse.spent == ledger(store) == spent_by(store)
    assert purse.remaining == 1 - purse.spent
    assert [each for each in purse.calls() if each.bound] == []


@pytest.mark.parametrize("policy", ["hard", "crossing"])
def test_a_run_with_slices_uses_up_its_budget_as_one_without(policy):
    found = []
    for dollars in (None, 0.005, 5):
        purse = Purse(1, policy=policy)
        graph = run_with_slices(
            purse, budget=0.02, iterations=50, purse_slice=dollars, budget_policy=policy
        )
        found.append(graph.invoke({}, THREAD)["spent"])
        assert purse.spent == Decimal(str(found[-1]))
    assert len(set(found)) == 1


def test_a_run_that_asks_for_more_budget_has_settled_and_goes_on_with_a_slice():
    purse, store = Purse(0.3), RunStore()
    graph = run_with_slices(
        purse, budget=0.01, iterations=50, store=store, on_exhausted="interrupt"
    )
    graph.invoke({}, THREAD)
    assert purse.spent == ledger(store)
    more = graph.invoke(Command(resume={"budget": 0.03}), THREAD)
    assert more["spent"] >= 0.03
    assert purse.spent == ledger(store) == Decimal(str(more["spent"]))
    graph.invoke(Command(resume="stop"), THREAD)
    assert purse.remaining == Decimal("0.3") - ledger(store)


def test_a_run_that_fails_settles_and_returns_the_rest():
    purse, store = Purse(1), RunStore()
    answers = [hashed_answer, hashed_answer, None]
    model = ScriptedModel(answer=lambda prompt: answers.pop(0)(prompt))
    graph = run_with_slices(purse, store=store, model=model)
    with pytest.raises(TypeError):
        graph.invoke({}, THREAD)
    account = purse.accounts()[1]
    assert account.is_closed
    assert account.spent == purse.spent == ledger(store)
    assert purse.remaining == 1 - purse.spent


def test_a_call_that_ends_after_its_execution_is_written_at_once():
    purse, store, released, asked = Purse(1), RunStore(), Event(), Event()

    def answer(prompt):
        if len(model.prompts) > 3:
            asked.set()
            assert released.wait(60)
        return hashed_answer(prompt)

    model = scripted(answer)
    graph = run_with_slices(purse, store=store, model=model, parallel=4)

    async def cancel():
        run = asyncio.create_task(graph.ainvoke({}, THREAD))
        assert await asyncio.to_thread(asked.wait, 60)
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        assert purse.spent == ledger(store)
        bounds = sum(each.bound for each in purse.calls())
        assert bounds > 0
        released.set()
        return bounds

    asyncio.run(cancel())
    from costada.nodes.pool import pool_of

    pool_of(store, store.run_ids()[-1]).settle()
    assert purse.spent == ledger(store)
    assert sum(each.bound for each in purse.calls()) == 0


def leave_a_slice(purse, store, saver):
    """What a killed process leaves: a slice that is not settled, and entries that are too old."""
    graph = discovery(purse=purse, store=store, saver=saver, **OPTIONS)
    run_until(graph, THREAD, 3)
    (run_id,) = store.run_ids()
    account = purse.below(run_id)
    first, *_ = account.calls()
    account.put_and_reserve({first.key: (Decimal(0), Decimal(0))}, SLICE, Decimal("0.05"))
    return account


@pytest.mark.parametrize("dollars", [None, 0.05])
def test_who_resumes_a_run_settles_its_slice_also_without_slices(dollars):
    purse, store, saver = Purse(1), RunStore(), InMemorySaver()
    account = leave_a_slice(purse, store, saver)
    assert account.spent > ledger(store)
    again = discovery(purse=purse, store=store, saver=saver, **{**OPTIONS, "purse_slice": dollars})
    run_until(again, THREAD, 5, given=None)
    assert purse.spent == ledger(store)
    again.invoke(None, THREAD)
    assert purse.spent == ledger(store)


def test_a_run_that_was_lent_less_draws_more_when_there_is_more():
    purse = Purse(0.1)
    other = purse.child("other", 0.08)
    graph = run_with_slices(purse, budget=0.06, iterations=30)
    rows = graph.stream({}, THREAD, stream_mode="custom")
    next(rows)
    other.close()
    assert sum(1 for _ in rows) > 0
    assert purse.accounts()[-1].budget == Decimal("0.06")


def num_transactions(address):
    """Transactions of all clients of a database that are open."""
    with psycopg.connect(address) as connection:
        ((number,),) = connection.execute(
            "SELECT sum(number) FROM costada.costada_transaction"
        ).fetchall()
    return int(number)


@pytest.mark.process
def test_a_run_writes_to_its_purse_a_hundred_times_less_often(postgres_address):
    """The run itself is in memory, so all transactions are those of the purse."""
    numbers = {}
    for dollars in (None, 10):
        with Purse(1000, name=f"{dollars}", dsn=postgres_address) as purse:
            store, before = RunStore(), num_transactions(postgres_address)
            graph = run_with_slices(
                purse, store=store, budget=100, iterations=200, purse_slice=dollars, parallel=4
            )
            graph.invoke({}, THREAD)
            numbers[dollars] = num_transactions(postgres_address) - before
            assert purse.spent == ledger(store) >= 200 * CALL_COST
    assert numbers[None] > 100 * numbers[10], numbers
