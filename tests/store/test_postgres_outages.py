"""An outage of Postgres is waited out: what is repeated leaves the same as done once."""

from contextlib import closing
from contextvars import Context
from errno import ECONNREFUSED
from threading import Thread

import psycopg
import pytest
from ports import free_port
from postgres_server import started_server
from psycopg.conninfo import make_conninfo
from rows import call_row
from waiting import within

from costada.store.address import RunAddress
from costada.store.database import Database
from costada.store.outage import (
    DatabaseUnavailable,
    Patience,
    RowsChanged,
    outages,
    outlast,
    waiting_for_database,
)
from costada.store.postgres_connections import Connections
from costada.store.purse import Purse
from costada.store.run_store import RunStore

INSERT = "INSERT INTO costada_tactics VALUES (?, ?, ?)"
FOUND = "SELECT run_id, iteration, record FROM costada_tactics ORDER BY iteration"
END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid != pg_backend_pid()
"""


def cut(address):
    """End every session in the database but one's own, and wait until they have ended."""
    with psycopg.connect(address, autocommit=True) as connection:
        while connection.execute(END_OTHERS).fetchall():
            pass


@pytest.fixture(autouse=True)
def _patience():
    with waiting_for_database(Patience(60)):
        yield


def test_a_transaction_is_repeated_wherever_its_connection_is_lost(postgres_address):
    with closing(Database(postgres_address)) as database:
        for number in range(1, 4):
            with database.transaction():
                cut(postgres_address)
                database.write(INSERT, ("run", number, "before"))
                assert len(database.rows(FOUND)) == number
                cut(postgres_address)
                assert len(database.rows(FOUND)) == number
                database.write("UPDATE costada_tactics SET record = record || '.'", ())
                cut(postgres_address)
        # once in the first, twice in the second: no update was made twice
        expected = [("run", number, "before" + "." * (4 - number)) for number in (1, 2, 3)]
        assert database.rows(FOUND) == expected


class CutAfterCommit(psycopg.Connection):
    """A connection that ends right after the server has committed, before the client knows."""

    is_armed = False

    def execute(self, query, *given, **named):
        found = super().execute(query, *given, **named)
        if query == b"COMMIT" and CutAfterCommit.is_armed:
            CutAfterCommit.is_armed = False
            self.pgconn.pipeline_sync()
            while self.pgconn.flush():
                pass
            with psycopg.connect(self.info.dsn, autocommit=True) as other:
                # the server has ended the transaction once its session is idle
                state = "SELECT state FROM pg_stat_activity WHERE pid = %s"
                pid = (self.info.backend_pid,)
                while other.execute(state, pid).fetchall() != [("idle",)]:
                    pass
            self.close()
            raise psycopg.OperationalError("the connection is closed")
        return found


def test_a_commit_that_was_made_before_the_connection_was_lost_is_not_made_twice(
    postgres_address, monkeypatch
):
    monkeypatch.setattr(psycopg, "connect", CutAfterCommit.connect)
    with RunStore.postgres(postgres_address) as store:
        store.open_run("run", "costada", "toy")
        for expected in (1, 2, 3):
            CutAfterCommit.is_armed = True
            assert store.call_log.put_call("run", call_row()) == expected
            assert not CutAfterCommit.is_armed
        assert len(list(store.call_log.calls("run"))) == 3


def test_a_purse_books_each_call_once_however_often_connections_are_lost(postgres_address):
    with Purse(10, policy="hard", dsn=postgres_address) as purse:
        for number in range(8):
            cut(postgres_address)
            purse.begin(f"{number}", 0.5, model="m")
            cut(postgres_address)
            purse.put(f"{number}", cost=0.25)
        cut(postgres_address)
        assert (float(purse.spent), len(purse.calls())) == (2.0, 8)
        cut(postgres_address)
        with purse.child("search", 5.0) as child:
            cut(postgres_address)
            child.raise_to(6.0)
            assert float(purse.remaining) == 2.0


def test_a_draw_that_was_booked_is_not_refused_as_a_second_one(postgres_address):
    """Its first try was booked, and its answer lost."""
    with Purse(10, policy="hard", dsn=postgres_address) as purse:
        engine = purse._rows.database.engine
        book, tries = engine._book, []

        def book_and_lose(*given, **named):
            found = book(*given, **named)
            tries.append(found)
            if len(tries) == 1:
                raise DatabaseUnavailable(5, "lost", engine.place)
            return found

        engine._book = book_and_lose
        purse.begin("call", 4, model="m")
        assert tries == [True, False, True]
        assert (float(purse.spent), len(purse.calls())) == (4.0, 1)
        with pytest.raises(ValueError, match="expected a new one"):
            purse.begin("call", 4, model="m")


