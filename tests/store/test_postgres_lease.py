"""Taking a lease that another session holds, or held a moment ago."""

import threading
import time
from contextlib import closing
from threading import Timer

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from costada.store.database import Database
from costada.store.lease import LostLease
from costada.store.postgres_lease import PATIENCE_SECONDS, Leases
from costada.store.run_store import RunStore


@pytest.fixture
def holders(postgres_address):
    """Two sessions that take leases as two processes would."""
    RunStore.postgres(postgres_address).close()  # creates the tables
    yield Leases(postgres_address), Leases(postgres_address)
    for thread in threading.enumerate():
        if thread.name == "costada-lease":  # closes the connection
            thread.join()


def taken_while_it_becomes_free(first, second):
    """The lease that is taken and the one before; `None` if the machine was too slow to free it."""
    held, freed = first.acquire("run", 30.0), list[float]()

    def free():
        held.release()
        freed.append(time.monotonic())

    timer = Timer(PATIENCE_SECONDS / 4, free)
    began = time.monotonic()
    timer.start()
    try:
        return second.acquire("run", 30.0), held
    except ValueError:
        timer.join()
        assert freed[0] - began > PATIENCE_SECONDS
        return None
    finally:
        timer.join()


def test_a_lease_that_becomes_free_within_a_second_is_taken(holders):
    while (found := taken_while_it_becomes_free(*holders)) is None:
        pass
    taken, held = found
    assert taken.epoch > held.epoch
    taken.release()


def test_a_lease_that_stays_held_is_refused_after_a_second(holders):
    first, second = holders
    held = first.acquire("run", 30.0)
    began = time.monotonic()
    with pytest.raises(ValueError, match="another process is at work in this run: process"):
        second.acquire("run", 30.0)
    assert time.monotonic() - began >= PATIENCE_SECONDS
    held.release()


def test_a_lease_that_went_back_with_its_database_is_not_held_beside_the_next_one(
    holders, postgres_address
):
    """A standby that has not got it takes over, and another process takes the run there."""
    first, second = holders
    lost = first.acquire("run", 30.0)
    with psycopg.connect(postgres_address, autocommit=True) as standby:
        standby.execute("UPDATE costada.costada_lease SET epoch = 0, seconds = 0")
    held = second.acquire("run", 30.0)
    first.renew()
    with pytest.raises(LostLease):
        lost.check()
    second.renew()
    held.check()
    held.release()
    lost.release()


def test_two_texts_for_one_database_share_the_leases_of_a_process(postgres_address):
    another = make_conninfo(postgres_address, connect_timeout=9, port=5432)
    with closing(Database(postgres_address)) as one, closing(Database(another)) as other:
        held, again = one.engine.hold("run"), other.engine.hold("run")
        assert held is again
        held.release()
        again.release()


NOTED = """
CREATE TABLE noted (idle TEXT);
CREATE FUNCTION note() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO noted VALUES (current_setting('idle_in_transaction_session_timeout'));
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT ON costada_lease EXECUTE FUNCTION note();
"""


def test_the_server_ends_the_session_of_a_process_that_stops_while_it_takes_a_run(
    holders, postgres_address
):
    with psycopg.connect(postgres_address, options="-c search_path=costada") as connection:
        connection.execute(NOTED)
        connection.commit()
        for seconds in (8.0, 60.0):
            holders[0].acquire(f"run of {seconds}", seconds).release()
        found = connection.execute("SELECT idle FROM noted ORDER BY idle DESC").fetchall()
    assert found == [("4s",), ("15s",)]
