"""A queue of runs in Postgres: clients add jobs, and servers take them, each by one server only.

A server holds a lease by its name. What it has taken is free again once that lease is over, and
the lease of each run keeps a server that was only thought to be dead from writing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import psycopg
from psycopg.rows import class_row

from costada.store.postgres_connections import IS_LOCKED, SCHEMA, Connections
from costada.store.postgres_lease import LOCK
from costada.store.postgres_schema import CREATION_LOCK, prepare
from costada.store.rows import record

SERVER = "server "
"""Begins the name of a server's lease."""

QUEUE_LOCK = 7_234_861_456
"""Key of the advisory lock under which one server at a time takes jobs."""

FAILED, UNPAID, CANCELLED = "failed", "unpaid", "cancelled"
"""How a job ends whose run does not: it fails, its team has too little, or it is cancelled."""

FINISHED = "finished"
"""The state of a job whose run has stopped for a reason of its own."""

STATES = (FINISHED, FAILED, UNPAID, CANCELLED)
"""What stands for all jobs in that state, in place of a run."""

TABLE = """
CREATE TABLE IF NOT EXISTS costada_job (
    number BIGINT GENERATED ALWAYS AS IDENTITY, run TEXT PRIMARY KEY, team TEXT NOT NULL,
    problem TEXT NOT NULL, priority BIGINT NOT NULL, chosen TEXT NOT NULL,
    added TIMESTAMPTZ NOT NULL DEFAULT now(), due TIMESTAMPTZ NOT NULL DEFAULT now(),
    server TEXT NOT NULL DEFAULT '',
    has_begun BOOLEAN NOT NULL DEFAULT FALSE, is_cancelled BOOLEAN NOT NULL DEFAULT FALSE,
    ended TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS costada_server (name TEXT PRIMARY KEY, problems TEXT[] NOT NULL);
CREATE INDEX IF NOT EXISTS costada_job_in_order ON costada_job (team, priority DESC, number)
    WHERE ended = '';
CREATE INDEX IF NOT EXISTS costada_job_taken ON costada_job (server)
    WHERE ended = '' AND server <> '';
"""

OF_SERVER = f"name LIKE '{SERVER}%'"
ENDED = "SELECT team, ended, count(*) AS number FROM costada_job WHERE ended <> '' GROUP BY 1, 2"

# One statement changes the counts once, after its rows: two statements cannot wait for each other.
COUNTED = f"""
CREATE INDEX IF NOT EXISTS costada_job_ended ON costada_job (number) WHERE ended <> '';
CREATE INDEX IF NOT EXISTS costada_job_name ON costada_job (run COLLATE "C");
CREATE INDEX IF NOT EXISTS costada_lease_of_server ON costada_lease (name) WHERE {OF_SERVER};
CREATE TABLE costada_job_count (
    team TEXT, ended TEXT, number BIGINT NOT NULL, PRIMARY KEY (team, ended)
);
CREATE OR REPLACE FUNCTION costada_count_jobs() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO {SCHEMA}.costada_job_count AS known
            SELECT team, ended, sum(more) FROM (
                SELECT team, ended, -1 AS more FROM before
                UNION ALL SELECT team, ended, 1 FROM after
            ) AS changed WHERE ended <> '' GROUP BY 1, 2 HAVING sum(more) <> 0 ORDER BY 1, 2
            ON CONFLICT (team, ended) DO UPDATE SET number = known.number + EXCLUDED.number;
    ELSE
        INSERT INTO {SCHEMA}.costada_job_count AS known
            SELECT team, ended, -count(*) FROM before WHERE ended <> '' GROUP BY 1, 2 ORDER BY 1, 2
            ON CONFLICT (team, ended) DO UPDATE SET number = known.number + EXCLUDED.number;
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS costada_jobs_change ON costada_job;
DROP TRIGGER IF EXISTS costada_jobs_leave ON costada_job;
CREATE TRIGGER costada_jobs_change AFTER UPDATE ON costada_job
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION costada_count_jobs();
CREATE TRIGGER costada_jobs_leave AFTER DELETE ON costada_job
    REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION costada_count_jobs();
INSERT INTO costada_job_count {ENDED};
"""  # noqa: S608
"""The counts of ended jobs, which the server keeps, also for an earlier version of this one."""

