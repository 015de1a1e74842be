"""The thread of a graph in Postgres belongs to one process at a time, which may be stopped."""

import os
import signal
import time
from contextlib import contextmanager
from socket import gethostname
from threading import Event

import psycopg
import pytest
from billing_server import BillingServer
from crash_runs import Provider
from fakes import toy_problem
from langgraph.checkpoint.postgres import PostgresSaver
from warm import PROCESSES

from costada.controller.constants import Constants
from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.run_store import RunStore
from costada.values.usage import Price

THREAD = {"configurable": {"thread_id": "run"}}
ITERATIONS = 12
LEASE_SECONDS = 2.0


@contextmanager
def of_langgraph(address):
    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        yield saver


@contextmanager
def of_runs(address):
    saver = PostgresRunSaver(address)
    try:
        yield saver
    finally:
        saver.close()


SAVERS = {"of runs": of_runs, "LangGraph's": of_langgraph}


def run(address, url, saver, lease_seconds, said):
    """Begin the run of the thread or continue it, and say how that ended."""
    settings = Settings(
        price=Price("0.6", "1.92"),
        constants=Constants(max_iterations=ITERATIONS),
        lost_calls="ignore",
    )
    model = chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=4000)
    try:
        with (
            RunStore.postgres(address, lease_seconds=lease_seconds) as store,
            SAVERS[saver](address) as opened,
        ):
            graph = compile_search(
                toy_problem(),
                model,
                budget=10.0,
                settings=settings,
                checkpointer=opened,
                store=store,
            )
            given = None if graph.get_state(THREAD).values else {"seed": 1}
            graph.invoke(given, THREAD, durability="sync")
            said.send("finished")
    except ValueError as error:
        said.send(f"{type(error).__name__}: {error}")
        raise


class Replica:
    """A process that executes the graph on the thread."""

    def __init__(self, *given):
        self.said, end = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(target=run, args=(*given, end))
        self.process.start()
        end.close()

    def outcome(self) -> tuple[str, int | None]:
        assert self.said.poll(60)
        said = self.said.recv()
        self.process.join(30)
        return said, self.process.exitcode


@contextmanager
def replicas(address, saver, *, lease_seconds=LEASE_SECONDS, until=None):
    """Begin processes on a provider, which gives no answer before an event, if there is one."""
    provider, begun = Provider(), []

    def answer(body):
        reply = provider.answer(body)
        if until is not None:
            until.wait(60)
        return reply

    with BillingServer(default=answer) as server:

        def begin(calls: int | None = None) -> Replica:
            """Begin another one, and wait until so many further requests are billed."""
            before = provider.billed.total()
            begun.append(Replica(address, server.url, saver, lease_seconds))
            while calls and provider.billed.total() < before + calls:
                assert begun[-1].process.is_alive()
                time.sleep(0.002)
            return begun[-1]

        try:
            yield begin
        finally:
            if until is not None:
                until.set()
            for each in begun:
                each.process.kill()
                each.process.join()


def contents(address) -> dict[str, list[str]]:
    """Every row of every table but the leases."""
    found = {}
    with psycopg.connect(address) as connection:
        names = connection.execute(
            "SELECT table_schema || '.' || table_name FROM information_schema.tables"
            " WHERE table_type = 'BASE TABLE' AND table_name <> 'costada_lease'"
            " AND table_schema IN ('costada', 'public') ORDER BY 1"
        ).fetchall()
        for (name,) in names:
            rows = connection.execute(f"SELECT t::text FROM {name} AS t ORDER BY 1")
            found[name] = [row for (row,) in rows.fetchall()]
    return found


@pytest.mark.parametrize("saver", SAVERS)
def test_a_stopped_holder_is_replaced_and_writes_nothing_when_it_wakes(postgres_address, saver):
    with replicas(postgres_address, saver) as begin:
        first = begin(calls=3)
        os.kill(first.process.pid, signal.SIGSTOP)
        time.sleep(LEASE_SECONDS * 1.5)
        second = begin()
        assert second.outcome() == ("finished", 0)
        before = contents(postgres_address)
        assert len(before["costada.costada_step"]) == ITERATIONS
        os.kill(first.process.pid, signal.SIGCONT)
        said, code = first.outcome()
        assert said.startswith("LostLease: thread 'run': this process has lost the run: process ")
        assert f"process {second.process.pid} on {gethostname()} took it over at " in said
        assert code == 1
        after = contents(postgres_address)
        # a saver that is not ours notes the error beside a checkpoint of the past
        for noted in (before, after):
            noted.pop("public.checkpoint_writes", None)
        assert after == before


def test_a_killed_holder_is_replaced_at_once(postgres_address):
    with replicas(postgres_address, "of runs", lease_seconds=3600.0) as begin:
        first = begin(calls=3)
        first.process.kill()
        first.process.join()
        assert begin().outcome() == ("finished", 0)
    assert len(contents(postgres_address)["costada.costada_step"]) == ITERATIONS


def test_a_living_holder_keeps_the_thread_beyond_the_time_of_a_lease(postgres_address):
    slow = Event()
    with replicas(postgres_address, "of runs", lease_seconds=1.0, until=slow) as begin:
        first = begin(calls=1)
        time.sleep(2.5)
        said, code = begin().outcome()
        assert f"another process is at work in this run: process {first.process.pid} on " in said
        assert code == 1
        slow.set()
        assert first.outcome() == ("finished", 0)
        assert begin().outcome() == ("finished", 0)
    assert len(contents(postgres_address)["costada.costada_step"]) == ITERATIONS
