"""Connections that all stores, savers and purses of a process share."""

import gc
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from contextvars import Context, copy_context
from threading import Barrier, Thread

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from rows import call_row
from toy_graph import discovery
from waiting import within

from costada.store import postgres_connections
from costada.store.database import Database
from costada.store.lease import guarded_by
from costada.store.outage import DatabaseUnavailable, Patience, outages, waiting_for_database
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.postgres_connections import MAX_CONNECTIONS, Connections
from costada.store.purse import Purse
from costada.store.run_store import RunStore

SESSIONS = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = %s"
CHANGED = """
SELECT name, setting FROM pg_settings WHERE source IN ('session', 'client') ORDER BY name
"""
ADVISORY_LOCKS = """
SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
"""
PREPARED = "SELECT COUNT(*) FROM pg_prepared_statements WHERE NOT starts_with(name, '_pg3_')"
SCANS = "SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relname = 'costada_recovery'"
INSERT = "INSERT INTO costada_tactics (run_id, iteration, record) VALUES (?, ?, ?)"
PATIENCE = 60.0


@pytest.fixture
def address(postgres_address):
    """An address whose connections can be told from those of other tests."""
    return make_conninfo(postgres_address, application_name=f"pool {os.getpid()}")


@pytest.fixture(params=[1, 2])
def limit(request, monkeypatch):
    monkeypatch.setattr(postgres_connections, "MAX_CONNECTIONS", request.param)
    return request.param


def num_sessions(address):
    with psycopg.connect(address, application_name="observer") as connection:
        name = psycopg.conninfo.conninfo_to_dict(address)["application_name"]
        return connection.execute(SESSIONS, (name,)).fetchone()[0]


def checkpoint_of(name):
    return {
        "v": 1,
        "id": name,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"x": name},
        "channel_versions": {"x": 1},
        "versions_seen": {},
        "updated_channels": ["x"],
    }


def work(address, number, begins):
    """Use a store, a saver and a purse of one's own in every way that holds a connection."""
    thread = {"configurable": {"thread_id": f"run-{number}", "checkpoint_ns": ""}}
    with (
        RunStore.postgres(address) as store,
        closing(PostgresRunSaver(address)) as saver,
        Purse(100, dsn=address) as purse,
    ):
        begins.wait(PATIENCE)
        lease = store.hold(f"run-{number}")
        database = store._db
        with guarded_by(lease):
            for each in range(5):
                with database.transaction():
                    database.write(INSERT, (f"run-{number}", each, "a record"))
                    database.put_text(f"text {number} {each}")  # on a second connection
                    purse.begin(f"{number} {each}", 0.5)
                    purse.child(f"account {each % 2}", 1)
                    saver.put(thread, checkpoint_of(f"{each}"), {}, {"x": 1})
                    found = saver.list({"configurable": {"thread_id": f"run-{number}"}})
                    assert next(found).checkpoint["id"] == f"{each}"
                    assert len(database.rows("SELECT 1 FROM costada_tactics")) > each
                store.call_log.put_call(f"run-{number}", call_row())
                purse.put(f"{number} {each}", cost=0.25)
        lease.release()


def test_threads_that_need_a_second_connection_do_not_wait_for_each_other(address, limit):
    num_threads = 12
    begins = Barrier(num_threads)
    with ThreadPoolExecutor(num_threads) as threads:
        working = [threads.submit(work, address, each, begins) for each in range(num_threads)]
        for each in working:
            each.result(PATIENCE * 4)
    with RunStore.postgres(address) as store, Purse(100, dsn=address) as purse:
        ((number,),) = store._db.rows("SELECT COUNT(*) FROM costada_tactics")
        assert number == 5 * num_threads
        assert float(purse.spent) == 5 * num_threads * 0.25
        assert len(store._db.rows("SELECT 1 FROM costada_call")) == 5 * num_threads


def test_threads_share_as_many_connections_as_the_limit_says(address, limit):
    with ExitStack() as opened:
        stores = [opened.enter_context(RunStore.postgres(address)) for _ in range(20)]
        with ThreadPoolExecutor(20) as threads:
            list(threads.map(lambda store: [store.run_ids() for _ in range(10)], stores))
        assert num_sessions(address) <= limit


