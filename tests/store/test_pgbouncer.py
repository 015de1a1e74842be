"""What works through PgBouncer, and what is refused before anything is written."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal

import psycopg
import pytest
from pgbouncer import started_pgbouncer
from psycopg.conninfo import conninfo_to_dict
from warm import PROCESSES

from costada.store.address import shown_address
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.postgres_connections import SESSION, Connections
from costada.store.purse import Purse
from costada.store.run_store import RunStore

REFUSED = r"through a pooler that shares sessions between clients .* \(PgBouncer: pool_mode = sess"
ADVISORY_LOCKS = (
    "SELECT COUNT(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
    " WHERE locktype = 'advisory' AND datname = current_database()"
)
NUM_CLIENTS = 6


@contextmanager
def traffic(address) -> Iterator[None]:
    """Other clients of the pooler, which are never idle for long."""
    ending = threading.Event()

    def ask():
        with psycopg.connect(address, autocommit=True) as connection:
            while not ending.is_set():
                connection.execute("SELECT 1", prepare=False)

    threads = [threading.Thread(target=ask) for _ in range(NUM_CLIENTS)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ending.set()
        for each in threads:
            each.join()


def is_refused(open_one, address) -> bool:
    try:
        open_one(address).close()
    except ValueError as error:
        return "a pooler that shares sessions" in str(error)
    return False


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_shares_sessions_is_refused_and_nothing_is_left(postgres_address, mode):
    RunStore.postgres(postgres_address).close()  # creates the tables
    with (
        started_pgbouncer(postgres_address, pool_mode=mode) as pooler,
        psycopg.connect(postgres_address, autocommit=True) as direct,
    ):
        # Leases of runs that other tests have not closed.
        before = direct.execute(ADVISORY_LOCKS).fetchall()
        for open_one in (RunStore.postgres, PostgresRunSaver, lambda place: Purse(1, dsn=place)):
            with pytest.raises(ValueError, match=REFUSED):
                open_one(pooler.address)
        assert direct.execute(ADVISORY_LOCKS).fetchall() <= before


def test_a_run_behind_a_pooler_that_shares_sessions_is_refused_before_it_asks(
    postgres_address, invoke, near, tmp_path
):
    RunStore.postgres(postgres_address).close()
    with started_pgbouncer(postgres_address, pool_mode="transaction") as pooler:
        given = ("--store", shown_address(pooler.address), "--out", tmp_path / "hex")
        result = invoke("run", near, *given)
    assert (result.exit_code, "through a pooler that shares" in result.output) == (2, True)
    with RunStore.postgres(postgres_address) as store:
        assert store.run_ids() == []
        assert [*store.named.all()] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"pool_mode": "transaction", "default_pool_size": 2},
        {"pool_mode": "transaction", "server_round_robin": 1},
        {"pool_mode": "transaction", "server_round_robin": 1, "default_pool_size": 2},
        {"pool_mode": "transaction", "server_reset_query_always": 1},
        {"pool_mode": "transaction", "server_lifetime": 0},
    ],
    ids=str,
)
def test_a_pooler_that_shares_sessions_is_refused_beside_other_clients(postgres_address, settings):
    RunStore.postgres(postgres_address).close()
    with started_pgbouncer(postgres_address, **settings) as pooler, traffic(pooler.address):
        assert [is_refused(RunStore.postgres, pooler.address) for _ in range(3)] == [True] * 3


def test_a_pooler_that_refuses_the_options_of_a_connection_is_refused(postgres_address):
    with (
        started_pgbouncer(postgres_address, ignore_startup_parameters="") as pooler,
        pytest.raises(ValueError, match=r"a pooler that refuses the options .*= options"),
    ):
        RunStore.postgres(pooler.address)


def test_a_pooler_that_resets_no_session_is_refused(postgres_address):
    """The lock of a process that has died would stay."""
    RunStore.postgres(postgres_address).close()
    settings = {"pool_mode": "session", "server_reset_query": ""}
    with (
        started_pgbouncer(postgres_address, **settings) as pooler,
        pytest.raises(ValueError, match="or does not reset them"),
    ):
        RunStore.postgres(pooler.address)


def test_sessions_behind_a_pooler_have_the_settings_of_others(postgres_address):
    """Also where the database itself sets the search path, as ours is not missing then."""
    name = conninfo_to_dict(postgres_address)["dbname"]
    RunStore.postgres(postgres_address).close()
    with psycopg.connect(postgres_address, autocommit=True) as direct:
        direct.execute(f"ALTER DATABASE {name} SET search_path = costada")
        try:
            with (
                started_pgbouncer(postgres_address) as pooler,
                traffic(pooler.address),
                closing(Connections(pooler.address, is_read_only=True)) as connections,
            ):
                # The pooler reaches the server by a socket, on which nothing is kept alive.
                expected = {
                    each: "0" if each.startswith("tcp_") else SESSION[each] for each in SESSION
                }
                for connection in (connections.opened(), connections.opened()):
                    known = {
                        each: connection.execute(f"SHOW {each}").fetchall()[0][0]
                        for each in (*SESSION, "default_transaction_read_only")
                    }
                    assert known == expected | {"default_transaction_read_only": "on"}
                    connection.close()
        finally:
            direct.execute(f"ALTER DATABASE {name} RESET search_path")


def test_a_purse_and_a_reader_work_behind_a_pooler(postgres_address):
    with (
        started_pgbouncer(postgres_address) as pooler,
        Purse(1, dsn=pooler.address) as purse,
        RunStore.postgres(pooler.address, is_read_only=True) as reader,
    ):
        purse.begin("call", 0.25)
        assert purse.remaining == Decimal("0.75")
        with pytest.raises(OSError, match="it was opened for reading"):
            reader.put_step("run", 1, {})


def hold_and_wait(address, begun):
    with RunStore.postgres(address) as store:
        store.hold("run")
        begun.set()
        signal.pause()


@pytest.mark.process
def test_a_holder_that_is_killed_behind_a_pooler_releases_its_run_at_once(postgres_address):
    with (
        started_pgbouncer(postgres_address) as pooler,
        RunStore.postgres(pooler.address) as store,
    ):
        begun = PROCESSES.Event()
        process = PROCESSES.Process(target=hold_and_wait, args=(pooler.address, begun))
        process.start()
        assert begun.wait(60)
        with pytest.raises(ValueError, match=f"is at work in this run: process {process.pid} on"):
            store.hold("run")
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        began = time.monotonic()
        store.hold("run").release()
        assert time.monotonic() - began < 25  # not the 30 seconds of an overdue heartbeat


def test_a_pooler_without_a_session_left_is_named(postgres_address):
    RunStore.postgres(postgres_address).close()
    settings = {"default_pool_size": 1, "query_wait_timeout": 1}
    with (
        started_pgbouncer(postgres_address, **settings) as pooler,
        pytest.raises(OSError, match="the pooler has no session left; raise default_pool_size"),
    ):
        RunStore.postgres(pooler.address)


def test_a_pooler_that_is_killed_is_a_lost_connection(postgres_address):
    with (
        started_pgbouncer(postgres_address) as pooler,
        RunStore.postgres(pooler.address) as store,
    ):
        store.open_run("run", "costada", "toy")
        pooler.kill()
        with pytest.raises(OSError, match="cannot connect; check host"):
            store.run_ids()
        pooler.begin()
        assert store.run_ids() == ["run"]
