"""SQLite for a run file: connections, the engine of a `Database`, and errors with advice."""

import errno
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from costada.store.address import CAN_RESUME, damage_error, foreign_error, format_error
from costada.store.earlier_formats import can_migrate
from costada.store.file_upgrade import upgrade_connected, upgraded_copy
from costada.store.files import sync_folder
from costada.store.lease import Holder
from costada.store.rows import MAX_CELL
from costada.store.schema import FORMAT, ForeignTables, format_of, prepare, prepare_to_read

BUSY_SECONDS = 30.0
CACHE_KIBIBYTES = 4096
OWNER_ONLY = 0o600
BESIDE = ("", "-wal", "-shm", "-journal")
"""Ends of the names of all files that SQLite writes for one database."""

DAMAGES = {
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is not a run file, or is damaged",
    sqlite3.SQLITE_TOOBIG: "has a value larger than any that a run needs",
}
OBSTACLES = {
    sqlite3.SQLITE_FULL: (errno.ENOSPC, f"no room left to write to; free some, {CAN_RESUME}"),
    sqlite3.SQLITE_READONLY: (
        errno.EACCES,
        "may not be written, nor its folder; make both writable, or work on a copy of the folder",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        errno.EACCES,
        "cannot be opened; expected a file in a folder that exists and may be written",
    ),
    sqlite3.SQLITE_IOERR: (errno.EIO, f"cannot be read or written; check the disk, {CAN_RESUME}"),
    sqlite3.SQLITE_BUSY: (
        errno.EBUSY,
        "another program keeps it locked; end that program, then resume",
    ),
}
"""What hinders a program, by SQLite's primary code: the system's number and what to do."""


SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What a query raises: of a damaged file, even SQLite's own message may be no text."""

NO_TEXT = "Could not decode to UTF-8"
"""How the message begins when a column that should hold text does not; it has no code."""


@contextmanager
def explaining(path: Path | None) -> Iterator[None]:
    """Replace any SQLite error of the block by what `explanation_of` makes of it.

    That the tables are not those of a run file is a `ValueError` which names the file.
    """
    try:
        yield
    except ForeignTables as error:
        raise foreign_error(path, str(error)) from None
    except SQLITE_ERRORS as error:
        explain(error, path)


def explain(error: Exception, path: Path | None) -> NoReturn:
    """Raise what `explanation_of` makes of an error."""
    explanation = explanation_of(error, path)
    if explanation is error:
        raise error
    raise explanation from error


def explanation_of(error: Exception, path: Path | None) -> Exception:
    """The error for the user: `ValueError` for a file that cannot be used as it is.

    What hinders the program from using it, such as a full disk, a read-only folder or a lock, is an
    `OSError` that names the file. An error that is not a fault of the file comes back unchanged.
    """
    # The low byte of an extended code, such as SQLITE_IOERR_FSYNC, is the primary one.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if path is None:
        return error
    if isinstance(error, UnicodeDecodeError) or str(error).startswith(NO_TEXT):
        return damage_error(path, "is damaged (a text in it is not UTF-8)")
    if code in DAMAGES:
        return damage_error(path, f"{DAMAGES[code]} ({error})")
    if code in OBSTACLES:
        number, advice = OBSTACLES[code]
        return OSError(number, advice, str(path))
    return error


def connect(path: Path | None) -> sqlite3.Connection:
    """A connection to a run file, or to memory, for use from any thread.

    A new file and SQLite's own files beside it are owner-only. Readers and one writer do not block
    each other; writers wait for one another. Commits survive the death of the process; a power loss
    may undo those after the last durable transaction and leaves the file sound.

    Raises:
        ValueError: The file is a link, not a run file, damaged, or written by another version.
        OSError: The file cannot be opened or written.
    """
    if path:
        _refuse_links(path)
        # SQLite would create it with the rights of the umask. Its own files get those of this one.
        with suppress(OSError):  # there is one, or SQLite says why there cannot be
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    # A relative path could begin with `file:` or be `:memory:`, which SQLite takes for its own.
    address = str(path.absolute()) if path else ":memory:"
    connection, found = _connected(path, address, _prepare_to_write)
    if path and found not in (None, FORMAT):
        # Not upgraded here: a process of another version may still write to the file.
        connection.close()
        raise format_error(path, found, FORMAT, can_migrate=can_migrate(found))
    return connection


