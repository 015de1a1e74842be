"""The statements of a `Database` in a Postgres database that several machines can reach."""

import errno
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial
from secrets import token_hex
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import RawCursor
from psycopg.pq import TransactionStatus

from costada.store.address import CAN_RESUME
from costada.store.lease import LEASE_SECONDS, Holder, Lease
from costada.store.outage import DatabaseUnavailable, Patience, RowsChanged, outlast
from costada.store.postgres_connections import (
    IDLE_SECONDS,
    INHERITED,
    Connections,
    closing_on_error,
    explaining,
)
from costada.store.postgres_lease import HOLDERS, Leases, check, guarded, leases_in
from costada.store.postgres_recent_writes import Commit, recent_writes_in
from costada.store.postgres_schema import (
    DRAW,
    NEXT_NUMBER,
    NUMBER,
    PUT_ENTRIES,
    REPLACING,
    WAIT_FOR_DISK,
    prepare,
)

Found = TypeVar("Found")
Rows = list[tuple[Any, ...]]

MARK = re.compile(r"\?(\d*)")
READ = re.compile(rb"\s*(SELECT|WITH)\b")
QUERY = re.compile(rb"\s*(SELECT|WITH)\b|.*\bRETURNING\b", re.DOTALL)
BEGIN, COMMIT = b"BEGIN", b"COMMIT"
NOT_DURABLE = b"SELECT set_config('synchronous_commit', 'off', TRUE)"
FIND_ENTRY = b"SELECT cost, bound, facts FROM costada_entry WHERE account = $1 AND key = $2"
END_CLIENTS = b"DELETE FROM costada_transaction WHERE client = ANY($1)"
BEGIN_SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
PUT_BLOB = b"INSERT INTO costada_blob (hash, data) VALUES ($1, $2) ON CONFLICT DO NOTHING"
PAYMENTS = ("costada_call", "costada_entry")
REPEATABLE = {sent for table, sent in REPLACING.items() if table not in PAYMENTS}
"""Statements whose commit need not wait for the disk: they put rows that are no money.

Sent again in their order, also where some were lost and some not, they leave the same rows.
"""


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


