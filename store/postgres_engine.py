"""The statements of a `Database` in a Postgres database that several machines can reach."""

import errno
import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import RawCursor

from costada.store.postgres_connections import (
    LOST_IN_COMMIT,
    Connections,
    explaining,
    first_line,
)
from costada.store.postgres_schema import REPLACING, prepare

MARK = re.compile(r"\?(\d*)")
BEGIN = b"BEGIN"
BEGIN_DURABLE = b"BEGIN; SET LOCAL synchronous_commit TO on"
BEGIN_SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
PUT_BLOB = b"INSERT INTO costada_blob (hash, data) VALUES ($1, $2) ON CONFLICT DO NOTHING"


@lru_cache(maxsize=1024)
def translated(statement: str, *, locks: bool = False) -> bytes:
    """A statement in Postgres' words: `$1` in place of `?` and `?1`, no hints on indexes."""
    numbers = iter(range(1, 1 + statement.count("?")))
    marked = MARK.sub(lambda mark: f"${mark[1] or next(numbers)}", statement)
    ending = " FOR UPDATE" if locks else ""
    return f"{marked.replace(' NOT INDEXED', '')}{ending}".encode()


class PostgresEngine:
    """Executes statements on one connection per transaction, others in autocommit mode.

    A transaction that is not durable may be undone by a crash of the server, with all that was
    committed after it; what was committed before it stays.

    Texts are stored apart from the transaction they belong to. So no client waits for another one
    that stores the same text, and none can lock the other out; a text that nothing names does no
    harm.

    Attributes:
        begin: Run at the beginning of each transaction, in the same round trip; may be empty.
    """

    texts_need_commit = False

    def __init__(self, address: str, *, is_read_only: bool = False) -> None:
        """Connect, and create the tables where they are missing.

        Raises:
            ValueError: The address is malformed, or the tables are not those of this version.
            OSError: The server cannot be reached, or refuses what was asked for.
        """
        self._connections = Connections(address, is_read_only=is_read_only)
        self.place = self._connections.name
        self.lock = threading.RLock()
        self.begin = b""
        self._current: psycopg.Connection[Any] | None = None
        self._owner = 0
        weakref.finalize(self, self._connections.close)
        with self._connections.lent() as connection:
            prepare(connection, self.place, is_read_only=is_read_only)

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
            connection = self._connections.take()
            try:
                with explaining(self.place):
                    connection.execute(_batch(BEGIN_DURABLE if is_durable else BEGIN, self.begin))
                    self._current, self._owner = connection, threading.get_ident()
                    yield
                    self._owner = 0
                    self._commit(connection)
            except BaseException:  # raised again: an interrupt undoes the writes as well
                self._owner = 0
                self._undo(connection)
                raise
            finally:
                self._current = None
                self._connections.give(connection)

    def _commit(self, connection: psycopg.Connection[Any]) -> None:
        try:
            ended = connection.execute(b"COMMIT").statusmessage
        except psycopg.OperationalError as error:
            if not connection.closed:
                raise
            raise OSError(
                errno.EIO, f"{LOST_IN_COMMIT} ({first_line(error)})", self.place
            ) from error
        if ended != "COMMIT":
            raise OSError(
                errno.EIO, "a statement failed, so the transaction was undone", self.place
            )

    def _undo(self, connection: psycopg.Connection[Any]) -> None:
        """Roll back; a connection on which that is impossible is closed, which undoes as well."""
        try:
            if not connection.closed:
                connection.execute(b"ROLLBACK")
        except psycopg.Error:
            connection.close()

    def begin_snapshot(self) -> None:
        """Let all later queries of this thread see what is committed now, until it is closed."""
        connection = self._connections.take()
        with explaining(self.place):
            connection.execute(BEGIN_SNAPSHOT)
        self._current, self._owner = connection, threading.get_ident()

    def rows(
        self, statement: str, values: Sequence[object] = (), *, locks: bool = False
    ) -> list[tuple[Any, ...]]:
        """All rows that a statement returns."""
        return self._execute(translated(statement, locks=locks), values)

    def put_row(self, table: str, row: Sequence[object]) -> None:
        """Write a row in place of the one with its key."""
        self._execute(REPLACING[table], row)

    def _execute(self, statement: bytes, values: Sequence[object]) -> list[tuple[Any, ...]]:
        if self.in_transaction and self._current:
            with explaining(self.place):
                return _fetched(self._current, statement, values)
        with self._connections.lent() as connection:
            return _fetched(connection, statement, values)

    def put_blob(self, name: str, data: bytes) -> None:
        """Store bytes under their hash, unless they are there; no transaction undoes it."""
        with self._connections.lent() as connection:
            _fetched(connection, PUT_BLOB, (name, data))

    def close(self) -> None:
        """Close all connections."""
        current, self._current, self._owner = self._current, None, 0
        if current:
            current.close()
        self._connections.close()


def _batch(*statements: bytes) -> bytes:
    return b"; ".join(filter(None, statements))


def _fetched(
    connection: psycopg.Connection[Any], statement: bytes, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    with RawCursor(connection) as cursor:
        cursor.execute(statement, values, binary=True)
        return cursor.fetchall() if cursor.description else []
