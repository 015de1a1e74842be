"""What a crash of Postgres undoes is written again before anything that rests on it."""

import os
from contextlib import closing
from threading import Thread

import psycopg
import pytest
from postgres_server import started_server
from rows import call_row
from waiting import within

from costada.store.database import Database
from costada.store.lease import LostLease, guarded_by
from costada.store.outage import Patience, waiting_for_database
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.postgres_connections import MAX_CONNECTIONS
from costada.store.postgres_recent_writes import MAX_COMMITS
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate, Program

pytestmark = pytest.mark.process

OWN_SESSIONS = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'costada'"
STEPS = "SELECT iteration FROM costada.costada_step ORDER BY iteration"
TAKE_OVER = "UPDATE costada.costada_lease SET epoch = epoch + 1, pid = 7, host = 'elsewhere'"


def candidate(name):
    return Candidate(id=name, program=Program.of(f"x = {name}\n"), score=0.5)


@pytest.fixture
def server():
    with started_server() as server, waiting_for_database(Patience(60)):
        server.delay_log()
        yield server
        server.continue_log()


@pytest.fixture
def store(server):
    # The heartbeat of a long lease is seldom: it is a durable commit as well.
    with RunStore.postgres(server.address, lease_seconds=3600) as store:
        lease = store.hold("run")
        with guarded_by(lease):
            yield store
        lease.release()


def found_by_others(server, query=STEPS):
    with psycopg.connect(server.address, autocommit=True) as connection:
        return [value for (value,) in connection.execute(query).fetchall()]


def test_rows_that_a_crash_undid_are_there_again_once_the_run_goes_on(server, store):
    store.put_step("run", 1, {"score": 1})
    store.put_step("run", 2, {"score": 2})
    store.put_step("run", 1, {"score": 3})
    text = store.put_text("a text")
    store.candidates.put("run", candidate("1.1"))
    assert found_by_others(server) == [1, 2]
    server.crash()
    assert found_by_others(server) == []
    assert [row["score"] for row in store.steps("run")] == [3, 2]
    server.crash()  # what was written again is on disk
    assert found_by_others(server) == [1, 2]
    store.candidates.forget()
    with RunStore.postgres(server.address) as other:
        assert other.text(text) == "a text"
        assert other.candidates.get("run", "1.1").score == 0.5


def test_a_durable_commit_takes_earlier_ones_along(server, store):
    store.put_step("run", 1, {})
    store.call_log.put_call("run", call_row())
    store.put_step("run", 2, {})
    server.crash()
    assert found_by_others(server) == [1]
    assert store.step_line("run", 2) == "{}"
    assert found_by_others(server) == [1, 2]


def test_requests_and_answers_are_on_disk_before_the_run_goes_on(server, store):
    calls = "SELECT status FROM costada.costada_call ORDER BY n"
    number = store.call_log.put_call("run", call_row())
    server.crash()
    assert len(found_by_others(server, calls)) == 1
    store.call_log.finish_call("run", number, call_row(answer="an answer"))
    server.crash()
    assert found_by_others(server, calls) == ["done"]
    (call,) = store.call_log.calls("run")
    assert call.answer == "an answer"


def test_what_no_lease_guards_is_on_disk_at_once(server):
    with RunStore.postgres(server.address) as store:
        store.put_step("run", 1, {})
        server.crash()
        assert found_by_others(server) == [1]


def test_an_older_row_does_not_come_back_over_a_later_statement(server, store):
    database = store._db
    database.put_row("costada_tactics", ("run", 1, "old"))
    database.write("UPDATE costada_tactics SET record = 'new'", ())
    server.crash()
    assert database.rows("SELECT record FROM costada_tactics") == [("new",)]


def test_a_server_that_is_stopped_in_order_has_lost_nothing(server, store):
    store.put_step("run", 1, {})
    recent = store._db.engine.recent
    before = recent.num_crashes
    server.continue_log()
    server.control("restart", "--mode=fast")
    assert found_by_others(server) == [1]
    assert len(store.steps("run")) == 1
    assert recent.num_crashes == before


def test_rows_of_a_run_that_another_process_took_over_are_not_written_again(server, store):
    store.put_step("run", 1, {})
    store.put_text("a text")
    server.crash()
    found_by_others(server, f"{TAKE_OVER} RETURNING 1")
    assert store.steps("run") == []
    assert found_by_others(server, "SELECT 1 FROM costada.costada_blob") == [1]
    with pytest.raises(LostLease, match="process 7 on elsewhere took it over"):
        store.put_step("run", 2, {})


def test_rows_are_there_before_a_checkpoint_that_is_written_after_a_crash(server, store):
    with closing(PostgresRunSaver(server.address)) as saver:
        store.put_step("run", 1, {})
        server.crash()
        saver._found("SELECT 1", ())
        assert found_by_others(server) == [1]


def write_nothing(other):
    other._db.write("UPDATE costada_tactics SET record = 'new'", ())


