"""What hinders a store in Postgres is an error that names the database, and nothing is lost."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from itertools import pairwise

import psycopg
import pytest
from postgres_server import started_server
from psycopg.conninfo import make_conninfo
from rows import call_row, trace_row
from warm import PROCESSES

from costada.store.address import shown_address
from costada.store.call_log import CallKey
from costada.store.database import Database
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.postgres_connections import explanation_of
from costada.store.postgres_lease import LEASES
from costada.store.postgres_schema import DRAWING, FUNCTIONS, SERVER_INDEXES
from costada.store.purse import Purse
from costada.store.rows import Outcome, OutcomeKind
from costada.store.run_store import RunStore
from costada.store.schema import FORMAT, INDEXES, TABLES
from costada.values.candidate import Candidate, Program

INSERT = "INSERT INTO costada_tactics VALUES (?, ?, ?)"
END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid != pg_backend_pid()
"""


def count_of(database):
    return database.rows("SELECT COUNT(*) FROM costada_tactics")[0][0]


def cut(address):
    """End every session in the database but one's own, and wait until they have ended."""
    with psycopg.connect(address, autocommit=True) as connection:
        while connection.execute(END_OTHERS).fetchall():
            pass


def test_a_connection_that_is_cut_in_a_transaction_undoes_it_and_is_opened_again(postgres_address):
    with closing(Database(postgres_address)) as database:
        with (  # noqa: PT012
            pytest.raises(OSError, match="connection was lost") as raised,
            database.transaction(),
        ):
            database.write(INSERT, ("run", 1, "{}"))
            assert count_of(database) == 1
            cut(postgres_address)
            count_of(database)
        assert raised.value.filename == shown_address(postgres_address)
        assert count_of(database) == 0
        database.write(INSERT, ("run", 1, "{}"))
        assert count_of(database) == 1


def test_a_commit_whose_connection_is_lost_undoes_the_writes(postgres_address):
    with closing(Database(postgres_address)) as database:
        with (  # noqa: PT012
            pytest.raises(OSError, match="connection was lost"),
            database.transaction(),
        ):
            database.write(INSERT, ("run", 1, "{}"))
            assert count_of(database) == 1
            cut(postgres_address)
        assert count_of(database) == 0


def write_and_wait(address, begun):
    database = Database(address)
    with database.transaction():
        database.write(INSERT, ("run", 1, "{}"))
        count_of(database)
        begun.set()
        signal.pause()


@pytest.mark.process
def test_a_client_that_is_killed_in_a_transaction_leaves_nothing_and_blocks_no_other(
    postgres_address,
):
    with closing(Database(postgres_address)) as database:
        begun = PROCESSES.Event()
        process = PROCESSES.Process(target=write_and_wait, args=(postgres_address, begun))
        process.start()
        assert begun.wait(60)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        database.write(INSERT, ("run", 1, "mine"))
        assert database.rows("SELECT record FROM costada_tactics") == [("mine",)]


def test_clients_that_store_the_same_texts_in_opposite_orders_do_not_deadlock(
    postgres_address,
):
    texts = [f"text {number} " * 50 for number in range(40)]
    together = threading.Barrier(2)

    def store(order):
        with closing(Database(postgres_address)) as database:
            together.wait(30)
            for first, second in pairwise(order):
                with database.transaction():
                    database.put_text(first)
                    database.put_text(second)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(store, order) for order in (texts, texts[::-1])]:
            done.result(60)
    with closing(Database(postgres_address)) as database:
        assert database.rows("SELECT COUNT(*) FROM costada_blob") == [(len(texts),)]


def test_clients_that_begin_at_once_create_the_tables_once(postgres_address):
    def open_both(_):
        with RunStore.postgres(postgres_address) as store:
            PostgresRunSaver(postgres_address).close()
            return store.run_ids()

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(open_both, range(6))) == [[]] * 6
    with closing(Database(postgres_address)) as database:
        assert database.rows("SELECT version FROM costada_format") == [(FORMAT,)]


