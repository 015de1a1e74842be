"""A queue with many ended jobs answers as fast as an empty one, and ended jobs can be removed."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from costada.agents.job_clients import add_jobs
from costada.runs.shared_purse import PurseAddress
from costada.store import job_queue
from costada.store.address import shown_address
from costada.store.job_queue import SERVER, JobQueue
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

NUM_ENDED = 20_000
MOST_ROWS = 1_000
"""Rows that an answer may read where 20,000 jobs have ended."""


@pytest.fixture
def database(postgres_address):
    address = shown_address(postgres_address)
    PurseAddress(address, "red").create(100, "crossing").close()
    return address


def connected(database):
    return psycopg.connect(database, autocommit=True, options="-c search_path=costada")


def add_ended(connection, number):
    """Add jobs of each end, and one that waits."""
    connection.execute(
        "INSERT INTO costada_job (run, team, problem, priority, chosen, server, has_begun)"
        " SELECT 'old/seed-' || i, 'red', 'toy', 0, '{\"budget\": 1}', 'server 1', TRUE"
        " FROM generate_series(0, %s) AS i",
        (number,),
    )
    connection.execute(
        "UPDATE costada_job SET ended = (ARRAY['budget', 'target', 'failed', 'unpaid'])"
        "[1 + number %% 4] WHERE run <> %s",
        (f"old/seed-{number}",),
    )


def rows_read(plan):
    """The most rows that a step of a plan has looked at."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return max([own * plan["Actual Loops"], *map(rows_read, plan.get("Plans", ()))])


def counted(database):
    """The states of all jobs, counted one by one."""
    with JobQueue(database) as queue:
        states = [job.state(()) for job in queue.jobs()]
    return {("red", state): states.count(state) for state in states}


def test_an_answer_does_not_read_the_jobs_that_have_ended(database):
    with JobQueue(database) as queue, connected(database) as connection:
        add_ended(connection, NUM_ENDED)
        connection.execute(
            "INSERT INTO costada_lease SELECT 'run ' || run, 1, '', 1, now(), now(), 1"
            " FROM costada_job"
        )
        connection.execute("ANALYZE")
        names = {"own": ["new"], "above": ["new"], "most": None}
        for statement, values in [
            (job_queue.LIVE, None),
            (job_queue.LATEST, [100]),
            (f"{job_queue.COUNTS} costada_job_count", [[]]),
            (job_queue.NUM_RUNNING, [[]]),
            (job_queue.WAITING, [["red"], ["toy"], [], 100]),
            (job_queue.TAKEN_OF, names),
            (job_queue.RETRY.format("run"), [["failed"], "old/seed-2"]),
            (job_queue.FORGET.format("run"), ["old/seed-2"]),
        ]:
            query = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".encode()
            [(found,)] = connection.execute(query, values).fetchall()
            assert rows_read(found[0]["Plan"]) < MOST_ROWS, statement
        assert len(queue.latest(100)) == 101
        assert queue.latest(NUM_ENDED) == queue.jobs()


def test_counts_follow_every_change_of_a_job(database):
    with JobQueue(database) as queue, connected(database) as connection:
        assert queue.counts() == {}
        add_ended(connection, 40)
        assert queue.counts() == counted(database)
        assert queue.counts()["red", "finished"] == 20
        assert queue.retry("failed") == 10
        connection.execute("DELETE FROM costada_job WHERE ended = 'unpaid'")
        known = {state: number for state, number in queue.counts().items() if number}
        assert known == counted(database) == {("red", "waiting"): 11, ("red", "finished"): 20}


def test_counts_are_exact_where_clients_change_jobs_at_once(database):
    def change(number):
        run = f"old/seed-{number % 40}"
        queue.retry(run if number % 3 else "failed")
        queue.cancel(run)
        with connected(database) as own:
            own.execute("UPDATE costada_job SET ended = 'failed' WHERE run = %s", (run,))

    with JobQueue(database) as queue, connected(database) as connection:
        add_ended(connection, 40)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(change, range(200)))
        known = {state: number for state, number in queue.counts().items() if number}
        assert known == counted(database)


