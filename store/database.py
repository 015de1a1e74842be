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
    checking_rows,
    damaged,
    explain,
    explaining,
    foreign,
    other_format,
)
from costada.store.rows import LARGEST_CELL, LARGEST_TEXT, inflated, record
from costada.store.schema import FORMAT, ForeignTables, format_of, prepare, prepare_to_read
from costada.values.candidate import FILES, Program, text_hash
from costada.values.program_form import files_fault

LEVEL = 1
AGAINST_ANOTHER = b"\0"
"""First byte of a text that needs another one; no compressed text begins with it."""

DIGEST_BYTES = 32
WINDOW = 32_768
"""Bytes of another text that compression can look back at."""

SHORTEST_BASE = 2048
"""Bytes of the shortest text that others are packed against."""

CLEAR_GAIN = 16
"""Ratio at which compression alone is not tried."""

LEAST_GAIN = 0.7
"""Largest share of its own compressed size at which a text is packed against another."""


class Packer:
    """Compresses texts, each against one earlier text where they share much."""

    def __init__(self) -> None:
        self._base = b""
        self._compressor = zlib.compressobj(LEVEL)

    def pack(self, data: bytes) -> bytes:
        """A text's bytes in a form that `unpack` understands, alone or with its base."""
        if not self._base:
            return zlib.compress(data, LEVEL)
        against = self._against_base(data)
        if len(against) * CLEAR_GAIN < len(data):
            return against
        alone = zlib.compress(data, LEVEL)
        return against if len(against) < LEAST_GAIN * len(alone) else alone

    def offer_base(self, name: str, data: bytes, packed: bytes) -> None:
        """Compare later texts with this one, if it is stored for good and stands alone."""
        if len(data) >= SHORTEST_BASE and not packed.startswith(AGAINST_ANOTHER):
            self._base = bytes.fromhex(name)
            self._compressor = zlib.compressobj(LEVEL, zdict=data[-WINDOW:])

    def _against_base(self, data: bytes) -> bytes:
        compressor = self._compressor.copy()
        return b"".join(
            (AGAINST_ANOTHER, self._base, compressor.compress(data), compressor.flush())
        )


def unpack(packed: bytes, text_of: Callable[[str], bytes]) -> bytes:
    """A text's bytes; `text_of` returns those of another text by name.

    Raises:
        zlib.error: If the packed bytes are damaged, or larger than any text when unpacked.
    """
    if not packed.startswith(AGAINST_ANOTHER):
        return inflated(packed)
    start = len(AGAINST_ANOTHER)
    base, rest = packed[start : start + DIGEST_BYTES], packed[start + DIGEST_BYTES :]
    if not rest:
        raise zlib.error("it is cut short")
    return inflated(rest, text_of(base.hex())[-WINDOW:])


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
        self._uncommitted: dict[str, str] = {}
        self._packer = Packer()
        self._recent_texts: dict[str, str] = {}
        self._recent_size = 0
        self._last_base = "", b""

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
                for name, text in self._uncommitted.items():
                    self._note_stored(name, text)
            except BaseException:  # raised again: an interrupt undoes the writes as well
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._uncommitted.clear()
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
                self._put_blob(name, data)
            if self._connection.in_transaction:
                self._uncommitted[name] = text
            else:
                self._note_stored(name, text)
        return name

    def text(self, name: str) -> str:
        """The text of a hash; the empty hash is that of the empty text."""
        with self._lock:
            found = self._recent_texts.get(name)
            if found is None:
                found = self._read_blob(name).decode("utf-8", "surrogatepass") if name else ""
                self._keep(name, found)
        return found

    def put_program(self, program: Program) -> str:
        """Store the texts of a program and return its name."""
        if program.is_one_text:
            return self.put_text(program.text)
        size = sum(len(encoded(text)) for _, text in program.files)
        if size > LARGEST_TEXT:
            raise ValueError(f"program of {size:,} bytes: expected at most {LARGEST_TEXT:,}")
        for _, text in program.files:
            self.put_text(text)
        return FILES + self.put_text(program.contents)

    def program(self, name: str) -> Program:
        """The program of a name.

        Raises:
            ValueError: If a text is missing or damaged, or the paths are not those of a program.
        """
        if not name.startswith(FILES):
            return Program.of(self.text(name))
        contents = record(self.text(name.removeprefix(FILES)))
        if fault := files_fault(contents):
            raise damaged(self.path, f"program {name} has {fault}")
        files, size = {}, 0
        with checking_rows(self.path):
            for path, each in contents.items():
                files[path] = self.text(each)
                size += len(files[path])
                if size > LARGEST_TEXT:
                    raise damaged(self.path, f"program {name} is larger than any that a run has")
        return Program.of(files)

    def _keep(self, name: str, text: str) -> None:
        """Keep a stored text in memory for the next reader."""
        if name in self._recent_texts:
            return
        if self._recent_size + len(text) > RECENT_CHARACTERS:
            self._recent_texts.clear()
            self._recent_size = 0
        self._recent_texts[name] = text
        self._recent_size += len(text)

    def _put_blob(self, name: str, data: bytes) -> None:
        packed = self._packer.pack(data)
        # another process may have stored the text since, as part of what a user puts in
        self.write("INSERT OR IGNORE INTO costada_blob VALUES (?, ?)", (name, packed))
        if not self._connection.in_transaction:
            self._packer.offer_base(name, data, packed)

    def _note_stored(self, name: str, text: str) -> None:
        """Note that a text is committed, so that it need not be looked up or read again soon."""
        if len(self._stored_texts) > RECENT_TEXTS:
            self._stored_texts.clear()
        self._stored_texts.add(name)
        self._keep(name, text)

    def _read_blob(self, name: str, *, is_base: bool = False) -> bytes:
        found = self.rows("SELECT data FROM costada_blob WHERE hash = ?", (name,))
        if not found:
            raise ValueError(
                f"text {name}: not in the run file {self.path or '(in memory)'};"
                " give create_discovery_graph the store that the run was started with"
            )
        packed = found[0][0]
        if not isinstance(packed, bytes) or (is_base and packed.startswith(AGAINST_ANOTHER)):
            raise damaged(self.path, f"text {name} is damaged")
        try:
            data = unpack(packed, self._base)
        except zlib.error as error:
            raise damaged(self.path, f"text {name} is damaged ({error})") from error
        if sha256(data).hexdigest() != name:
            raise damaged(self.path, f"text {name} is damaged")
        return data

    def _base(self, name: str) -> bytes:
        """A text that others are packed against; it is itself packed against none.

        The last one is kept: texts that are read together mostly share it.
        """
        if name != self._last_base[0]:
            self._last_base = name, self._read_blob(name, is_base=True)
        return self._last_base[1]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
