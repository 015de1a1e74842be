"""The statements of a `Database` in a Postgres database that several machines can reach."""

import errno
import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import RawCursor

from costada.store.lease import LEASE_SECONDS, Lease
from costada.store.postgres_connections import LOST_IN_COMMIT, Connections, explaining, first_line
from costada.store.postgres_lease import HOLDERS, check, guarded, leases_in
from costada.store.postgres_schema import DRAW, REPLACING, WAIT_FOR_DISK, prepare

MARK = re.compile(r"\?(\d*)")
QUERY = re.compile(rb"\s*(SELECT|WITH)\b|.*\bRETURNING\b", re.DOTALL)
BEGIN, COMMIT = b"BEGIN", b"COMMIT"
DURABLE = b"SET LOCAL synchronous_commit TO on"
MAX_IDLE = 15.0
"""Seconds after which the server ends the session of a client that stopped in a transaction."""

BEGIN_SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
PUT_BLOB = b"INSERT INTO costada_blob (hash, data) VALUES ($1, $2) ON CONFLICT DO NOTHING"


@lru_cache(maxsize=1024)
def translate(statement: str, *, locks: bool = False) -> bytes:
    """A statement in Postgres' words: `$1` in place of `?` and `?1`, no hints on indexes."""
    numbers = iter(range(1, 1 + statement.count("?")))
    marked = MARK.sub(lambda mark: f"${mark[1] or next(numbers)}", statement)
    ending = " FOR UPDATE" if locks else ""
    return f"{marked.replace(' NOT INDEXED', '')}{ending}".encode()


@lru_cache(maxsize=1024)
def is_query(statement: bytes) -> bool:
    """Whether a statement returns rows."""
    return bool(QUERY.match(statement))


