"""Connections to one Postgres database, and errors with advice.

`psycopg_pool` does not fit: it replaces a lost connection silently, with which commits that were
not durable may be lost, and a server that cannot be reached is a timeout without its cause. Its
connections are opened by threads, which a forked process does not have.
"""

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import randbits
from time import monotonic, sleep
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper

from costada.store.address import CAN_RESUME, address_parts, shown_address
from costada.values.redaction import without_passwords

SCHEMA = "costada"
"""Every table of ours is in this schema, and LangGraph's for the checkpoints of our saver."""

MAX_IDLE = 4
"""Connections kept open while no thread uses them."""

DEFAULTS = {
    "connect_timeout": "10",
    "fallback_application_name": "costada",
    "keepalives_idle": "60",
    "tcp_user_timeout": "60000",
}
"""Parameters of a connection where the address does not set them: seconds, last: milliseconds."""

SESSION = {
    "search_path": SCHEMA,
    "synchronous_commit": "off",
    "client_min_messages": "warning",
    "default_transaction_isolation": "read committed",
}
"""Settings of each session, whatever the server's or the user's are."""

OWN_SESSION = "SELECT pg_backend_pid(), current_setting('search_path')"
IS_LOCKED = (
    "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    " AND (classid::bigint << 32) | objid::bigint = {})"
)
"""Whether any session holds the advisory lock of a number."""

LOCK = "SELECT pg_backend_pid(), pg_advisory_lock(%s)"
KEPT = f"SELECT pg_backend_pid(), {IS_LOCKED.format('%s')}"
LEFT = (
    "SELECT CASE WHEN pg_backend_pid() = %s THEN pg_advisory_unlock(%s) ELSE FALSE END,"
    f" {IS_LOCKED.format('%s')}"
)
"""Take a lock, see whether it is held, and see what is left of it on the session that took it."""

POLL_SECONDS, RESET_SECONDS = 0.01, 5.0
"""Seconds that a pooler has for resetting the session of a client that has left."""

NO_SESSION = (
    "is reached through a pooler that shares sessions between clients or does not reset them,"
    " expected one session for each connection, which ends with it: give the address of the server"
    " itself, or set the pooler to session mode (PgBouncer: pool_mode = session)"
)
NO_OPTIONS = (
    "is reached through a pooler that refuses the options of a connection: give the address of the"
    " server itself, or let the pooler ignore them (PgBouncer: ignore_startup_parameters = options)"
)

NO_SESSION_LEFT = "the pooler has no session left; raise default_pool_size or end another client"

LOST = f"the connection was lost; check the server, {CAN_RESUME}"
LOST_IN_COMMIT = (
    "the connection was lost while a transaction was being committed, so its last writes may be"
    " there or not; the run can be resumed in either case"
)

ADVICE: dict[str, tuple[type[OSError], int, str]] = {
    "53100": (OSError, errno.ENOSPC, f"no room left on the server; free some, {CAN_RESUME}"),
    "53200": (OSError, errno.ENOMEM, f"the server is out of memory; {CAN_RESUME}"),
    "53300": (OSError, errno.EAGAIN, "the server has no connection left; raise max_connections"),
    "42501": (OSError, errno.EACCES, "the user may not do this; grant it the right"),
    "25006": (OSError, errno.EACCES, "may not be written: it was opened for reading"),
    "40P01": (OSError, errno.EBUSY, f"two clients waited for each other; {CAN_RESUME}"),
    "40001": (OSError, errno.EBUSY, f"another client changed the same rows; {CAN_RESUME}"),
    "55P03": (OSError, errno.EBUSY, f"another client holds a lock; end that one, {CAN_RESUME}"),
    "57014": (OSError, errno.EINTR, f"the server cancelled a statement; {CAN_RESUME}"),
}
"""What hinders a program, by Postgres' code: the system's number and what to do."""

NO_TABLES = ("42P01", "3F000", "42703", "42883")
"""A table, the schema, a column or a function is missing."""