def connect_to_read(path: Path, *, is_idle: bool = False) -> sqlite3.Connection:
    """A read-only connection, also for a folder that cannot be written.

    It sees what was committed, also while another process writes. If none does, it leaves no file
    behind when it is closed. With `is_idle` it does not lock the file and creates none beside it,
    which takes half the time: only for a reader who reads again what has changed, as a process that
    begins to write meanwhile is not noticed. A file of an earlier format is read from an upgraded
    copy, one of a newer format as it is. Raises as `connect` does.
    """
    _refuse_links(path)
    mode = _reading_mode(path, is_idle=is_idle)
    address = f"{path.absolute().as_uri()}?{mode}"
    connection, found = _connected(path, address, prepare_to_read)
    if found is None or found >= FORMAT:
        return connection
    with closing(connection), explaining(path):
        if not can_migrate(found):
            raise format_error(path, found, FORMAT)
        return upgraded_copy(connection, path, found)


def _refuse_links(path: Path) -> None:
    """Raise `ValueError` where SQLite would write through a link."""
    for end in BESIDE:
        file = f"{path}{end}"
        if os.path.islink(file):
            raise ValueError(f"{file}: is a link, expected the database itself; name that one")


def _reading_mode(path: Path, *, is_idle: bool) -> str:
    """How SQLite opens a file without leaving files beside it.

    Only a connection that could write removes the files it needs. Where a write-ahead log exists,
    the run is active or was killed, and everything stays as it is. A rollback journal may hold what
    a killed process has overwritten: SQLite puts it back first, or refuses where it may not write.
    """
    if os.path.exists(f"{path}-wal"):
        return "mode=ro"
    has_journal = os.path.exists(f"{path}-journal")
    if os.access(path.parent, os.W_OK) and (has_journal or not is_idle):
        return "mode=rw"
    return "mode=ro" if has_journal else "mode=ro&immutable=1"


def _prepare_to_write(connection: sqlite3.Connection) -> int | None:
    ((mode,),) = connection.execute("PRAGMA journal_mode=WAL").fetchall()
    # On a file system without shared memory there is no write-ahead log, and each commit syncs.
    synchronous = "NORMAL" if mode == "wal" else "FULL"
    # Some builds of SQLite overwrite what is deleted, which would make pruning slow.
    for pragma in (f"synchronous={synchronous}", "secure_delete=OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return format_of(connection)


def upgrade_file(path: Path) -> str | None:
    """Upgrade a file to the format of this version; returns what its user is told of it.

    `None`: there was nothing to do.

    The caller holds what keeps processes of other versions away, as the lease of a run folder. The
    file that was is kept beside it, see `backup_of`.

    Raises:
        ValueError: The file is not one of CostAda, is damaged, or its format is newer or too old.
        OSError: The file or its backup cannot be written.
    """
    _refuse_links(path)
    connection, found = _connected(path, str(path.absolute()), _prepare_to_write)
    with closing(connection), explaining(path):
        if found in (None, FORMAT):
            return None
        if not can_migrate(found):
            raise format_error(path, found, FORMAT)
        return upgrade_connected(connection, path)


def _connected(
    path: Path | None,
    address: str,
    prepare_format: Callable[[sqlite3.Connection], int | None],
) -> tuple[sqlite3.Connection, int | None]:
    """A connection and the format of its file; `None`: it has no table of ours."""
    with explaining(path):
        connection = sqlite3.connect(
            address, uri=address.startswith("file:"), timeout=BUSY_SECONDS, check_same_thread=False
        )
    try:
        with explaining(path):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL)
            # A file may come from anybody: its schema may not call functions with effects.
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute(f"PRAGMA cache_size=-{CACHE_KIBIBYTES}")
            return connection, prepare_format(connection)
    except BaseException:  # raised again: the connection is closed on the way
        connection.close()
        raise