class PostgresEngine:
    """Executes statements on one connection per transaction, others in autocommit mode.

    A transaction waits for the server only where it asks for rows, and at its end.

    A transaction that is not durable may be undone by a crash of the server, with all that was
    committed after it; what was committed before it stays.

    Texts are stored outside the transaction they belong to, so clients that store the same texts
    neither wait for each other nor deadlock. A text that nothing refers to does no harm.

    Where a lease guards the writes of a thread, each transaction and each single write first checks
    that it is still held, in the same round trip.
    """

    texts_need_commit = False
    is_shared = True

    def __init__(
        self, address: str, *, is_read_only: bool = False, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        """Connect, and create the tables where they are missing.

        Raises:
            ValueError: The address is malformed, or the tables are not those of this version.
            OSError: The server cannot be reached, or refuses what was asked for.
        """
        self._connections = Connections(
            address,
            is_read_only=is_read_only,
            # Within a lease: a holder that stops in a transaction blocks its successor.
            idle_seconds=min(MAX_IDLE, lease_seconds / 2),
        )
        self.place = self._connections.name
        self.lock = threading.RLock()
        self._lease_seconds = lease_seconds
        self._current: psycopg.Connection[Any] | None = None
        self._owner = 0
        weakref.finalize(self, self._connections.close)
        with self._connections.lent() as connection:
            prepare(connection, self.place, is_read_only=is_read_only)
            self._leases = leases_in(address, connection)

    @property
    def in_transaction(self) -> bool:
        """Whether this thread has a transaction open."""
        return self._owner == threading.get_ident()

    @property
    def num_losses(self) -> int:
        """How often the connection was lost; commits that were not durable may be lost as well."""
        return self._connections.num_losses

    @contextmanager
    def transaction(self, *, is_durable: bool = False) -> Iterator[None]:
        """Make the writes inside atomic; an exception undoes them."""
        with self.lock:
            lease = self._leases.guard()
            connection = self._connections.take()
            committing: psycopg.Cursor[Any] | None = None
            is_committing = False
            try:
                with explaining(self.place), guarded(lease), in_pipeline(connection):
                    connection.execute(BEGIN)
                    check(connection, lease)
                    if is_durable:
                        connection.execute(DURABLE)
                    self._current, self._owner = connection, threading.get_ident()
                    yield
                    # From here on a lost connection leaves it open whether the writes are there.
                    self._owner, is_committing = 0, True
                    committing = connection.execute(COMMIT)
                # COMMIT raises nothing where it rolls back, as after a failed statement.
                if committing and committing.statusmessage != "COMMIT":
                    undone = "a statement failed, so the transaction was undone"
                    raise OSError(errno.EIO, undone, self.place)
            except BaseException as error:  # raised again: an interrupt undoes the writes as well
                self._owner = 0
                self._undo(connection)
                if is_committing and connection.closed:
                    lost = f"{LOST_IN_COMMIT} ({first_line(error)})"
                    raise OSError(errno.EIO, lost, self.place) from error
                raise
            finally:
                self._current = None
                self._connections.give(connection)

    def _undo(self, connection: psycopg.Connection[Any]) -> None:
        """Roll back; a connection on which that is impossible is closed, which undoes as well."""
        try:
            if not connection.closed:
                connection.execute(b"ROLLBACK")
        except psycopg.Error:
            connection.close()

    def hold(self, name: str) -> Lease:
        """Hold a run for this process, which may hold it several times.

        Raises:
            ValueError: Another process holds the run, naming it.
            OSError: The server cannot be reached.
        """
        return self._leases.acquire(name, self._lease_seconds)

    def holders(self, name: str | None = None) -> dict[str, str]:
        """The process that holds each run, or the one of a name."""
        found = self.rows(HOLDERS, (name,))
        return {held: f"process {pid} on {host} since {since}" for held, pid, host, since in found}

    def begin_snapshot(self) -> None:
        """Let all later queries of this thread see what the first of them does, until it closes."""
        connection = self._connections.take()
        try:
            with explaining(self.place):
                connection.execute(BEGIN_SNAPSHOT)
                # A reader holds no lock that others wait for, so it may be idle.
                connection.execute(b"SET LOCAL idle_in_transaction_session_timeout TO 0")
        except BaseException:  # raised again: the connection is closed on the way
            self._connections.give(connection)
            raise
        self._current, self._owner = connection, threading.get_ident()

    def rows(
        self, statement: str, values: Sequence[object] = (), *, locks: bool = False
    ) -> list[tuple[Any, ...]]:
        """All rows that a statement returns."""
        return self._execute(translate(statement, locks=locks), values)

    def put_row(self, table: str, row: Sequence[object]) -> None:
        """Write a row in place of the one with its key."""
        self._execute(REPLACING[table], row)

    def _execute(self, statement: bytes, values: Sequence[object]) -> list[tuple[Any, ...]]:
        # Other threads read and write beside the transaction, on connections of their own.
        if self.in_transaction and self._current:
            with explaining(self.place):
                return _fetched(self._current, statement, values)
        return self._execute_alone(statement, values)

    def _execute_alone(self, statement: bytes, values: Sequence[object]) -> list[tuple[Any, ...]]:
        lease = None if is_query(statement) else self._leases.guard()
        with self._connections.lent() as connection:
            if lease is None:
                return _fetched(connection, statement, values)
            with guarded(lease), in_pipeline(connection):  # one transaction, as there is no other
                check(connection, lease)
                return _fetched(connection, statement, values)

    def flush(self, *, waits: bool) -> None:
        """The commit of a durable transaction has waited for the server's disk."""

    def draw(self, entry: Sequence[object], *, begins: bool) -> bool:
        """Write an entry of a purse and book it; other threads and clients may do so at once."""
        lease = self._leases.guard()
        connection = self._connections.take()
        try:
            with explaining(self.place), guarded(lease), RawCursor(connection) as cursor:
                with in_pipeline(connection) as pipeline:
                    check(connection, lease)
                    cursor.execute(DRAW, (*entry, begins), binary=True)
                    pipeline.sync()  # commits
                    connection.execute(WAIT_FOR_DISK)
                return bool(cursor.fetchall()[0][0])
        except OSError as error:
            if connection.closed:
                raise OSError(errno.EIO, LOST_IN_COMMIT, self.place) from error
            raise
        finally:
            self._connections.give(connection)

    def put_blob(self, name: str, data: bytes) -> bool:
        """Store bytes under their hash, unless they are there; no transaction undoes it."""
        # Not durable by itself: the server has one log, so the next durable commit takes it along.
        lease = self._leases.guard()
        with self._connections.lent() as connection, RawCursor(connection) as cursor:
            with guarded(lease), in_pipeline(connection):
                check(connection, lease)
                cursor.execute(PUT_BLOB, (name, data), binary=True)
            return cursor.rowcount == 1

    def close(self) -> None:
        """Close all connections."""
        current, self._current, self._owner = self._current, None, 0
        if current:
            current.close()
        self._connections.close()


@contextmanager
def in_pipeline(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Pipeline]:
    """Send the statements of the block without waiting for each; the end waits for all."""
    try:
        with ExitStack() as pipeline:
            entered = pipeline.enter_context(connection.pipeline())
            try:
                yield entered
            except BaseException:  # raised again: without errors that only follow from this one
                with suppress(psycopg.Error):
                    pipeline.close()
                raise
    except BaseException:  # raised again: psycopg takes for prepared what the server never saw
        with suppress(psycopg.Error):
            connection.execute(b"ROLLBACK")
        raise


def _fetched(
    connection: psycopg.Connection[Any], statement: bytes, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    with RawCursor(connection) as cursor:
        cursor.execute(statement, values, binary=True)
        return cursor.fetchall() if is_query(statement) else []