def test_rows_that_another_client_has_changed_meanwhile_are_not_overwritten(postgres_address):
    count = "SELECT COUNT(*) FROM costada_tactics"
    with closing(Database(postgres_address)) as database, closing(Database(postgres_address)) as b:
        with pytest.raises(RowsChanged, match="another client"), database.transaction():  # noqa: PT012
            ((number,),) = database.rows(count)
            b.write(INSERT, ("run", 1, "other"))
            cut(postgres_address)
            database.write(INSERT, ("run", number + 1, "mine"))
            database.rows(count)
        assert database.rows("SELECT record FROM costada_tactics") == [("other",)]


@pytest.mark.process
def test_a_server_that_restarts_or_crashes_keeps_all_that_was_written():
    with started_server() as server, closing(Database(server.address)) as database:
        for number, mode in enumerate(("fast", "immediate"), start=1):
            database.write(INSERT, ("run", number, "alone"))
            with database.transaction():
                database.write(INSERT, ("run", 10 + number, "in a transaction"))
                text = database.put_text(mode * 1000)
                server.control("restart", f"--mode={mode}")
            assert len(database.rows(FOUND)) == 2 * number
            assert database.text(text) == mode * 1000


@pytest.mark.process
def test_what_begins_while_the_server_is_stopped_waits_until_it_starts():
    with started_server() as server:
        RunStore.postgres(server.address).close()
        server.control("stop", "--mode=fast")

        def start():
            within(60, outages)
            server.control("start")

        starting = Thread(target=start)
        starting.start()
        with RunStore.at(RunAddress(server.address, "run")) as store:
            assert store.run_ids() == []
        starting.join()


@pytest.mark.process
def test_a_standby_is_waited_for_until_it_is_promoted_but_not_by_a_new_run():
    with started_server() as server, RunStore.postgres(server.address) as store:
        server.demote()
        with pytest.raises(DatabaseUnavailable, match="is a standby") as raised:
            Context().run(RunStore.postgres, server.address)
        assert not Patience(60, starting_only=True).covers(raised.value)

        def promote():
            within(60, outages)
            server.control("promote")

        promoting = Thread(target=promote)
        promoting.start()
        store.open_run("run", "costada", "toy")
        assert store.run_ids() == ["run"]
        promoting.join()


@pytest.mark.process
def test_a_lease_holds_through_a_restart():
    with started_server() as server, RunStore.postgres(server.address) as store:
        lease = store.hold("run")
        server.control("restart", "--mode=immediate")
        lease.holder.renew()
        lease.check()
        assert list(store.holders()) == ["run"]
        lease.release()


@pytest.mark.process
def test_what_a_server_refuses_for_good_is_not_waited_for():
    with started_server() as server:
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute("CREATE USER guarded PASSWORD 'right'")
        for change, reason in (
            ({"user": "guarded", "password": "wrong"}, "password authentication failed"),
            ({"user": "guarded"}, "no password supplied"),
            ({"user": "nobody"}, 'role "nobody" does not exist'),
            ({"dbname": "absent"}, 'database "absent" does not exist'),
        ):
            with pytest.raises(OSError, match=reason) as raised:
                RunStore.postgres(make_conninfo(server.address, **change))
            assert not isinstance(raised.value, DatabaseUnavailable)


@pytest.mark.parametrize(
    "reason",
    [
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is shutting down",
        "FATAL:  the database system is in recovery mode",
        "FATAL:  the database system is not yet accepting connections",
        "FATAL:  sorry, too many clients already",
        "FATAL:  terminating connection due to administrator command",
        "FATAL:  server login has been failing, cached error: connect failed (server_login_retry)",
    ],
)
def test_a_server_that_takes_no_connections_yet_is_waited_for_by_a_new_run_as_well(reason):
    with closing(Connections("postgresql://h/d")) as connections:
        error = connections._pool._not_connected(reason)
    assert isinstance(error, DatabaseUnavailable)
    assert Patience(1, starting_only=True).covers(error)
    assert "check host" not in str(error)


def test_a_new_run_does_not_wait_for_an_address_that_was_never_reached():
    error = DatabaseUnavailable(5, "cannot connect", "postgresql://h/d")
    assert not Patience(60, starting_only=True).covers(error)


def test_an_outage_that_lasts_too_long_is_waited_for_once(caplog):
    tries = []

    def fail():
        tries.append(1)
        raise DatabaseUnavailable(5, "cannot connect", "postgresql://h/d")

    patience = Patience(0.1)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match=r"longest_pause \(0\.1 s\)"):
            outlast_alone(fail, patience)
    assert patience.is_over
    assert outages() == []
    assert caplog.text.count("Waiting for the database") == 1


def test_a_refused_connection_has_the_error_of_its_cause():
    with (
        closing(Connections(f"postgresql://u@127.0.0.1:{free_port()}/d")) as connections,
        pytest.raises(DatabaseUnavailable, match="cannot connect") as refused,
    ):
        connections.take()
    assert refused.value.errno == ECONNREFUSED


def outlast_alone(work, patience):
    """Do what `outlast` does without the patience of the test."""
    return Context().run(outlast, work, patience)