def _close(connection: sqlite3.Connection, lock: threading.RLock, process: int) -> None:
    """Close a connection that threads may use, between two of their transactions.

    When the interpreter ends, daemon threads still run, and `sqlite3` crashes where a thread closes
    the connection while another one prepares a statement. A forked process leaves the connection
    alone; a thread that it has not inherited may have held the lock.
    """
    if os.getpid() == process:
        with lock:
            connection.close()


class WriteAheadLog:
    """Brings the commits of a run file to the disk, those of several threads by one sync.

    SQLite would sync within COMMIT (`synchronous=FULL`), while no other thread can read or write.
    Its log only grows, so one sync covers all commits before it, whoever made them. SQLite itself
    syncs what has moved from the log to the file before the log begins anew.
    """

    def __init__(self, path: Path) -> None:
        """Open the log of an open run file; raises `OSError`.

        Once, as SQLite does: the folder may be moved, and this process may change its own.
        """
        self._file, log = path, path.with_name(f"{path.name}-wal")
        self._descriptor = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        # SQLite holds its locks on other files: on its log, closing would release them.
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._close.atexit = False  # daemon threads still commit while the interpreter ends
        self._is_closed = False
        sync_folder(log.parent)
        self._changed = threading.Condition()
        self._is_syncing = False
        self._num_begun = self._num_ended = 0
        self._fault: tuple[int, str, str] | None = None
        self._later = ThreadPoolExecutor(1, thread_name_prefix="costada-disk")

    def sync(self) -> None:
        """Wait until all commits so far are on disk.

        Raises:
            OSError: The disk has failed, now or earlier. After a failure the system may have
                dropped what was to be written, and a later sync would succeed without it.
        """
        # The next one: a sync that has begun may miss the caller's last commit.
        self._await(self._num_begun + 1)

    def sync_soon(self) -> None:
        """Sync in another thread; if that fails, the next `sync` raises."""
        try:
            self._later.submit(self._await, self._num_begun + 1)
        except RuntimeError:  # the interpreter ends, and no thread begins any more
            self.sync()

    def close(self) -> None:
        """Bring to the disk what was committed before the file was closed, and close the log."""
        self._later.shutdown()
        if not self._fault:  # which was raised before
            self.sync()
        with self._changed:
            self._changed.wait_for(lambda: not self._is_syncing)
            self._is_closed = True
            self._close()

    def _await(self, wanted: int) -> None:
        """Wait until the sync of a number has ended, or do it if none is under way."""
        with self._changed:
            self._changed.wait_for(lambda: self._num_ended >= wanted or not self._is_syncing)
            if self._fault:
                raise OSError(*self._fault)
            if self._num_ended >= wanted or self._is_closed:
                return
            self._is_syncing = True
            self._num_begun += 1
        try:
            getattr(os, "fdatasync", os.fsync)(self._descriptor)
            self._num_ended = self._num_begun
        except OSError as error:
            code = sqlite3.SQLITE_FULL if error.errno == errno.ENOSPC else sqlite3.SQLITE_IOERR
            self._fault = *OBSTACLES[code], str(self._file)
            raise OSError(*self._fault) from error
        finally:
            with self._changed:
                self._is_syncing = False
                self._changed.notify_all()