TAKEN_OF = """
WITH own AS (SELECT unnest(%(own)s::text[]) COLLATE "C" AS own),
    above AS (SELECT unnest(%(above)s::text[]) COLLATE "C" AS above)
SELECT name, above FROM above JOIN costada_named ON name = above
UNION ALL SELECT run, above FROM above JOIN costada_job ON run COLLATE "C" = above
UNION ALL SELECT name, own FROM own JOIN costada_named ON name > own || '/' AND name < own || '0'
UNION ALL SELECT run, own FROM own JOIN costada_job
    ON run COLLATE "C" > own || '/' AND run COLLATE "C" < own || '0'
LIMIT %(most)s
"""
"""Runs that keep others from a name: its own, and those with a folder above or below its folder.

The character after `/` is `0`.
"""

ADD = """
INSERT INTO costada_job (run, team, problem, priority, chosen) VALUES (%s, %s, %s, %s, %s)
"""

COLUMNS = (
    "run, team, problem, priority, number, chosen, server, has_begun, is_cancelled, ended, error"
)

LIVE = f"""
SELECT name FROM costada_lease WHERE {OF_SERVER}
    AND extract(epoch FROM clock_timestamp() - beat) <= seconds AND {IS_LOCKED.format(LOCK)}
"""  # noqa: S608
"""The servers that hold their lease."""

FORGET_SERVERS = f"""
DELETE FROM costada_lease WHERE {OF_SERVER} AND beat < now() - interval '1 day';
DELETE FROM costada_server WHERE name NOT IN (SELECT name FROM costada_lease);
"""  # noqa: S608
"""A server that is stopped for longer and comes back has lost its lease."""

NUM_RUNNING = """
SELECT team, count(*) FROM costada_job
WHERE ended = '' AND server <> '' AND server = ANY(%s) GROUP BY team
"""
COUNTS = """
SELECT team, '', server = ANY(%s), count(*) FROM costada_job WHERE ended = '' GROUP BY 1, 2, 3
UNION ALL SELECT team, ended, FALSE, number FROM
"""
JOBS = f"SELECT {COLUMNS} FROM costada_job"  # noqa: S608
LATEST = f"""
{JOBS} WHERE ended = '' UNION ALL
({JOBS} WHERE ended <> '' ORDER BY number DESC LIMIT %s) ORDER BY number
"""
RETRY = """
UPDATE costada_job SET ended = '', error = '', server = '', is_cancelled = FALSE, due = now()
WHERE ended = ANY(%s) AND {} = %s
"""
FORGET = "DELETE FROM costada_job WHERE ended <> '' AND {} = %s"
FORGET_FINISHED = "DELETE FROM costada_job WHERE ended <> '' AND NOT ended = ANY(%s)"
WAITING = f"""
SELECT {COLUMNS} FROM unnest(%s::text[]) AS of_team, LATERAL (
    SELECT * FROM costada_job WHERE team = of_team AND ended = '' AND due <= now()
        AND problem = ANY(%s) AND NOT server = ANY(%s)
        ORDER BY priority DESC, number LIMIT %s) AS first
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Job:
    """A run that somebody wants.

    Attributes:
        run: Its name in the database.
        team: Whose purse pays for it.
        problem: The name of its problem.
        priority: A higher one is taken first, within a team.
        number: Counts the jobs as they were added.
        chosen: Further settings that were chosen for it, as JSON.
        server: The server that has taken it; empty before.
        has_begun: Whether a server has claimed the name for the run.
        is_cancelled: Whether it was cancelled.
        ended: Why its run has stopped, or why it was not executed; empty before.
        error: What it failed with, or why it is tried again.
    """

    run: str
    team: str
    problem: str
    priority: int
    number: int
    chosen: str
    server: str = ""
    has_begun: bool = False
    is_cancelled: bool = False
    ended: str = ""
    error: str = ""

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings that were chosen."""
        return {"problem": self.problem, **record(self.chosen)}

    def state(self, live: Iterable[str]) -> str:
        """Its state, where these servers hold their lease."""
        return state_of(self.ended, is_running=self.server in live)


def state_of(ended: str, *, is_running: bool) -> str:
    """What a job does: `waiting`, `running`, `finished`, or why its run has not finished."""
    if ended:
        return ended if ended in (FAILED, UNPAID, CANCELLED) else FINISHED
    return "running" if is_running else "waiting"


