"""An execution of a graph whose store is in Postgres holds its thread until it ends."""

import asyncio
from contextlib import closing, suppress
from decimal import Decimal

import psycopg
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import THREAD, discovery
from waiting import within

from costada.store.lease import LostLease, guarded_by
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.postgres_lease import Leases
from costada.store.purse import Purse
from costada.store.run_store import RunStore


def leases(address):
    with psycopg.connect(address) as connection:
        return connection.execute("SELECT name, seconds FROM costada.costada_lease").fetchall()


def taken_over(address):
    """Take over the thread of this process after the connection of its lease was cut.

    A heartbeat between the two opens another connection, and holds the thread again.
    """

    def take():
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        with suppress(ValueError):  # held again
            return Leases(address).acquire("thread '1'", 30.0)

    return within(60, take)


def test_an_async_execution_holds_its_thread_and_releases_it(postgres_address):
    with RunStore.postgres(postgres_address) as store:
        graph = discovery(store=store, saver=InMemorySaver(), iterations=3, parallel=2)

        async def execute():
            async for _ in graph.astream({"seed": 1}, THREAD):
                assert leases(postgres_address) == [("thread '1'", 30.0)]

        asyncio.run(execute())
        assert leases(postgres_address) == [("thread '1'", 0.0)]
        assert len(store.steps(store.run_ids()[-1])) == 3


def test_a_run_on_a_thread_that_another_process_holds_does_not_continue(postgres_address):
    with (
        RunStore.postgres(postgres_address) as store,
        closing(PostgresRunSaver(postgres_address)) as saver,
    ):
        discovery(store=store, saver=saver, iterations=1).invoke({"seed": 1}, THREAD)
        longer = discovery(store=store, saver=saver, iterations=2)
        held = Leases(postgres_address).acquire("thread '1'", 30.0)
        before = longer.get_state(THREAD)
        with pytest.raises(ValueError, match="thread '1': another process is at work"):
            longer.invoke(None, THREAD)
        with pytest.raises(ValueError, match="thread '1': another process is at work"):
            asyncio.run(longer.ainvoke(None, THREAD))
        assert longer.get_state(THREAD) == before
        held.release()
        assert longer.invoke(None, THREAD)["iterations"] == 2
        assert leases(postgres_address) == [("thread '1'", 0.0)]


def test_an_execution_whose_thread_was_taken_over_leaves_the_money_of_the_run_alone(
    postgres_address,
):
    purse = Purse(0.1)
    with RunStore.postgres(postgres_address) as store:
        saver = InMemorySaver()
        graph = discovery(store=store, saver=saver, iterations=3, budget=0.06, purse=purse)
        parts = graph.stream({"seed": 1}, THREAD, stream_mode="custom")
        next(parts)
        other = taken_over(postgres_address)
        parts.close()
        assert purse.remaining == Decimal("0.04")
        other.release()
        graph.invoke(None, THREAD)
        assert purse.remaining == Decimal("0.1") - purse.spent


def test_no_node_is_saved_after_a_takeover_by_a_saver_that_does_not_check_the_lease(
    postgres_address,
):
    saver = InMemorySaver()
    with RunStore.postgres(postgres_address) as store:
        graph = discovery(store=store, saver=saver, iterations=3)
        parts = graph.stream({"seed": 1}, THREAD, stream_mode="updates", durability="sync")
        while "gate_intervention" not in next(parts):
            pass
        before = len(list(saver.list(THREAD)))
        other = taken_over(postgres_address)
        with pytest.raises(LostLease, match="this process has lost the run"):
            list(parts)
        assert len(list(saver.list(THREAD))) == before
        other.release()
        assert graph.invoke(None, THREAD)["iterations"] == 3


def test_a_store_whose_lease_was_lost_can_be_used_again(postgres_address):
    with RunStore.postgres(postgres_address) as store:
        lost = store.hold("thread '1'")
        with guarded_by(lost):
            for iteration in range(5):  # psycopg prepares the sixth of a kind
                store.timing.put("run", iteration, {"node": 1.0})
            other = taken_over(postgres_address)
            with pytest.raises(LostLease):
                store.timing.put("run", 5, {"node": 1.0})
        store.timing.put("run", 6, {"node": 1.0})
        assert [iteration for iteration, _ in store.timing.steps("run")] == [0, 1, 2, 3, 4, 6]
        other.release()
        lost.release()