class SqliteEngine:
    """The statements of a `Database` in a run file, or in memory without a path.

    All threads share one connection, so a thread waits for the transaction of another one.
    """

    texts_need_commit = True
    is_shared = False

    def __init__(
        self, path: Path | None, *, is_read_only: bool = False, is_idle: bool = False
    ) -> None:
        self.place = path
        self.lock = threading.RLock()
        self._process, self._is_closed = os.getpid(), False
        if path and is_read_only:
            self._connection = connect_to_read(path, is_idle=is_idle)
        else:
            self._connection = connect(path)
        weakref.finalize(self, _close, self._connection, self.lock, self._process)
        # Not in `connect`: LangGraph commits what `sqlite3` begins by itself before a write.
        self._connection.isolation_level = None
        self._log: WriteAheadLog | None = None
        if path and not is_read_only:
            ((mode,),) = self.rows("PRAGMA journal_mode")
            self._log = WriteAheadLog(path) if mode == "wal" else None
        if not is_read_only:
            with explaining(path):
                prepare(self._connection)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; it is this thread's while the thread has the lock."""
        self._check_usable()
        return self._connection.in_transaction

    @contextmanager
    def transaction(self, *, is_durable: bool = False) -> Iterator[None]:
        """Make the writes inside atomic; an exception undoes them."""
        self._check_usable()
        with self.lock, explaining(self.place):
            try:
                # A transaction that begins as a reader fails, without waiting, if another process
                # has written by the time of its first write.
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException:  # raised again: an interrupt undoes the writes as well
                # After some errors, such as a full disk, SQLite has undone it; ROLLBACK would fail.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def accept_loss(self) -> None:
        """In a file nothing is lost while it is open."""

    def flush(self, *, waits: bool) -> None:
        """Bring all commits to the disk; other threads can use the file meanwhile."""
        if self._log and waits:
            self._log.sync()
        elif self._log:
            self._log.sync_soon()

    def hold(self, name: str) -> None:
        """A run in a file is held by a lock on its folder, or by the program that has the graph."""

    def holders(self, name: str | None = None) -> dict[str, Holder]:
        """None are known here, see `hold`."""
        return {}

    def begin_snapshot(self) -> None:
        """Let all later queries see the file as the first of them does, until it closes."""
        self.rows("BEGIN")

    def rows(
        self, statement: str, values: Sequence[object] = (), *, locks: bool = False
    ) -> list[tuple[Any, ...]]:
        """All rows that a statement returns; a transaction locks the whole file anyway."""
        self._check_usable()
        with self.lock:
            try:
                # All at once: an open cursor would keep its snapshot, and the log could only grow.
                return self._connection.execute(statement, values).fetchall()
            except SQLITE_ERRORS as error:
                self._check_format(error)
                explain(error, self.place)

    def put_row(self, table: str, row: Sequence[object]) -> None:
        """Write a row in place of the one with its key."""
        marks = ", ".join("?" * len(row))
        # An update would keep the rowid, by which queries tell what was written last.
        self.rows(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)  # noqa: S608

    def put_entries(self, rows: Sequence[Sequence[object]]) -> None:
        """Write entries of a purse in place of those with their keys."""
        for row in rows:
            self.put_row("costada_entry", row)

    def draw(self, entry: Sequence[object], *, begins: bool) -> bool:
        """A file has no server that could do it."""
        return False

    def put_blob(self, name: str, data: bytes) -> bool:
        """Store bytes under their hash, unless another process has stored them since."""
        self._check_usable()
        statement = "INSERT OR IGNORE INTO costada_blob VALUES (?, ?)"
        with self.lock, explaining(self.place):
            return self._connection.execute(statement, (name, data)).rowcount == 1

    def close(self) -> None:
        """Close the file."""
        if self._process == os.getpid():
            with self.lock:
                self._is_closed = True
                self._connection.close()
            if self._log:
                self._log.close()

    def _check_format(self, error: Exception) -> None:
        """Raise `ValueError` where a statement failed in a file of a newer version."""
        found = None
        with suppress(ForeignTables, *SQLITE_ERRORS):  # the file is damaged, which `error` says
            found = format_of(self._connection)
        if found is not None and found > FORMAT:
            raise format_error(self.place, found, FORMAT) from error

    def _check_usable(self) -> None:
        """Refuse a closed file and a forked process, which has a copy of SQLite's locks.

        Raises:
            ValueError: Naming the file.
        """
        name = f"{self.place}" if self.place else "a database in memory"
        if self._is_closed:
            raise ValueError(f"{name}: is closed, expected an open one")
        if self._process != os.getpid():
            raise ValueError(
                f"{name}: was opened before this process was forked, expected a file that is"
                " opened in this process"
            )