class JobQueue:
    """The jobs in a database."""

    def __init__(self, address: str, *, is_read_only: bool = False) -> None:
        """Connect; creates the tables unless it only reads.

        Raises:
            ValueError: The address is malformed, or the tables are not those of this version.
            OSError: The server cannot be reached.
        """
        self._connections = Connections(address, is_read_only=is_read_only)
        try:
            with self._connections.lent() as connection:
                self._prepare(connection, is_read_only=is_read_only)
        except BaseException:  # raised again: the connections are closed on the way
            self._connections.close()
            raise

    def _prepare(self, connection: psycopg.Connection[Any], *, is_read_only: bool) -> None:
        prepare(connection, self._connections.name, is_read_only=is_read_only)
        if is_read_only or _has(connection, "costada_job_count"):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATION_LOCK,))
            connection.execute(TABLE)
            if not _has(connection, "costada_job_count"):
                connection.execute(COUNTED.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def add(self, team: str, priority: int, jobs: Mapping[str, Mapping[str, object]]) -> str | None:
        """Add jobs, each with the name of its run, and problem and settings that it chooses.

        Returns:
            A run or a job that keeps it from one of the names, and then no job was added; else
            `None`.
        """
        rows = []
        for run, chosen in jobs.items():
            others = {name: each for name, each in chosen.items() if name != "problem"}
            rows.append((run, team, chosen["problem"], priority, json.dumps(others)))
        with self._connections.lent() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (QUEUE_LOCK,))
            above = {part for run in jobs for part in _path(run)}
            names = {"own": [*jobs], "above": [*above], "most": 1}
            known = connection.execute(TAKEN_OF, names).fetchall()
            if known:
                return str(known[0][0])
            with connection.cursor() as cursor:
                cursor.executemany(ADD, rows)
        return None

    def taken(self, names: Sequence[str]) -> set[str]:
        """Those of these names, which have no slash, that no new job can have."""
        wanted = {"own": [*names], "above": [*names], "most": None}
        with self._connections.lent() as connection:
            return {name for _, name in connection.execute(TAKEN_OF, wanted).fetchall()}

    def take(
        self,
        server: str,
        teams: Sequence[str],
        problems: Sequence[str],
        most: int,
        choose: Callable[[Sequence[Job], Mapping[str, int]], Sequence[Job]],
    ) -> Sequence[Job]:
        """Take jobs for a server; none while it does not hold its lease.

        Args:
            server: The name of its lease.
            teams: Whose jobs it takes.
            problems: The problems of jobs that it takes.
            most: Jobs of each team to choose from.
            choose: Gets the waiting jobs, the first of each team in their order, and how many jobs
                of each team run; returns those to take.
        """
        with self._connections.lent() as connection, connection.transaction():
            # One server at a time: another one would count the same jobs of a team.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (QUEUE_LOCK,))
            live = self._live(connection)
            if server not in live:
                return []
            running = dict(connection.execute(NUM_RUNNING, (live,)).fetchall())
            with connection.cursor(row_factory=class_row(Job)) as cursor:
                found = cursor.execute(WAITING, ([*teams], [*problems], live, most)).fetchall()
            chosen = choose(found, running)
            # A client that cancels or removes a job does not wait for the lock.
            taken = connection.execute(
                "UPDATE costada_job SET server = %s WHERE run = ANY(%s) AND ended = ''"
                " RETURNING run",
                (server, [each.run for each in chosen]),
            )
            runs = {run for (run,) in taken.fetchall()}
            return [each for each in chosen if each.run in runs]

    def begin(self, job: Job, server: str) -> bool:
        """Note that a run of the job's name is that of the job, from now on.

        Returns whether the server still has the job.
        """
        statement = "UPDATE costada_job SET has_begun = TRUE WHERE run = %s AND server = %s"
        return self._write(statement, job.run, server) == 1

    def end(self, job: Job, server: str, ended: str, error: str = "") -> None:
        """Note why a job has ended, unless another server has taken it meanwhile."""
        statement = "UPDATE costada_job SET ended = %s, error = %s WHERE run = %s AND server = %s"
        self._write(statement, ended, error, job.run, server)

    def release(self, run: str, server: str, error: str = "", seconds: float = 0.0) -> None:
        """Let any server take a job after so many seconds; the error says why it has to."""
        self._write(
            "UPDATE costada_job SET server = '', error = %s, due = now() +"
            " make_interval(secs => %s) WHERE run = %s AND server = %s AND ended = ''",
            error,
            seconds,
            run,
            server,
        )

    def cancel(self, run: str) -> bool:
        """Cancel a job that has not ended; returns whether there is one.

        One that has begun is ended by a server, which returns its money.
        """
        cancelled = (
            "UPDATE costada_job SET is_cancelled = TRUE, due = now(), ended = CASE WHEN server = ''"
            " AND NOT has_begun THEN %s ELSE '' END WHERE run = %s AND ended = ''"
        )
        return self._write(cancelled, CANCELLED, run) == 1

    def retry(self, run: str) -> int:
        """Let a job be tried again whose run has not finished; returns how many there are.

        In place of a run, its state stands for all jobs in it.
        """
        return self._write(RETRY.format(_column_of(run)), [FAILED, UNPAID, CANCELLED], run)

    def forget(self, run: str) -> int:
        """Remove a job that has ended; returns how many there were.

        In place of a run, its state stands for all jobs in it. The runs stay, and so do their names
        and charges.
        """
        if run == FINISHED:
            return self._write(FORGET_FINISHED, [FAILED, UNPAID, CANCELLED])
        return self._write(FORGET.format(_column_of(run)), run)

    def offer(self, server: str, problems: Sequence[str]) -> None:
        """Note which problems a server offers, and forget servers that ended long ago."""
        with self._connections.lent() as connection:
            connection.execute(FORGET_SERVERS.encode())
        self._write(
            "INSERT INTO costada_server VALUES (%s, %s)"
            " ON CONFLICT (name) DO UPDATE SET problems = EXCLUDED.problems",
            server,
            [*problems],
        )

    def withdraw(self, server: str) -> None:
        """Forget what a server has offered."""
        self._write("DELETE FROM costada_server WHERE name = %s", server)

    def offered(self) -> set[str]:
        """The problems that servers offer which hold their lease."""
        query = "SELECT unnest(problems) FROM costada_server WHERE name = ANY(%s)"
        with self._connections.lent() as connection:
            found = connection.execute(query, (self._live(connection),)).fetchall()
        return {name for (name,) in found}

    def taken_by(self, server: str) -> list[Job]:
        """The jobs that a server has taken and that have not ended."""
        return self._jobs(f"{JOBS} WHERE ended = '' AND server <> '' AND server = %s", server)

    def jobs(self) -> list[Job]:
        """All jobs, in the order in which they were added; none before the first was."""
        return self._jobs(f"{JOBS} ORDER BY number")

    def latest(self, most: int) -> list[Job]:
        """As `jobs`, but of the ended ones only as many as given, those that were added last."""
        return self._jobs(LATEST, most)

    def jobs_of(self, runs: Sequence[str]) -> list[Job]:
        """The jobs of these runs."""
        return self._jobs(f"{JOBS} WHERE run = ANY(%s)", [*runs])

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many jobs each team has in each state."""
        counts: Counter[tuple[str, str]] = Counter()
        with self._connections.lent() as connection:
            if not _has(connection, "costada_job"):
                return counts
            is_kept = _has(connection, "costada_job_count")
            of_ended = "costada_job_count" if is_kept else f"({ENDED}) AS ended"
            query = f"{COUNTS} {of_ended}".encode()
            for row in connection.execute(query, (self._live(connection),)).fetchall():
                team, ended, is_running, number = row
                counts[team, state_of(ended, is_running=is_running)] += number
        return counts

    def live_servers(self) -> list[str]:
        """The servers that hold their lease."""
        with self._connections.lent() as connection:
            return self._live(connection)

    def _live(self, connection: psycopg.Connection[Any]) -> list[str]:
        return [name for (name,) in connection.execute(LIVE).fetchall()]

    def _jobs(self, query: str, *values: object) -> list[Job]:
        with (
            self._connections.lent() as connection,
            connection.cursor(row_factory=class_row(Job)) as cursor,
        ):
            if not _has(connection, "costada_job"):
                return []
            return cursor.execute(query.encode(), values).fetchall()

    def _write(self, statement: str, *values: object) -> int:
        with self._connections.lent() as connection:
            return connection.execute(statement.encode(), values).rowcount


def _has(connection: psycopg.Connection[Any], table: str) -> bool:
    """Whether the schema has a table."""
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{SCHEMA}.{table}",))
    return found.fetchall() == [(True,)]


def _column_of(run: str) -> str:
    """The column that tells a job by its run, or jobs by their state."""
    return "ended" if run in STATES else "run"


def _path(run: str) -> Iterator[str]:
    """The names that lead to a run, and its own: `a`, `a/b` and so on."""
    parts = run.split("/")
    return ("/".join(parts[:number]) for number in range(1, len(parts) + 1))