class Transaction:
    """A transaction on one connection, which is repeated on another if that is lost.

    What was sent is sent again in the same order, and each query has to find what it found. Its
    number, written first, tells whether a commit whose connection was lost has been made: then the
    number is there already, perhaps once the server has ended the first transaction.
    """

    def __init__(self, engine: "PostgresEngine", lease: Lease | None, number: int) -> None:
        """Begin on the server with the first statement."""
        self._engine, self._lease = engine, lease
        self._number = engine.client, number
        self._sent: list[tuple[bytes, Sequence[object], Rows]] = []
        self._connection: psycopg.Connection[Any] | None = None
        self._pipeline = ExitStack()
        self._is_repeated = self._is_committed = False
        self._num_crashes = 0

    def execute(self, statement: bytes, values: Sequence[object]) -> Rows:
        """The rows of a statement; raises as `PostgresEngine.transaction` does."""
        fetch = partial(_fetched, statement=statement, values=values)
        found = self._engine.outlast(partial(self._on_connection, fetch))
        self._sent.append((statement, values, found))
        return found

    def commit(self, *, is_durable: bool) -> None:
        """Make the writes visible to others; raises as `PostgresEngine.transaction` does."""
        if self._sent:
            commit = partial(self._commit, is_durable=is_durable)
            self._engine.outlast(partial(self._on_connection, commit))

    def end(self) -> None:
        """Give the connection back; what is not committed is undone."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            with suppress(psycopg.Error):
                self._pipeline.close()
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute(b"ROLLBACK")
        except psycopg.Error:
            connection.close()  # undoes as well
        self._engine.connections.give(connection)

    def _on_connection(self, act: Callable[[psycopg.Connection[Any]], Found]) -> Found:
        """Do something in the transaction, which is begun where it has no connection."""
        try:
            with explaining(self._engine.place), guarded(self._lease):
                return act(self._connection or self._begin())
        except DatabaseUnavailable:
            self.end()
            self._is_repeated = True
            raise

    def _begin(self) -> psycopg.Connection[Any]:
        self._connection = connection = self._engine.connections.take()
        self._num_crashes = self._engine.recent.num_crashes
        self._pipeline.enter_context(in_pipeline(connection))
        connection.execute(BEGIN)
        check(connection, self._lease)
        if not self._is_repeated:
            with RawCursor(connection) as cursor:  # its answer is not waited for
                cursor.execute(NUMBER, self._number, binary=True)
        elif not _fetched(connection, NUMBER, self._number):
            self._is_committed = True
        else:
            self._repeat(connection)
        return connection

    def _repeat(self, connection: psycopg.Connection[Any]) -> None:
        for statement, values, before in self._sent:
            if _fetched(connection, statement, values) != before:
                reason = "another client changed the same rows while the connection was lost"
                raise RowsChanged(errno.EBUSY, f"{reason}; {CAN_RESUME}", self._engine.place)

    def _commit(self, connection: psycopg.Connection[Any], *, is_durable: bool) -> None:
        recent = self._engine.recent
        writes = [(sent, values) for sent, values, _ in self._sent if not READ.match(sent)]
        can_repeat = self._lease is not None and all(sent in REPEATABLE for sent, _ in writes)
        waits = is_durable or recent.is_full or not can_repeat
        if not self._is_committed:
            num_kept = recent.num_kept
            if not waits:
                connection.execute(NOT_DURABLE)
            committing = connection.execute(COMMIT)
            self._pipeline.close()
            # COMMIT raises nothing where it rolls back, as after a failed statement.
            if committing.statusmessage != "COMMIT":
                undone = "a statement failed, so the transaction was undone"
                raise OSError(errno.EIO, undone, self._engine.place)
            if waits:
                recent.forget(num_kept)
        note = recent.note_durable if waits else recent.keep
        note(Commit(self._lease, writes, *self._number), self._num_crashes, self._engine.place)


class PostgresEngine:
    """Executes statements on one connection per transaction, others in autocommit mode.

    A transaction waits for the server only where it asks for rows, and at its end. While the server
    is away, a statement and a transaction wait for it and are repeated, if the thread may wait. So
    a statement outside of a transaction has to be one that can be executed twice.

    A commit waits for the disk, and so do all before it, except where a lease guards it and it only
    puts rows that are no money, or a text: it is kept in `recent` until the next one that waits.

    Texts are stored outside the transaction they belong to, so clients that store the same texts
    neither wait for each other nor deadlock. A text that nothing refers to does no harm.

    Where a lease guards the writes of a thread, each transaction and each single write first checks
    that it is still held, in the same round trip.

    Attributes:
        connections: To the server.
        recent: What this process has written and the server may still lose.
        is_read_only: Whether nothing may be written.
        longest_pause: Seconds that the server is waited for where the thread is not told to wait;
            0 for not at all. It has to be there when the engine is opened.
    """

    texts_need_commit = False
    is_shared = True

    def __init__(
        self,
        address: str,
        *,
        is_read_only: bool = False,
        lease_seconds: float = LEASE_SECONDS,
        longest_pause: float = 0.0,
    ) -> None:
        """Connect, and create the tables where they are missing.

        Raises:
            ValueError: The address is malformed, or the tables are not those of this version.
            OSError: The server cannot be reached, or refuses what was asked for.
        """
        self.connections = Connections(
            address,
            is_read_only=is_read_only,
            # Within a lease: a holder that stops in a transaction blocks its successor.
            idle_seconds=min(IDLE_SECONDS, lease_seconds / 2),
        )
        self.place = self.connections.name
        self.is_read_only = is_read_only
        self.longest_pause = longest_pause
        self.lock = threading.RLock()
        self._lease_seconds = lease_seconds
        self._snapshot: psycopg.Connection[Any] | None = None
        self._current: Transaction | None = None
        self._owner = 0
        self._token, self._number = token_hex(8), 0
        self._has_written_beside = False
        with closing_on_error(self.connections):
            self._leases = outlast(partial(self._prepare, address))
        _OPEN.add(self)

    def _prepare(self, address: str) -> Leases:
        """Create the tables where they are missing, and return the leases of the database."""
        with self.connections.lent() as connection:
            prepare(connection, self.place, is_read_only=self.is_read_only)
            self.recent = recent_writes_in(connection)
            if not self.is_read_only:
                self._restore(connection)
                self.connections.when_taken = self._restore
            return leases_in(address, connection)

    def _restore(self, connection: psycopg.Connection[Any]) -> None:
        self.recent.restore(connection, self.place, self._clients)

    def outlast(self, work: Callable[[], Found]) -> Found:
        """The result of work that can be done twice; raises as `outage.outlast` does."""
        return outlast(work, Patience(self.longest_pause) if self.longest_pause else None)

    @property
    def client(self) -> str:
        """What tells the transactions of this engine, in this process, from those of others."""
        return f"{self._token} {os.getpid()}"

    @property
    def _clients(self) -> tuple[str, str]:
        """Who writes transactions, one after another, and who writes beside them."""
        return self.client, f"{self.client} beside"

    @property
    def in_transaction(self) -> bool:
        """Whether this thread has a transaction open."""
        return self._owner == threading.get_ident()

    @contextmanager
    def transaction(self, *, is_durable: bool = False) -> Iterator[None]:
        """Make the writes inside atomic; an exception undoes them.

        Raises:
            DatabaseUnavailable: The server is away, and is not waited for any longer.
            RowsChanged: It was away, and another client has changed rows that were read.
        """
        with self.lock:
            self._number += 1
            current = Transaction(self, self._leases.guard(), self._number)
            self._current, self._owner = current, threading.get_ident()
            try:
                yield
                current.commit(is_durable=is_durable)
            finally:
                self._current, self._owner = None, 0
                current.end()

    def hold(self, name: str) -> Lease:
        """Hold a run for this process, which may hold it several times.

        Raises:
            ValueError: Another process holds the run, naming it.
            OSError: The server cannot be reached.
        """
        return self._leases.acquire(name, self._lease_seconds)

    def holders(self, name: str | None = None) -> dict[str, Holder]:
        """The process that holds each run, or the one of a name."""
        return {held: Holder(*facts) for held, *facts in self.rows(HOLDERS, (name,))}

    def begin_snapshot(self) -> None:
        """Let all later queries of this thread see what the first of them does, until it closes."""
        connection = self.connections.opened()  # of its own: it is kept until the reader closes
        try:
            with explaining(self.place):
                connection.execute(BEGIN_SNAPSHOT)
                # A reader holds no lock that others wait for, so it may be idle.
                connection.execute(b"SET LOCAL idle_in_transaction_session_timeout TO 0")
        except BaseException:  # raised again: the connection is closed on the way
            connection.close()
            raise
        self._snapshot, self._owner = connection, threading.get_ident()

    def rows(self, statement: str, values: Sequence[object] = (), *, locks: bool = False) -> Rows:
        """All rows that a statement returns."""
        return self._execute(translate(statement, locks=locks), values)

    def put_row(self, table: str, row: Sequence[object]) -> None:
        """Write a row in place of the one with its key."""
        if self.in_transaction and self._current:
            self._current.execute(REPLACING[table], row)
        else:
            self.outlast(partial(self._put, REPLACING[table], row, self._leases.guard()))

    def put_entries(self, rows: Sequence[Sequence[object]]) -> None:
        """Write entries of a purse in place of those with their keys, by one statement."""
        if rows:
            self._execute(PUT_ENTRIES, [list(column) for column in zip(*rows, strict=True)])

    def _execute(self, statement: bytes, values: Sequence[object]) -> Rows:
        # Other threads read and write beside the transaction, on connections of their own.
        if self.in_transaction and self._current:
            return self._current.execute(statement, values)
        if self.in_transaction and self._snapshot:
            with explaining(self.place):
                return _fetched(self._snapshot, statement, values)
        return self.outlast(partial(self._execute_alone, statement, values))

    def _execute_alone(self, statement: bytes, values: Sequence[object]) -> Rows:
        lease = None if is_query(statement) else self._leases.guard()
        if lease:
            self._write_alone(statement, values, lease)
            return []
        num_kept = self.recent.num_kept
        with self.connections.lent() as connection, RawCursor(connection) as cursor:
            cursor.execute(statement, values, binary=True)
            found = cursor.fetchall() if is_query(statement) else []
            # A statement that writes no row waits for no disk.
            is_on_disk = cursor.rowcount > 0
        if is_on_disk and not READ.match(statement):
            self.recent.forget(num_kept)
        return found

    def _write_alone(self, statement: bytes, values: Sequence[object], lease: Lease | None) -> int:
        """Write durably, in one transaction with the check of the lease; how many rows it were."""
        num_kept = self.recent.num_kept
        with (
            self.connections.lent() as connection,
            RawCursor(connection) as cursor,
            RawCursor(connection) as numbering,
        ):
            num_crashes = self.recent.num_crashes
            with guarded(lease), in_pipeline(connection):
                check(connection, lease)
                numbering.execute(NEXT_NUMBER, self._clients[1:], binary=True)
                cursor.execute(statement, values, binary=True)
            self.recent.forget(num_kept)
            self._note_beside(numbering, lease, num_crashes)
            return cursor.rowcount

    def _note_beside(
        self, numbering: RawCursor[Any], lease: Lease | None, num_crashes: int
    ) -> None:
        """Note that a write beside the transactions is on disk, by the number that it got."""
        ((number,),) = numbering.fetchall()
        self._has_written_beside = True
        written = Commit(lease, [], self._clients[1], number)
        self.recent.note_durable(written, num_crashes, self.place)

    def accept_loss(self) -> None:
        """Go on with what is there after `LostWrites`."""
        for client in self._clients:
            self.recent.forget_client(client)

    def flush(self, *, waits: bool) -> None:
        """Commits have waited for the server's disk."""

    def draw(self, entry: Sequence[object], *, begins: bool) -> bool:
        """Write an entry of a purse and book it; other threads and clients may do so at once."""
        num_tries = 0

        def book() -> bool:
            nonlocal num_tries
            num_tries += 1
            with self.connections.lent() as connection:
                if self._book(connection, entry, begins=begins):
                    return True
                # The entry may be there since the connection was lost.
                is_own = num_tries > 1 and _fetched(connection, FIND_ENTRY, entry[:2]) == [
                    tuple(entry[2:])
                ]
                return is_own and self._book(connection, entry, begins=False)

        return self.outlast(book)

    def _book(
        self, connection: psycopg.Connection[Any], entry: Sequence[object], *, begins: bool
    ) -> bool:
        lease, num_crashes = self._leases.guard(), self.recent.num_crashes
        with (
            guarded(lease),
            RawCursor(connection) as cursor,
            RawCursor(connection) as numbering,
        ):
            with in_pipeline(connection) as pipeline:
                check(connection, lease)
                connection.execute(NOT_DURABLE)
                numbering.execute(NEXT_NUMBER, self._clients[1:], binary=True)
                cursor.execute(DRAW, (*entry, begins), binary=True)
                pipeline.sync()  # commits
                connection.execute(WAIT_FOR_DISK)
            self._note_beside(numbering, lease, num_crashes)
            return bool(cursor.fetchall()[0][0])

    def put_blob(self, name: str, data: bytes) -> bool:
        """Store bytes under their hash, unless they are there; no transaction undoes it."""
        # Sent again without the lease: a text that nothing refers to does no harm.
        return self.outlast(partial(self._put, PUT_BLOB, (name, data), None)) == 1

    def _put(self, statement: bytes, values: Sequence[object], guard: Lease | None) -> int:
        """Put a row or a text outside of a transaction; returns how many rows were written.

        Args:
            statement: What writes it.
            values: Of the statement.
            guard: The lease without which it may not be sent again.
        """
        lease = self._leases.guard()
        if lease is None or self.recent.is_full:
            return self._write_alone(statement, values, lease)
        with self.connections.lent() as connection, RawCursor(connection) as cursor:
            num_crashes = self.recent.num_crashes
            with guarded(lease), in_pipeline(connection):
                check(connection, lease)
                connection.execute(NOT_DURABLE)
                cursor.execute(statement, values, binary=True)
        kept = Commit(guard, [(statement, values)], self.client)
        self.recent.keep(kept, num_crashes, self.place)
        return cursor.rowcount

    def close(self) -> None:
        """Close all connections."""
        snapshot, self._snapshot, self._owner = self._snapshot, None, 0
        if snapshot:
            snapshot.close()
        if self._number or self._has_written_beside:
            # Without it, rows of some bytes are left.
            with suppress(OSError, ValueError), self.connections.lent() as connection:
                _fetched(connection, END_CLIENTS, (list(self._clients),))
            self.accept_loss()
        self.connections.close()

    def leave_to_parent(self) -> None:
        """Have no transaction in a forked process, whose parent may be in the middle of one."""
        if self._snapshot:
            INHERITED.append(self._snapshot)
        self.lock = threading.RLock()
        self._snapshot, self._current, self._owner = None, None, 0


_OPEN: WeakSet[PostgresEngine] = WeakSet()


def _leave_to_parent() -> None:
    """Let a forked process wait for no thread of its parent."""
    for each in [*_OPEN]:
        each.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


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