@pytest.mark.parametrize("write", [lambda other: other.put_text("known"), write_nothing])
def test_a_write_without_a_lease_that_changes_nothing_loses_no_row(server, store, write):
    with guarded_by(None), RunStore.postgres(server.address) as other:
        store.put_text("known")
        with guarded_by(lease := store.hold("run")):
            store.put_step("run", 1, {})
        write(other)
    server.crash()
    store.put_step("run", 2, {})
    assert found_by_others(server) == [1, 2]
    lease.release()


def test_a_known_text_that_no_lease_guards_is_on_disk_at_once(server, store):
    name = store.put_text("known")
    with guarded_by(None), RunStore.postgres(server.address) as other:
        assert other.put_text("known") == name
        server.crash()
        assert found_by_others(server, "SELECT hash FROM costada.costada_blob") == [name]


def test_a_few_commits_are_kept_at_most(server, store):
    for number in range(1, MAX_COMMITS + 3):
        store.put_step("run", number, {})
    server.crash()
    assert len(found_by_others(server)) == MAX_COMMITS + 1
    assert len(store.steps("run")) == MAX_COMMITS + 2


def test_a_forked_process_writes_nothing_of_its_parent(server, store):
    store.put_step("run", 1, {})
    server.crash()
    child = os.fork()
    if child == 0:
        with closing(Database(server.address)) as database:
            os._exit(len(database.rows(STEPS)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(store.steps("run")) == 1


def test_threads_lose_nothing_that_was_confirmed_however_often_the_server_crashes(server, store):
    confirmed = [[] for _ in range(4)]
    is_over = False

    def write(own):
        with waiting_for_database(Patience(60)), guarded_by(lease):
            while not is_over:
                number = len(confirmed[own]) + 1
                name = store.put_text(f"{own} {number}")
                store.put_step(f"run-{own}", 1 + number % 3, {"number": number})
                if number % 5 == own:
                    store.candidates.put(f"run-{own}", candidate(f"{number}.1"))
                confirmed[own].append(name)

    lease = store.hold("run")
    threads = [Thread(target=write, args=(own,)) for own in range(4)]
    for each in threads:
        each.start()
    for _ in range(4):
        before = [len(each) for each in confirmed]
        within(
            60,
            lambda before=before: all(
                len(each) > seen + 5 for each, seen in zip(confirmed, before, strict=True)
            ),
        )
        server.crash()
    is_over = True
    for each in threads:
        each.join()
    lease.release()
    with RunStore.postgres(server.address) as other:
        for own, names in enumerate(confirmed):
            assert [other.text(name) for name in names] == [
                f"{own} {number}" for number in range(1, len(names) + 1)
            ]
            last = {1 + number % 3: number for number in range(1, len(names) + 1)}
            found = [row["number"] for row in other.steps(f"run-{own}")]
            assert found == [last[iteration] for iteration in sorted(last)]
            asked = [f"{number}.1" for number in range(1, len(names) + 1) if number % 5 == own]
            assert len(other.candidates.get_many(f"run-{own}", asked)) == len(asked)


def test_runs_that_share_connections_lose_nothing_however_often_the_server_is_killed(server):
    num_runs = 24
    confirmed = [[] for _ in range(num_runs)]
    is_over = False

    def write(own):
        with (
            waiting_for_database(Patience(60)),
            RunStore.postgres(server.address, lease_seconds=3600) as store,
            closing(PostgresRunSaver(server.address)) as saver,
        ):
            lease = store.hold(f"run-{own}")
            names = {"thread_id": f"run-{own}", "checkpoint_ns": "", "checkpoint_id": "1"}
            place = {"configurable": names}
            with guarded_by(lease):
                while not is_over:
                    number = len(confirmed[own]) + 1
                    name = store.put_text(f"{own} {number}")
                    store.put_step(f"run-{own}", number, {"number": number})
                    if number % 4 == 0:
                        saver.put_writes(place, [("x", number)], f"{number}")
                    confirmed[own].append(name)
            lease.release()

    threads = [Thread(target=write, args=(own,)) for own in range(num_runs)]
    for each in threads:
        each.start()
    for kill in (server.crash, server.kill, server.crash, server.kill):
        before = [len(each) for each in confirmed]
        within(
            120,
            lambda before=before: all(
                len(each) > seen + 5 for each, seen in zip(confirmed, before, strict=True)
            ),
        )
        ((number,),) = [found_by_others(server, OWN_SESSIONS)]
        assert number <= MAX_CONNECTIONS + 2  # one of the leases; one that is about to end
        kill()
    is_over = True
    for each in threads:
        each.join()
    with RunStore.postgres(server.address) as other:
        for own, names in enumerate(confirmed):
            numbers = range(1, len(names) + 1)
            assert [other.text(name) for name in names] == [f"{own} {each}" for each in numbers]
            assert [row["number"] for row in other.steps(f"run-{own}")] == [*numbers]
