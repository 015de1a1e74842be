"""The rows and texts of runs above an engine: texts are stored once, packed, by their hash."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, Protocol

from costada.store.address import NEEDS_PSYCOPG, Place, damage_error
from costada.store.lease import LEASE_SECONDS, Holder, Lease
from costada.store.rows import MAX_TEXT, checking_rows, inflate, record
from costada.store.sqlite_engine import SqliteEngine
from costada.values.candidate import FILES, Program, text_hash
from costada.values.program_form import invalid_files_reason

LEVEL = 1
AGAINST_ANOTHER = b"\0"
"""First byte of a text that needs another one; what zlib writes never begins with it."""

DIGEST_BYTES = 32
WINDOW = 32_768
"""Bytes of another text that compression can look back at."""

MIN_BASE = 2048
"""Bytes of the shortest text that others are packed against."""

CLEAR_GAIN = 16
"""Ratio at which compression alone is not tried."""

MIN_GAIN = 0.7
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
        return against if len(against) < MIN_GAIN * len(alone) else alone

    def offer_base(self, name: str, data: bytes, packed: bytes) -> None:
        """Compare later texts with this one, if it is stored for good and stands alone."""
        if len(data) >= MIN_BASE and not packed.startswith(AGAINST_ANOTHER):
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
        return inflate(packed)
    start = len(AGAINST_ANOTHER)
    base, rest = packed[start : start + DIGEST_BYTES], packed[start + DIGEST_BYTES :]
    if not rest:
        raise zlib.error("it is cut short")
    return inflate(rest, text_of(base.hex())[-WINDOW:])


class Engine(Protocol):
    """Executes SQL that SQLite and Postgres both understand, with `?` or `?1` for values.

    Every use raises `ValueError` for a database that cannot be used as it is, and `OSError` for
    what hinders the program from using it. Both name the place and what to do.

    Attributes:
        lock: Held by the thread that has a transaction open.
        texts_need_commit: Whether a text that a transaction stores is lost when that is undone.
        is_shared: Whether processes of several machines can have it open.
    """

    texts_need_commit: bool
    is_shared: bool
    lock: RLock

    @property
    def place(self) -> Place:
        """What messages call the database."""

    @property
    def in_transaction(self) -> bool:
        """Whether the thread, which has the lock, has a transaction open."""

    def transaction(self, *, is_durable: bool = False) -> AbstractContextManager[None]:
        """Make the writes inside atomic; an exception undoes them.

        Transactions of one engine follow one another, whatever thread they are in. A durable one is
        on disk when it ends, or after the next `flush`.
        """

    def flush(self, *, waits: bool) -> None:
        """Bring the transactions so far to the disk, or without `waits` begin to do so.

        Called without the lock. Does nothing where a commit has done it.
        """

    def accept_loss(self) -> None:
        """Go on with what is there after `LostWrites`; in a file nothing is lost."""

    def hold(self, name: str) -> Lease | None:
        """Hold a run for this process if processes on other machines could work on it.

        Raises:
            ValueError: Another process holds the run, naming it.
        """

    def holders(self, name: str | None = None) -> dict[str, Holder]:
        """The process that holds each run, or the one of a name; none in a file."""

    def begin_snapshot(self) -> None:
        """Let all later queries of a reader see what the first of them does, until it closes."""

    def rows(
        self, statement: str, values: Sequence[object] = (), *, locks: bool = False
    ) -> list[tuple[Any, ...]]:
        """All rows that a statement returns.

        With `locks`, no other client changes them until the transaction ends.
        """

    def put_row(self, table: str, row: Sequence[object]) -> None:
        """Write all columns of a row in place of the one with its key; it then is the newest."""

    def put_entries(self, rows: Sequence[Sequence[object]]) -> None:
        """Do what `put_row` does for several entries of a purse, with different keys."""

    def draw(self, entry: Sequence[object], *, begins: bool) -> bool:
        """Write an entry of a purse and book it, durably and in one request to the server.

        Returns whether it did; an engine without a server never does, and none does where a call
        that `begins` may not.

        Args:
            entry: The columns of the row.
            begins: Whether the call has to be a new one that fits what is left.
        """

    def put_blob(self, name: str, data: bytes) -> bool:
        """Store bytes under their hash, unless they are there; whether they were not."""

    def close(self) -> None:
        """Close all connections."""


RECENT_TEXTS = 1024
RECENT_CHARACTERS = 2 * 2**20
"""Characters of texts kept in memory."""


def text_bytes(text: str) -> bytes:
    """Bytes of a text, which may hold half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