@contextmanager
def waiting_thread(address, work):
    """A thread that waits for the only connection, which this one has."""
    with closing(Connections(address)) as connections, connections.lent():
        waiting = Thread(target=work)
        waiting.start()
        within(PATIENCE, lambda: connections._pool._waiting)
        yield
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


@pytest.mark.parametrize("limit", [1], indirect=True)
def test_a_thread_that_waits_for_a_connection_notes_no_outage_and_goes_on(address, limit):
    with closing(Database(address)) as database:
        found = []
        with waiting_thread(address, lambda: found.extend(database.rows("SELECT 1"))):
            assert outages() == []
            assert found == []
        assert found == [(1,)]


@pytest.mark.parametrize("limit", [1], indirect=True)
def test_a_run_that_is_asked_to_stop_does_not_wait_for_a_connection(address, limit):
    errors = []

    def stop():
        raise InterruptedError("asked to stop")

    def read():
        with waiting_for_database(Patience(PATIENCE, stop)):
            try:
                database.rows("SELECT 1")
            except InterruptedError as error:
                errors.append(error)

    with closing(Database(address)) as database:
        with waiting_thread(address, lambda: Context().run(read)):
            within(PATIENCE, lambda: errors)
        assert database.rows("SELECT 1") == [(1,)]


@pytest.mark.parametrize("limit", [1], indirect=True)
def test_an_attempt_that_fails_is_that_of_all_who_wait_for_their_turn(limit):
    """Each would wait for a server that does not answer, one after another."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        closing(Connections(f"postgresql://a@127.0.0.1:{server.getsockname()[1]}/b")) as own,
        ThreadPoolExecutor(8) as threads,
    ):
        tries = [threads.submit(Context().run, own.take) for _ in range(8)]
        accepted, _ = server.accept()
        within(PATIENCE, lambda: len(own._pool._waiting) == 7)
        accepted.close()
        errors = [each.exception(PATIENCE) for each in tries]
        assert [type(each) for each in errors] == [DatabaseUnavailable] * 8
        assert len({id(each) for each in errors}) == 8
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_the_last_user_closes_the_connections(address):
    PostgresRunSaver(address).close()  # creates the tables, on two connections
    within(PATIENCE, lambda: num_sessions(address) == 0)
    first, second = RunStore.postgres(address), RunStore.postgres(address)
    saver = PostgresRunSaver(address)
    assert num_sessions(address) == 1
    first.close()
    saver.close()
    assert second.run_ids() == []
    assert num_sessions(address) == 1
    with pytest.raises(ValueError, match="is closed"):
        first.run_ids()
    second.close()
    within(PATIENCE, lambda: num_sessions(address) == 0)


def test_a_store_that_is_forgotten_leaves_the_pool(address):
    assert RunStore.postgres(address).run_ids() == []
    gc.collect()
    within(PATIENCE, lambda: num_sessions(address) == 0)


def test_other_settings_of_the_session_have_connections_of_their_own(address):
    with (
        RunStore.postgres(address) as store,
        RunStore.postgres(address, is_read_only=True) as reader,
        RunStore.postgres(address, lease_seconds=2) as short,
    ):
        show = "SELECT current_setting('idle_in_transaction_session_timeout')"
        assert store._db.rows(show) == reader._db.rows(show) == [("15s",)]
        assert short._db.rows(show) == [("1s",)]
        with pytest.raises(OSError, match="opened for reading"):
            reader.put_step("run", 1, {})
        store.put_step("run", 1, {})
        assert num_sessions(address) == 3


def test_a_user_leaves_nothing_on_a_connection_for_the_next_one(address):
    with closing(Connections(address)) as connections:
        with connections.lent() as connection:
            before = connection.execute(CHANGED).fetchall()
            factories = connection.row_factory, connection.cursor_factory, connection.autocommit
        work(address, 1, Barrier(1))
        with (
            RunStore.postgres(address) as store,
            pytest.raises(ValueError, match="division by zero"),
            store._db.transaction(),
        ):
            store._db.rows("SELECT 1 / (SELECT COUNT(*) FROM costada_input)")
        idle = connections._pool._idle
        assert len(idle) > 1
        for each in idle:
            assert each.execute(CHANGED).fetchall() == before
            assert (each.row_factory, each.cursor_factory, each.autocommit) == factories
            assert each.execute(PREPARED).fetchall() == [(0,)]
            assert each.execute(ADVISORY_LOCKS).fetchall() == [(0,)]


def test_a_reader_that_lists_checkpoints_slowly_keeps_no_connection(address):
    with closing(PostgresRunSaver(address, keep_history=True)) as saver:
        thread = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
        for name in "123":
            saver.put(thread, checkpoint_of(name), {}, {"x": 1})
        listing = saver.list({"configurable": {"thread_id": "1"}})
        assert next(listing).checkpoint["id"] == "3"
        assert not saver._connections._pool._lent


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("limit", [1], indirect=True)
def test_a_forked_process_does_not_wait_for_connections_of_its_parent(address, limit):
    with closing(Connections(address)) as connections:
        lent = connections.take()
        if (child := os.fork()) == 0:
            connections.give(lent)  # the parent's: it is not used here
            with connections.lent() as own:
                os._exit(0 if own is not lent and own.execute("SELECT 1").fetchall() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lent.execute("SELECT 1").fetchall() == [(1,)]
        connections.give(lent)


def test_a_connection_that_was_lost_costs_one_look_and_not_one_for_each_store(address):
    with ExitStack() as opened:
        stores = [opened.enter_context(RunStore.postgres(address)) for _ in range(40)]
        with psycopg.connect(address, application_name="observer", autocommit=True) as observer:
            observer.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE application_name = %s",
                (f"pool {os.getpid()}",),
            )
            ((before,),) = observer.execute(SCANS).fetchall()
            for store in stores:
                assert store.run_ids() == []
        assert num_sessions(address) == 1
        assert stores[0]._db.engine.recent is stores[-1]._db.engine.recent
        opened.close()  # its session ends, so its statistics are counted
        with psycopg.connect(address, application_name="observer") as observer:
            within(PATIENCE, lambda: observer.execute(SCANS).fetchone()[0] > before)
            assert observer.execute(SCANS).fetchone()[0] <= before + 4


def test_a_process_with_many_stores_keeps_to_the_default_limit(address):
    with ExitStack() as opened:
        stores = [opened.enter_context(RunStore.postgres(address)) for _ in range(100)]
        context = copy_context()
        with ThreadPoolExecutor(100) as threads:
            tried = [
                threads.submit(context.copy().run, each._db.rows, "SELECT pg_sleep(0.02)")
                for each in stores * 4
            ]
            assert max(num_sessions(address) for _ in range(10)) <= MAX_CONNECTIONS
            for each in tried:
                each.result(PATIENCE)
        assert 1 < num_sessions(address) <= MAX_CONNECTIONS


def search(address, number):
    with (
        RunStore.postgres(address) as store,
        closing(PostgresRunSaver(address)) as saver,
        Purse(100, dsn=address) as purse,
    ):
        own = purse.child(f"run-{number}", 1)
        thread = {"configurable": {"thread_id": f"run-{number}"}}
        graph = discovery(store=store, saver=saver, purse=own, iterations=4, parallel=4)
        assert graph.invoke({}, thread)["iterations"] == 4


@pytest.mark.process
def test_thirty_runs_with_steps_in_flight_have_as_many_connections_as_a_pool(address):
    most = 0
    with ThreadPoolExecutor(30) as threads:
        searching = [threads.submit(search, address, each) for each in range(30)]
        while not all(each.done() for each in searching):
            most = max(most, num_sessions(address))
        for each in searching:
            each.result()
    assert MAX_CONNECTIONS / 2 < most <= MAX_CONNECTIONS + 4  # of leases and nested uses