def explanation_of(error: psycopg.Error, name: str) -> Exception:
    """The error for the user: `OSError` for what hinders the program, `ValueError` for bad data.

    One that is neither comes back unchanged.
    """
    code = error.sqlstate or ""
    if code in ADVICE:
        kind, number, advice = ADVICE[code]
        return kind(number, f"{advice} ({first_line(error)})", name)
    if code in NO_TABLES:
        return ValueError(
            f"{name}: its tables of CostAda are damaged ({first_line(error)}); restore the schema"
            f" {SCHEMA!r} from a backup"
        )
    if isinstance(error, psycopg.DataError):
        return ValueError(f"{name}: a value cannot be stored ({first_line(error)})")
    if "query_wait_timeout" in str(error):
        return OSError(errno.EAGAIN, f"{NO_SESSION_LEFT} ({first_line(error)})", name)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return OSError(errno.EIO, f"{LOST} ({first_line(error)})", name)
    return error


def first_line(error: BaseException) -> str:
    """The first line of a message."""
    return without_passwords((str(error).strip().splitlines() or [type(error).__name__])[0])


@contextmanager
def explaining(name: str) -> Iterator[None]:
    """Replace any Postgres error of the block by what `explanation_of` makes of it."""
    try:
        yield
    except psycopg.Error as error:
        explanation = explanation_of(error, name)
        if explanation is error:
            raise
        raise explanation from error


_LOSSES: Counter[tuple[str, ...]] = Counter()
_COUNTING = threading.Lock()