def test_a_queue_of_an_earlier_version_is_counted_and_gets_what_it_lacks(database):
    with connected(database) as connection:
        with JobQueue(database, is_read_only=True) as queue:
            assert queue.counts() == {}
            assert queue.latest(9) == queue.jobs() == []
            connection.execute(job_queue.TABLE)
            add_ended(connection, 40)
            expected = {(team, state): number for (team, state), number in queue.counts().items()}
            assert expected == counted_before(connection)
            assert len(queue.latest(9)) == 10
        for _ in range(2):
            with JobQueue(database) as queue:
                assert queue.counts() == expected
        connection.execute("UPDATE costada_job SET ended = 'budget' WHERE ended = ''")
        with JobQueue(database) as queue:
            assert queue.counts()["red", "finished"] == expected["red", "finished"] + 1


def test_counts_that_were_lost_are_made_again(database):
    with JobQueue(database) as queue, connected(database) as connection:
        add_ended(connection, 40)
        expected = queue.counts()
        connection.execute("DROP TABLE costada_job_count")
        assert queue.counts() == expected
    with JobQueue(database) as queue:
        assert queue.forget("failed") == 10
        assert queue.counts() == {**expected, ("red", "failed"): 0}


def test_a_database_that_lacks_a_table_is_not_taken_for_one_without_the_team(database):
    with connected(database) as connection:
        connection.execute("DROP TABLE costada_account CASCADE")
    with pytest.raises(ValueError, match="lacks the tables costada_account"):
        add_jobs(database, "red", "toy", {"budget": 1}, [1])


def counted_before(connection):
    found = connection.execute("SELECT ended FROM costada_job").fetchall()
    states = [job_queue.state_of(ended, is_running=False) for (ended,) in found]
    return {("red", state): states.count(state) for state in states}


def test_removed_jobs_are_gone_and_the_names_of_their_runs_stay_taken(database):
    with JobQueue(database) as queue, RunStore.postgres(database) as store:
        lease = store.hold(f"{SERVER}1")
        first, second, third = add_jobs(database, "red", "toy", {"budget": 1}, range(3))
        jobs = {job.run: job for job in queue.take(f"{SERVER}1", ["red"], ["toy"], 9, first_two)}
        store.named.claim(first, "{}")
        queue.end(jobs[first], f"{SERVER}1", "budget")
        queue.end(jobs[second], f"{SERVER}1", "failed", "no power")
        assert queue.forget(third) == queue.forget("unpaid") == 0
        assert queue.forget("finished") == queue.forget(second) == 1
        assert [job.run for job in queue.jobs()] == [third]
        assert queue.counts()["red", "finished"] == 0
        assert add_jobs(database, "red", "toy", {"budget": 1}, range(2)) == ["toy-2", "toy-4"]
        with pytest.raises(ValueError, match="name: got 'toy-1', but 'toy-1' is taken"):
            add_jobs(database, "red", "toy", {"budget": 1}, [1], name=first)
        lease.release()


def first_two(jobs, running):
    return jobs[:2]


def test_a_job_that_is_cancelled_while_a_server_takes_jobs_is_not_taken(database):
    with JobQueue(database) as queue, RunStore.postgres(database) as store:
        lease = store.hold(f"{SERVER}1")
        first, second = add_jobs(database, "red", "toy", {"budget": 1}, range(2))

        def cancelled_meanwhile(jobs, _):
            assert queue.cancel(first)
            return jobs

        taken = queue.take(f"{SERVER}1", ["red"], ["toy"], 9, cancelled_meanwhile)
        assert [job.run for job in taken] == [second]
        assert queue.jobs_of([first])[0].server == ""
        lease.release()


OLD = "UPDATE costada.costada_lease SET beat = beat - interval '25 hours' WHERE name = %s"
SERVERS = (
    f"SELECT name FROM costada.costada_lease WHERE name LIKE '{SERVER}%%'"
    " UNION SELECT name FROM costada.costada_server"
)


def test_servers_that_ended_long_ago_are_forgotten(database):
    gone, ended, own = (f"{SERVER}{name}" for name in ("gone", "ended", "own"))
    with JobQueue(database) as queue, RunStore.postgres(database) as store:
        for name in (gone, ended, own):
            lease = store.hold(name)
            queue.offer(name, ["toy"])
            if name != own:
                lease.release()
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(OLD, (gone,))
            queue.offer(own, ["toy", "other"])
            assert {name for (name,) in connection.execute(SERVERS)} == {ended, own}
        assert queue.offered() == {"toy", "other"}
        lease.check()
