"""Connections: shared purses on strict servers, and what a fork does to them."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from multiprocessing import get_context
from threading import Event
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from costada.store import outage, postgres_lease, postgres_recent_writes
from costada.store.database import Database
from costada.store.postgres_connections import Connections
from costada.store.purse import Purse


def spend_often(address, number):
    with Purse(1, dsn=address) as purse:
        for each in range(20):
            purse.begin(f"{number} {each}", 0.001)
            purse.child(f"child {each}", 0.001)


def test_clients_share_a_purse_on_a_server_whose_transactions_are_serializable(postgres_address):
    """Such transactions fail where two change the same account at once."""
    name = conninfo_to_dict(postgres_address)["dbname"]
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        change = f"ALTER DATABASE {name} {{}} default_transaction_isolation"
        connection.execute(change.format("SET") + " = 'serializable'")
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(partial(spend_often, postgres_address), range(4)))
        finally:
            connection.execute(change.format("RESET"))
    with Purse(1, dsn=postgres_address) as purse:
        assert float(purse.remaining) == 1 - 80 * 0.001 - 20 * 0.001


def test_a_database_that_cannot_hold_every_text_is_refused(postgres_address):
    name = f"costada_{uuid4().hex}"
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        of_bytes = "ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        connection.execute(f"CREATE DATABASE {name} {of_bytes}")
        try:
            with pytest.raises(ValueError, match="encoding of the database is SQL_ASCII, expected"):
                Purse(1, dsn=make_conninfo(postgres_address, dbname=name))
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_connection_is_not_shared_with_a_forked_process(postgres_address):
    with closing(Connections(postgres_address)) as connections:
        connections.give(connections.take())
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            with connections.lent() as own:
                found = own.execute("SELECT pg_backend_pid()").fetchall()[0][0]
            os.write(writing, b"%d" % found)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with connections.lent() as parents:
            kept = parents.execute("SELECT pg_backend_pid()").fetchall()[0][0]
        assert int(os.read(reading, 20)) != kept
        os.close(reading)
        os.close(writing)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_run_that_is_held_is_not_held_by_a_forked_process(postgres_address):
    with closing(Database(postgres_address)) as database:
        held = database.engine.hold("run")
        if (child := os.fork()) == 0:
            try:
                database.engine.hold("run")
            except ValueError as refused:
                os._exit(0 if f"process {os.getppid()} on" in str(refused) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        held.check()
        held.release()
        database.engine.hold("run").release()


def spend_as_a_child(purse, address):
    assert outage.outages() == []
    purse.child("inherited", 0.25)
    with Purse.existing("purse", dsn=address) as own:
        own.child("own", 0.25)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_waits_for_no_thread_of_its_parent(postgres_address):
    held, forked = Event(), Event()

    def hold_locks(purse):
        with ExitStack() as locks:
            locks.enter_context(purse._rows.database.transaction())
            for lock in (
                outage._LOCK,
                postgres_lease._LOOKING_UP,
                postgres_recent_writes._LOOKING_UP,
            ):
                locks.enter_context(lock)
            held.set()
            assert forked.wait(100)

    with Purse(1, dsn=postgres_address) as purse, ThreadPoolExecutor(1) as threads:
        holding = threads.submit(hold_locks, purse)
        assert held.wait(100)
        child = get_context("fork").Process(target=spend_as_a_child, args=(purse, postgres_address))
        child.start()
        child.join(30)
        forked.set()
        child.kill()
        child.join()
        holding.result()
        assert child.exitcode == 0
        assert purse.remaining == 0.5