class Database:
    """The rows and texts of runs, in a file, in Postgres, or in memory with `None` for an address.

    A file is named by its path, a Postgres database by its address as a text. It is closed by
    `close` or with the object. Opening and every use raise `ValueError` when it is damaged, is not
    one of CostAda or has another format, and `OSError` naming it when it cannot be read or
    written: a full disk, a read-only folder, a lock, a server that cannot be reached.

    Attributes:
        engine: Executes the statements.
        num_undone: How many transactions were undone.
    """

    def __init__(
        self,
        address: Path | str | None,
        *,
        is_read_only: bool = False,
        is_idle: bool = False,
        lease_seconds: float = LEASE_SECONDS,
        longest_pause: float = 0.0,
    ) -> None:
        """Open the database; of a file, `is_idle` is as in `connect_to_read`."""
        self.engine: Engine
        if isinstance(address, str):
            self.engine = _postgres(address, is_read_only, lease_seconds, longest_pause)
        else:
            self.engine = SqliteEngine(address, is_read_only=is_read_only, is_idle=is_idle)
        self.num_undone = 0
        self._stored_texts: set[str] = set()
        self._uncommitted: dict[str, str] = {}
        self._packer = Packer()
        self._recent_texts: dict[str, str] = {}
        self._recent_size = 0
        self._last_base = "", b""

    @property
    def place(self) -> Place:
        """What messages call the database."""
        return self.engine.place

    @contextmanager
    def transaction(self, *, is_durable: bool = False, waits: bool = True) -> Iterator[None]:
        """Make the writes inside atomic; an exception undoes them.

        A transaction inside another one is part of it. A durable one is on disk when it ends, with
        all earlier ones; without `waits`, soon after its end, and before any later durable one.
        """
        with self.engine.lock:
            if self.engine.in_transaction:
                yield
                return
            try:
                with self.engine.transaction(is_durable=is_durable):
                    yield
                # Not earlier: a text that was noted and then undone would never be stored.
                for name, text in self._uncommitted.items():
                    self._note_stored(name, text)
            except BaseException:  # raised again: its writes are undone
                self.num_undone += 1
                raise
            finally:
                self._uncommitted.clear()
        if is_durable:
            # Without the lock, so that threads commit while another one waits for the disk.
            self.engine.flush(waits=waits)

    def write(self, statement: str, values: Sequence[object]) -> None:
        """Run one writing statement."""
        self.engine.rows(statement, values)

    def put_row(self, table: str, row: Sequence[object]) -> None:
        """Write all columns of a row in place of the one with its key; it then is the newest.

        The columns come in the order of the table.
        """
        self.engine.put_row(table, row)

    def rows(
        self, statement: str, values: Sequence[object] = (), *, locks: bool = False
    ) -> list[tuple[Any, ...]]:
        """All rows that a query finds.

        With `locks`, nothing else changes them until the transaction ends.
        """
        return self.engine.rows(statement, values, locks=locks)

    def put_text(self, text: str) -> str:
        """Store a text once and return its hash; the empty text is the empty hash."""
        if not text:
            return ""
        name = text_hash(text)
        if name in self._stored_texts:
            return name
        with self.engine.lock:
            # a server is not asked first, which would take as long as storing the text
            if self.engine.is_shared or not self._has_blob(name):
                data = text_bytes(text)
                if len(data) > MAX_TEXT:
                    raise ValueError(f"text of {len(data):,} bytes: expected at most {MAX_TEXT:,}")
                self._put_blob(name, data)
            if self._needs_commit:
                self._uncommitted[name] = text
            else:
                self._note_stored(name, text)
        return name

    def text(self, name: str) -> str:
        """The text of a hash; the empty hash is that of the empty text."""
        with self.engine.lock:
            found = self._recent_texts.get(name)
            if found is None:
                found = self._read_text(name) if name else ""
                self._keep(name, found)
        return found

    def put_program(self, program: Program) -> str:
        """Store the texts of a program and return its name."""
        if program.is_one_text:
            return self.put_text(program.text)
        size = sum(len(text_bytes(text)) for _, text in program.files)
        if size > MAX_TEXT:
            raise ValueError(f"program of {size:,} bytes: expected at most {MAX_TEXT:,}")
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
        if fault := invalid_files_reason(contents):
            raise damage_error(self.place, f"program {name} has {fault}")
        files, size = {}, 0
        with checking_rows(self.place):
            for path, each in contents.items():
                files[path] = self.text(each)
                size += len(files[path])
                if size > MAX_TEXT:
                    raise damage_error(
                        self.place, f"program {name} is larger than any that a run has"
                    )
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

    def _has_blob(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM costada_blob WHERE hash = ?", (name,)))

    def _put_blob(self, name: str, data: bytes) -> None:
        packed = self._packer.pack(data)
        is_new = self.engine.put_blob(name, packed)
        # A base has to stay and to stand alone: a transaction can be undone, and another client
        # that was first may have packed the text against a third one.
        if is_new and not self._needs_commit:
            self._packer.offer_base(name, data, packed)

    @property
    def _needs_commit(self) -> bool:
        """Whether a text that is stored now can still be undone."""
        return self.engine.texts_need_commit and self.engine.in_transaction

    def _note_stored(self, name: str, text: str) -> None:
        """Note that a text is committed, so that it need not be looked up or read again soon."""
        if len(self._stored_texts) > RECENT_TEXTS:
            self._stored_texts.clear()
        self._stored_texts.add(name)
        self._keep(name, text)

    def _read_text(self, name: str) -> str:
        try:
            return self._read_blob(name).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:  # a hostile file holds any bytes under their hash
            raise damage_error(self.place, f"text {name} is not UTF-8") from error

    def _read_blob(self, name: str, *, is_base: bool = False) -> bytes:
        found = self.rows("SELECT data FROM costada_blob WHERE hash = ?", (name,))
        if not found:
            raise ValueError(
                f"text {name}: not in the run file {self.place or '(in memory)'};"
                " give create_discovery_graph the store that the run was started with"
            )
        packed = found[0][0]
        # In a hostile file, bases of bases could lead in a circle.
        if not isinstance(packed, bytes) or (is_base and packed.startswith(AGAINST_ANOTHER)):
            raise damage_error(self.place, f"text {name} is damaged")
        try:
            data = unpack(packed, self._base)
        except zlib.error as error:
            raise damage_error(self.place, f"text {name} is damaged ({error})") from error
        if sha256(data).hexdigest() != name:
            raise damage_error(self.place, f"text {name} is damaged")
        return data

    def _base(self, name: str) -> bytes:
        """A text that others are packed against; it is itself packed against none.

        The last one is kept: texts that are read together mostly share it.
        """
        if name != self._last_base[0]:
            self._last_base = name, self._read_blob(name, is_base=True)
        return self._last_base[1]

    def close(self) -> None:
        """Close the file, or all connections."""
        self.engine.close()


def any_of(values: Sequence[object]) -> str:
    """Marks for the values of `IN`, in brackets; SQL has no empty list of numbers otherwise."""
    return f"({', '.join('?' * len(values))})" if values else "(SELECT 0 WHERE FALSE)"


def _postgres(
    address: str, is_read_only: bool, lease_seconds: float, longest_pause: float
) -> Engine:
    try:
        from costada.store.postgres_engine import PostgresEngine
    except ImportError as error:
        raise ValueError(NEEDS_PSYCOPG) from error
    return PostgresEngine(
        address,
        is_read_only=is_read_only,
        lease_seconds=lease_seconds,
        longest_pause=longest_pause,
    )
