"""One SQLite connection for a run file, safe to use from several threads."""

import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from costada.store.schema import prepare

BUSY_SECONDS = 30.0
CACHE_KIBIBYTES = 16_384
RECENT_TEXTS = 1024


def connect(path: Path | None) -> sqlite3.Connection:
    """Return a connection to a run file, or to memory, for use from any thread.

    Readers and one writer do not block each other, and a writer waits for another one. What was
    committed survives the death of the process.
    """
    connection = sqlite3.connect(path or ":memory:", timeout=BUSY_SECONDS, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIBIBYTES}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that only reads, also where the folder cannot be written."""
    options = "mode=ro" if os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=BUSY_SECONDS,
        check_same_thread=False,
    )


class Database:
    """A run file opened for reading and writing; `path=None` keeps everything in memory.

    It is closed by `close`, or when nobody holds the object any more.

    Raises `sqlite3.Error` when the file cannot be opened or is no database.
    """

    def __init__(self, path: Path | None, *, is_read_only: bool = False) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection = connect_to_read(path) if path and is_read_only else connect(path)
        weakref.finalize(self, self._connection.close)
        self._connection.isolation_level = None
        if not is_read_only:
            prepare(self._connection)
        self.text = lru_cache(maxsize=RECENT_TEXTS)(self._read_text)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the writes inside one atomic unit; an exception undoes them."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def write(self, statement: str, values: Sequence[object]) -> None:
        """Run one writing statement."""
        with self._lock:
            self._connection.execute(statement, tuple(values))

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows that a query finds."""
        with self._lock:
            return self._connection.execute(statement, tuple(values)).fetchall()

    def put_text(self, text: str) -> str:
        """Store a text once and return its hash; the empty text is the empty hash."""
        if not text:
            return ""
        data = text.encode("utf-8", "surrogatepass")
        name = sha256(data).hexdigest()
        if not self.rows("SELECT 1 FROM blob WHERE hash = ?", (name,)):
            self.write("INSERT OR IGNORE INTO blob VALUES (?, ?)", (name, zlib.compress(data, 1)))
        return name

    def _read_text(self, name: str) -> str:
        if not name:
            return ""
        found = self.rows("SELECT data FROM blob WHERE hash = ?", (name,))
        if not found:
            raise ValueError(
                f"text {name}: not in the run file {self.path or '(in memory)'};"
                " give create_discovery_graph the store that the run was started with"
            )
        return zlib.decompress(found[0][0]).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """Close the file; the object is of no use afterwards."""
        with self._lock:
            self._connection.close()