class Connections:
    """Connections that threads borrow, opened when they are needed; all in autocommit mode.

    A lost connection raises an error where it is used, and the next use opens another one. It is
    never replaced silently: with it, the server may have lost commits that were not durable, and a
    run that continued would leave a gap. A forked process opens its own.

    Attributes:
        name: What messages call the database.
    """

    def __init__(
        self, address: str, *, is_read_only: bool = False, idle_seconds: float = 0.0
    ) -> None:
        """Make no connection yet.

        Args:
            address: Of the database.
            is_read_only: Whether the server refuses to write.
            idle_seconds: Seconds after which the server ends the session of a client that does
                nothing in a transaction, which others may wait for; 0 means never.
        """
        parts = address_parts(address)
        idle = {"idle_in_transaction_session_timeout": f"{int(1000 * idle_seconds)}"}
        reading = {"default_transaction_read_only": "on"} if is_read_only else {}
        self._session = {**SESSION, **idle, **reading}
        own = " ".join(f"-c {name}={value}" for name, value in self._session.items())
        # libpq separates options by spaces.
        own = own.replace("read committed", r"read\ committed")
        options = f"{parts.get('options', '')} {own}".strip()
        self._conninfo = make_conninfo(**{**DEFAULTS, **parts, "options": options})
        self.name = shown_address(address)
        self._idle: list[tuple[psycopg.Connection[Any], int]] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self._server: tuple[str, ...] = ()  # known from the first connection on
        self._has_to_set = False  # as a pooler drops the options of a connection
        _OPEN.add(self)

    @property
    def num_losses(self) -> int:
        """How often any part of this process lost a connection to the database."""
        return _LOSSES[self._server]

    def take(self) -> psycopg.Connection[Any]:
        """A connection for this thread alone, which `give` takes back.

        Raises:
            OSError: The server cannot be reached or refuses the connection.
        """
        with self._lock:
            if self._is_closed:
                raise ValueError(f"{self.name}: is closed, expected an open store")
            while self._idle:
                connection, num_losses = self._idle.pop()
                # One that was idle when another was lost has probably ended as well. Its use
                # would fail, and count as a further loss.
                if num_losses == self.num_losses:
                    return connection
                connection.close()
        return self.opened()

    def opened(self) -> psycopg.Connection[Any]:
        """A new connection, which the caller closes.

        Raises:
            OSError: As `take`.
            ValueError: A pooler in between does not give the connection a session of its own.
        """
        connection = self._connected()
        try:
            with explaining(self.name):
                # Once: all connections are alike, and the check opens a second one.
                if not self._server:
                    self._check_session(connection)
                if self._has_to_set:
                    lines = [f"SET {name} TO '{value}';" for name, value in self._session.items()]
                    connection.execute(" ".join(lines).encode())
        except BaseException:  # raised again: the connection is closed on the way
            connection.close()
            raise
        return connection

    def _check_session(self, connection: psycopg.Connection[Any]) -> None:
        """Look for a pooler in between; raises `ValueError` where sessions outlive their client.

        A pooler makes up the process id that a client gets when it connects, and may drop the
        options of the connection.
        """
        ((process, path),) = connection.execute(OWN_SESSION).fetchall()
        is_pooled = process != connection.info.backend_pid
        if is_pooled and not self._has_own_sessions(connection):
            raise ValueError(f"{self.name}: {NO_SESSION}")
        self._has_to_set = is_pooled or path != SCHEMA
        known = connection.info.get_parameters()
        self._server = tuple(known.get(each, "") for each in ("host", "port", "dbname"))

    def _has_own_sessions(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether the lock of another client is held while it is connected, and no longer.

        Other clients of the pooler do not change the answer, whatever they do at the same time. In
        transaction mode the lock stays on a session that is shared. A connection that meets it
        there releases it.
        """
        key = randbits(62)
        with self._connected() as leaving:
            ((process, _),) = leaving.execute(LOCK, (key,)).fetchall()
            is_kept = leaving.execute(KEPT, (key,)).fetchall() == [(process, True)]
        end = monotonic() + RESET_SECONDS
        while monotonic() < end:
            # psycopg prepares what is repeated, and the next session of a pooler would not know it.
            found = connection.execute(LEFT, (process, key, key), prepare=False).fetchall()
            ((is_shared, is_held),) = found
            if is_shared or not is_held:
                return is_kept and not is_shared
            sleep(POLL_SECONDS)
        return False

    def _connected(self) -> psycopg.Connection[Any]:
        try:
            connection = psycopg.connect(self._conninfo, autocommit=True)
        except psycopg.OperationalError as error:
            if error.sqlstate in ADVICE:
                raise explanation_of(error, self.name) from error
            reason = without_passwords(" ".join(str(error).split()))
            if "startup parameter" in reason:
                raise ValueError(f"{self.name}: {NO_OPTIONS} ({reason})") from error
            raise OSError(
                errno.EHOSTUNREACH,
                f"cannot connect; check host, port, database, user and password ({reason})",
                self.name,
            ) from error
        connection.adapters.register_dumper(int, Int8Dumper)  # one plan for all sizes of numbers
        return connection

    def give(self, connection: psycopg.Connection[Any]) -> None:
        """Take a connection back; one that is broken or in a transaction is closed."""
        if connection.closed:
            # Here, so that each loss counts once, whatever statement met it.
            with _COUNTING:
                _LOSSES[self._server] += 1
            return
        is_sound = connection.info.transaction_status == TransactionStatus.IDLE
        with self._lock:
            if is_sound and not self._is_closed and len(self._idle) < MAX_IDLE:
                self._idle.append((connection, self.num_losses))
                return
        connection.close()

    @contextmanager
    def lent(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection for a block; errors name the database and what to do."""
        connection = self.take()
        try:
            with explaining(self.name):
                yield connection
        finally:
            self.give(connection)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each, _ in idle:
            each.close()


_OPEN: WeakSet[Connections] = WeakSet()
INHERITED: list[psycopg.Connection[Any]] = []
"""Connections of a parent process, which are neither used nor closed here."""


def _leave_to_parent() -> None:
    """Let a forked process open connections of its own."""
    for each in _OPEN:
        each._lock = threading.Lock()
        INHERITED.extend(connection for connection, _ in each._idle)
        each._idle = []


os.register_at_fork(after_in_child=_leave_to_parent)
