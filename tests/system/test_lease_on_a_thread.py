"""The thread of a graph in Postgres is held by one process at a time, which may be suspended."""

import os
import signal
import time
from contextlib import contextmanager
from math import inf
from socket import gethostname
from threading import Event

import psycopg
import pytest
from billing_server import BillingServer
from crash_runs import Provider
from killed_searches import SAVERS, execute_run, search
from warm import PROCESSES

from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

ITERATIONS = 12
LEASE_SECONDS = 2.0


def run(address, url, saver, lease_seconds, said):
    """Execute the run of the thread, and say how that ended."""
    try:
        with (
            RunStore.postgres(address, lease_seconds=lease_seconds) as store,
            SAVERS[saver](address) as opened,
        ):
            execute_run(search(url, store, opened, ITERATIONS))
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
    """Start processes that ask one provider, which answers after the event `until`, if given."""
    provider, begun = Provider(), []

    def answer(body):
        reply = provider.answer(body)
        if until is not None:
            until.wait(60)
        return reply

    with BillingServer(default=answer) as server:

        def begin(calls: int | None = None) -> Replica:
            """Start another process and wait for this number of billed requests.

            It does not end before the next one is begun.
            """
            before = provider.billed.total()
            provider.last_answered = before + calls if calls else inf
            begun.append(Replica(address, server.url, saver, lease_seconds))
            while calls and provider.billed.total() < before + calls:
                assert begun[-1].process.is_alive()
                time.sleep(0.002)
            return begun[-1]

        try:
            yield begin
        finally:
            provider.last_answered = inf
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
            noted.pop("costada.costada_transaction")  # a client that ends takes its number along
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
    with replicas(postgres_address, "of runs", lease_seconds=4.0, until=slow) as begin:
        first = begin(calls=1)
        time.sleep(6)
        said, code = begin().outcome()
        assert f"another process is at work in this run: process {first.process.pid} on " in said
        assert code == 1
        slow.set()
        assert first.outcome() == ("finished", 0)
        assert begin().outcome() == ("finished", 0)
    assert len(contents(postgres_address)["costada.costada_step"]) == ITERATIONS