@pytest.mark.parametrize("lost", ["TABLE costada_lease", "FUNCTION costada_draw"])
def test_what_is_missing_of_the_schema_is_created_again(postgres_address, lost):
    Purse(1, dsn=postgres_address).close()
    with psycopg.connect(postgres_address, options="-c search_path=costada") as connection:
        connection.execute(f"DROP {lost}")
    with Purse(1, dsn=postgres_address) as purse, RunStore.postgres(postgres_address):
        purse.begin("call", 0.5)
        assert float(purse.spent) == 0.5


def test_tables_of_an_earlier_langgraph_are_migrated(postgres_address):
    PostgresRunSaver(postgres_address).close()
    with psycopg.connect(postgres_address) as connection:
        connection.execute(
            "ALTER TABLE costada.checkpoint_writes DROP COLUMN task_path;"
            "DELETE FROM costada.checkpoint_migrations WHERE v >= 9"
        )
    PostgresRunSaver(postgres_address).close()
    with psycopg.connect(postgres_address) as connection:
        connection.execute("SELECT task_path FROM costada.checkpoint_writes")
        found = connection.execute("SELECT MAX(v) FROM costada.checkpoint_migrations").fetchall()
    assert found == [(len(PostgresRunSaver.MIGRATIONS) - 1,)]


def test_another_format_is_refused(postgres_address):
    with closing(Database(postgres_address)) as database:
        database.write("UPDATE costada_format SET version = ?", (FORMAT + 1,))
    expected = rf"written by another version of CostAda \(format {FORMAT + 1}, expected {FORMAT}\)"
    with pytest.raises(ValueError, match=expected):
        RunStore.postgres(postgres_address)


def test_what_a_database_keeps_of_us_belongs_to_its_format():
    """A database keeps tables and functions as they were created: other ones are another format."""
    kept = " ".join((TABLES, INDEXES, SERVER_INDEXES, FUNCTIONS, DRAWING, LEASES))
    known = (FORMAT, sha256(kept.encode()).hexdigest()[:16])
    assert known == (5, "1867ba88a0cdca15"), "raise FORMAT, then change this line"


def test_tables_of_something_else_are_refused(postgres_address):
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA costada; CREATE TABLE costada.orders (id INTEGER)")
    with pytest.raises(ValueError, match=r"not a schema of CostAda: .* has the table `orders`"):
        RunStore.postgres(postgres_address)


def test_a_reader_creates_nothing(postgres_address):
    with pytest.raises(ValueError, match="holds no runs of CostAda yet"):
        RunStore.postgres(postgres_address, is_read_only=True)
    with psycopg.connect(postgres_address) as connection:
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'costada'")
        assert found.fetchall() == []


@pytest.mark.parametrize("is_read_only", [True, False])
@pytest.mark.parametrize("table", ["costada_call", "costada_account", "costada_format"])
def test_a_schema_that_lacks_a_table_of_ours_is_refused(postgres_address, table, is_read_only):
    RunStore.postgres(postgres_address).close()
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(f"DROP TABLE costada.{table} CASCADE")
        with pytest.raises(ValueError, match=f"its schema 'costada' lacks the tables {table}, as"):
            RunStore.postgres(postgres_address, is_read_only=is_read_only)
        found = connection.execute("SELECT to_regclass(%s)", (f"costada.{table}",))
        assert found.fetchall() == [(None,)]


def test_a_table_without_its_key_is_damaged(postgres_address):
    with Purse(1, dsn=postgres_address) as purse:
        with psycopg.connect(postgres_address, autocommit=True) as connection:
            connection.execute(
                "ALTER TABLE costada.costada_entry DROP CONSTRAINT costada_entry_pkey"
            )
        with pytest.raises(ValueError, match="its tables of CostAda are damaged"):
            purse.begin("call", 0.5)


@pytest.mark.parametrize("is_read_only", [True, False])
def test_a_user_without_rights_on_the_schema_is_refused_as_that(postgres_address, is_read_only):
    RunStore.postgres(postgres_address).close()
    guest = make_conninfo(postgres_address, user="costada_guest")
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("CREATE USER costada_guest")
        try:
            with pytest.raises(PermissionError, match="may not use the schema 'costada'; grant"):
                RunStore.postgres(guest, is_read_only=is_read_only)
        finally:
            connection.execute("DROP USER costada_guest")


