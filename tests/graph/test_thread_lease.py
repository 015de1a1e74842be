"""An execution of a graph whose store is in Postgres holds its thread until it ends."""

import asyncio

import psycopg
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import THREAD, discovery

from costada.store.run_store import RunStore


def leases(address):
    with psycopg.connect(address) as connection:
        return connection.execute("SELECT name, seconds FROM costada.costada_lease").fetchall()


def test_an_async_execution_holds_its_thread_and_releases_it(postgres_address):
    with RunStore.postgres(postgres_address) as store:
        graph = discovery(store=store, saver=InMemorySaver(), iterations=3, parallel=2)

        async def execute():
            async for _ in graph.astream({"seed": 1}, THREAD):
                assert leases(postgres_address) == [("thread '1'", 30.0)]

        asyncio.run(execute())
        assert leases(postgres_address) == [("thread '1'", 0.0)]
        assert len(store.steps(store.run_ids()[-1])) == 3
