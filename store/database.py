"""One SQLite connection for a run file, safe to use from several threads."""

import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from costada.store.file_errors import (
    SQLITE_ERRORS,
    damaged,
    explain,
    explaining,
    foreign,
    other_format,
)
from costada.store.rows import LARGEST_CELL, LARGEST_TEXT, inflated
from costada.store.schema import FORMAT, ForeignTables, format_of, prepare, prepare_to_read
from costada.values.program import text_hash

BUSY_SECONDS = 30.0
CACHE_KIBIBYTES = 16_384
RECENT_TEXTS = 1024
RECENT_CHARACTERS = 16 * 2**20
"""Characters of texts kept in memory."""


OWNER_ONLY = 0o600
BESIDE = ("", "-wal", "-shm", "-journal")
"""Ends of the names of all files that SQLite writes for one database."""


def connect(path: Path | None) -> sqlite3.Connection:
    """A connection to a run file, or to memory, for use from any thread.

    A new file and SQLite's own files beside it are owner-only. Readers and one writer do not block
    each other; writers wait for one another. Commits survive the death of the process; a power loss
    may undo those after the last durable transaction and leaves the file sound.

    Raises:
        ValueError: The file is a link, no run file, is damaged, or was written by another version.
        OSError: The file cannot be opened or written.
    """
    if path:
        _refuse_links(path)
        with suppress(OSError):  # there is one, or SQLite says why there cannot be
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    address = str(path.absolute()) if path else ":memory:"
    return _connected(path, address, _prepare_to_write)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A read-only connection, also for a folder that cannot be written.

    It sees what was committed, also while another process writes. If none does, it leaves no file
    behind when it is closed. Raises as `connect` does.
    """
    _refuse_links(path)
    return _connected(path, f"{path.absolute().as_uri()}?{_reading_mode(path)}", prepare_to_read)


def _refuse_links(path: Path) -> None:
    """Raise `ValueError` where SQLite would write through a link."""
    for end in BESIDE:
        file = path.with_name(f"{path.name}{end}")
        if file.is_symlink():
            raise ValueError(f"{file}: is a link, expected the database itself; name that one")


def _reading_mode(path: Path) -> str:
    """How SQLite opens a file without leaving files beside it.

    Only a connection that could write removes the files it needs. Where a write-ahead log exists,
    the run is active or was killed, and everything stays as it is.
    """
    if Path(f"{path.resolve()}-wal").exists():
        return "mode=ro"
    return "mode=rw" if os.access(path.parent, os.W_OK) else "mode=ro&immutable=1"


def _prepare_to_write(connection: sqlite3.Connection) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=OFF"):
        connection.execute(f"PRAGMA {pragma}")


def _connected(
    path: Path | None, address: str, prepared: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    with explaining(path):
        connection = sqlite3.connect(
            address, uri=address.startswith("file:"), timeout=BUSY_SECONDS, check_same_thread=False
        )
    try:
        with explaining(path):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_CELL)
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute(f"PRAGMA cache_size=-{CACHE_KIBIBYTES}")
            prepared(connection)
            found = format_of(connection)
        if found is not None and found != FORMAT:
            raise other_format(path, found, FORMAT)
    except ForeignTables as error:
        connection.close()
        raise foreign(path, str(error)) from None
    except BaseException:  # raised again: the connection is closed on the way
        connection.close()
        raise
    return connection


def encoded(text: str) -> bytes:
    """Bytes of a text, which may hold half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


class Database:
    """A run file opened for reading and writing; `path=None` keeps everything in memory.

    It is closed by `close` or with the object. Opening and every use raise `ValueError` when the
    file is damaged, no run file or of another format, and `OSError` naming it when it cannot be
    read or written: a full disk, a read-only folder, a lock.
    """

    def __init__(self, path: Path | None, *, is_read_only: bool = False) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection = connect_to_read(path) if path and is_read_only else connect(path)
        weakref.finalize(self, self._connection.close)
        self._connection.isolation_level = None
        if not is_read_only:
            with explaining(path):
                prepare(self._connection)
        self._stored_texts: set[str] = set()
        self._recent_texts: dict[str, str] = {}
        self._recent_size = 0

    @contextmanager
    def transaction(self, *, is_durable: bool = False) -> Iterator[None]:
        """Make the writes inside atomic; an exception undoes them.

        A transaction inside another one is part of it. A durable one is on disk when it ends, with
        all earlier ones.
        """
        with self._lock, explaining(self.path):
            if self._connection.in_transaction:
                yield
                return
            if is_durable and self.path:
                self._connection.execute("PRAGMA synchronous=FULL")
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException:  # raised again: an interrupt undoes the writes as well
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                if is_durable and self.path:
                    self._connection.execute("PRAGMA synchronous=NORMAL")

    def write(self, statement: str, values: Sequence[object]) -> None:
        """Run one writing statement."""
        self.rows(statement, values)

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows that a query finds."""
        with self._lock:
            try:
                return self._connection.execute(statement, values).fetchall()
            except SQLITE_ERRORS as error:
                explain(error, self.path)

    def put_text(self, text: str) -> str:
        """Store a text once and return its hash; the empty text is the empty hash."""
        if not text:
            return ""
        name = text_hash(text)
        if name in self._stored_texts:
            return name
        with self._lock:
            if not self.rows("SELECT 1 FROM costada_blob WHERE hash = ?", (name,)):
                data = encoded(text)
                if len(data) > LARGEST_TEXT:
                    raise ValueError(
                        f"text of {len(data):,} bytes: expected at most {LARGEST_TEXT:,}"
                    )
                self.write("INSERT INTO costada_blob VALUES (?, ?)", (name, zlib.compress(data)))
            if not self._connection.in_transaction:
                self._remember(name)
        return name

    def text(self, name: str) -> str:
        """The text of a hash; the empty hash is that of the empty text."""
        with self._lock:
            found = self._recent_texts.get(name)
            if found is None:
                found = self._read_blob(name).decode("utf-8", "surrogatepass") if name else ""
                if self._recent_size + len(found) > RECENT_CHARACTERS:
                    self._recent_texts.clear()
                    self._recent_size = 0
                self._recent_texts[name] = found
                self._recent_size += len(found)
        return found

    def _remember(self, name: str) -> None:
        """Note that a text is committed, so that it need not be looked up again soon."""
        if len(self._stored_texts) > RECENT_TEXTS:
            self._stored_texts.clear()
        self._stored_texts.add(name)

    def _read_blob(self, name: str) -> bytes:
        found = self.rows("SELECT data FROM costada_blob WHERE hash = ?", (name,))
        if not found:
            raise ValueError(
                f"text {name}: not in the run file {self.path or '(in memory)'};"
                " give create_discovery_graph the store that the run was started with"
            )
        try:
            data = inflated(found[0][0])
        except (zlib.error, TypeError) as error:
            raise damaged(self.path, f"text {name} is damaged ({error})") from error
        if sha256(data).hexdigest() != name:
            raise damaged(self.path, f"text {name} is damaged")
        return data

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