def test_a_store_that_is_opened_for_one_run_names_no_other(postgres_address):
    with RunStore.postgres(postgres_address) as store:
        for name in ("a", "b", "c"):
            store.open_run(name, "costada", "toy")
        assert store.run_ids() == ["a", "b", "c"]
    with RunStore.postgres(postgres_address, "b") as store:
        assert store.run_ids() == ["b"]


def test_what_no_postgres_text_can_hold_comes_back_as_it_was(postgres_address):
    odd = "NUL \0, half a pair \ud800, \udc00\ud800, a whole one \U0001f600"
    with RunStore.postgres(postgres_address) as store:
        store.open_run("run", "costada", "toy")
        row = Candidate(
            id="1.1",
            ticket=1,
            program=Program.of(odd),
            score=0.1 + 0.2,
            objective=5e-324,
            artifacts={"note": odd},
        )
        store.candidates.put("run", row)
        assert store.candidates.get("run", "1.1") == row
        key = CallKey("run", 1, "generation", 1)
        call = call_row(prompt=odd, answer=odd, error=odd, ended_at=2.0**53 - 1)
        store.call_log.put_call("run", call)
        store.call_log.put_outcome(key, Outcome("", odd, OutcomeKind.ANSWER))
        assert list(store.call_log.calls("run")) == [call]
        assert store.call_log.outcome(key).text == odd
        step = trace_row(iteration=1, ticket=2**53, failure=odd, candidate_id=odd[-3:])
        store.put_step("run", 1, {**step, "global_gain": 1e-300, "is_cached": True})
        assert store.last_improvement("run") == odd[-3:]
        assert store.num_cached("run") == 1
        assert store.iterations("run") == {2**53: 1}


def test_a_run_id_with_nul_is_refused_by_name(postgres_address):
    with (
        RunStore.postgres(postgres_address) as store,
        pytest.raises(ValueError, match=r"a value cannot be stored .*NUL"),
    ):
        store.open_run("a\0b", "costada", "toy")


@pytest.mark.parametrize(
    ("address", "match"),
    [
        ("postgresql://u:secret@/d?host=/nowhere", "cannot connect; check host, port, database"),
        ("postgresql://u:secret@127.0.0.1:1/d", "cannot connect; check host, port, database"),
    ],
)
def test_a_server_that_is_not_there_is_named_without_the_password(address, match):
    with pytest.raises(OSError, match=match) as raised:
        RunStore.postgres(address)
    assert raised.value.filename == shown_address(address)
    assert "secret" not in str(raised.value)


def test_an_address_that_cannot_be_read_is_refused_without_repeating_it():
    with pytest.raises(ValueError, match="Postgres address: cannot be read") as raised:
        RunStore.postgres("postgresql://u:secret@h/d?nonsense=1")
    assert "secret" not in str(raised.value)
    with pytest.raises(ValueError, match="address: got one with a #") as raised:
        RunStore.postgres("postgresql://u:secret@h/d#hex")
    assert "secret" not in str(raised.value)
    with pytest.raises(ValueError, match=r"use RunStore\.postgres\(address\)"):
        RunStore("postgresql://u:secret@h/d")


def test_a_database_that_does_not_exist_is_named(postgres_address):
    with pytest.raises(OSError, match='database "absent" does not exist'):
        RunStore.postgres(make_conninfo(postgres_address, dbname="absent"))


@pytest.mark.process
def test_a_wrong_password_is_named_and_not_shown():
    with started_server() as server:
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute("CREATE USER guarded PASSWORD 'right'")
        address = make_conninfo(server.address, user="guarded", password="secret")
        with pytest.raises(OSError, match="password authentication failed") as raised:
            RunStore.postgres(address)
        assert "secret" not in str(raised.value)


def test_a_full_disk_says_what_to_do():
    error = explanation_of(psycopg.errors.DiskFull("could not extend file"), "postgresql://h/d")
    assert isinstance(error, OSError)
    assert str(error).startswith("[Errno 28] no room left on the server; free some")
    assert error.filename == "postgresql://h/d"
