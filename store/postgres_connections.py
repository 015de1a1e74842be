"""Connections to one Postgres database, and errors with advice.

`psycopg_pool` does not fit: a server that cannot be reached is a timeout without its cause, and its
connections are opened by threads, which a forked process does not have.
"""

import errno
import os
import re
import threading
from collections.abc import Callable, Iterator
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
from costada.store.outage import DatabaseUnavailable
from costada.values.redaction import without_passwords

SCHEMA = "costada"
"""Every table of ours is in this schema, and LangGraph's for the checkpoints of our saver."""

MAX_IDLE = 4
"""Connections kept open while no thread uses them."""

TARGET = "target_session_attrs"
"""Parameter that says which of the servers of an address is meant."""

DEFAULTS = {
    "connect_timeout": "10",
    "fallback_application_name": "costada",
    "keepalives_idle": "60",
    "keepalives_interval": "10",
    "tcp_user_timeout": "60000",
}
"""Parameters of a connection where the address does not set them: seconds, last: milliseconds."""

SESSION = {
    "search_path": SCHEMA,
    "synchronous_commit": "on",
    "client_min_messages": "warning",
    "default_transaction_isolation": "read committed",
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""Settings of each session, whatever the server's or the user's are.

Commits are durable, except those that `postgres_recent_writes` keeps in memory. The server ends a
session within 30 seconds of losing its client, not after two hours: half of a transaction that was
sent at once may have arrived, and its locks hold up all others. No other time limit ends that.
"""

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
LOST_CODES = ("", "25P03", "25P04", "57P01", "57P02", "57P03", "57P05")
"""Codes of errors that come with the end of a connection: none, timeouts, and a server that stops.

Class 08 is about connections as well.
"""

STARTING = re.compile(
    r"database system is (starting up|shutting down|in recovery mode|not (yet )?accepting)"
    r"|too many (clients|connections)|remaining connection slots|server_login_retry"
    r"|server login has been failing|cannot connect to server|client_login_timeout"
    r"|terminating connection|canceling authentication due to timeout"
)
"""In the message of a server or a pooler that will take connections soon.

libpq gives no code for a connection that fails.
"""

REFUSED = re.compile("FATAL:|no password supplied|certificate|does not support SSL")
"""In the message of a server that will refuse the connection again."""

ADVICE: dict[str, tuple[type[OSError], int, str]] = {
    "53100": (OSError, errno.ENOSPC, f"no room left on the server; free some, {CAN_RESUME}"),
    "53200": (OSError, errno.ENOMEM, f"the server is out of memory; {CAN_RESUME}"),
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
    is_operational = isinstance(error, psycopg.OperationalError)
    follows = isinstance(error, psycopg.errors.PipelineAborted)  # from another statement's failure
    if is_operational and not follows and (code in LOST_CODES or code.startswith("08")):
        return DatabaseUnavailable(errno.EIO, f"{LOST} ({first_line(error)})", name)
    if is_operational or isinstance(error, psycopg.InterfaceError):
        return OSError(errno.EIO, f"the server failed; {CAN_RESUME} ({first_line(error)})", name)
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


class Connections:
    """Connections that threads borrow, opened when they are needed; all in autocommit mode.

    A lost connection raises `DatabaseUnavailable` where it is used, and the next use opens another
    one. A forked process opens its own.

    Attributes:
        name: What messages call the database.
        when_opened: Called with each new connection before its first use.
    """

    when_opened: Callable[[psycopg.Connection[Any]], None] | None = None

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
        if is_read_only and parts.get(TARGET) == "read-write":
            # The server that takes writes, which it would not do in this session.
            parts[TARGET] = "primary"
        self._session = {**SESSION, **idle, **reading}
        own = " ".join(f"-c {name}={value}" for name, value in self._session.items())
        # libpq separates options by spaces.
        own = own.replace("read committed", r"read\ committed")
        options = f"{parts.get('options', '')} {own}".strip()
        self._conninfo = make_conninfo(**{**DEFAULTS, **parts, "options": options})
        self.name = shown_address(address)
        self._is_read_only = is_read_only
        self._idle: list[psycopg.Connection[Any]] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self._is_checked = False
        self._has_to_set = False  # as a pooler drops the options of a connection
        _OPEN.add(self)

    def take(self) -> psycopg.Connection[Any]:
        """A connection for this thread alone, which `give` takes back.

        Raises:
            DatabaseUnavailable: The server cannot be reached, or takes no connections now.
            OSError: It refuses the connection.
        """
        with self._lock:
            if self._is_closed:
                raise ValueError(f"{self.name}: is closed, expected an open store")
            if self._idle:
                return self._idle.pop()
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
                if not self._is_checked:
                    self._check_session(connection)
                if self._has_to_set:
                    lines = [f"SET {name} TO '{value}';" for name, value in self._session.items()]
                    connection.execute(" ".join(lines).encode())
                if self.when_opened:
                    self.when_opened(connection)
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
        self._is_checked = True

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
            reason = without_passwords(" ".join(str(error).split()))
            if "startup parameter" in reason:
                raise ValueError(f"{self.name}: {NO_OPTIONS} ({reason})") from error
            raise self._not_connected(reason) from error
        # After a failover an address may lead to the old server, or to one not promoted yet.
        if not self._is_read_only and connection.info.parameter_status("in_hot_standby") == "on":
            connection.close()
            raise DatabaseUnavailable(
                errno.EROFS, "the server is a standby, which takes no writes", self.name
            )
        connection.adapters.register_dumper(int, Int8Dumper)  # one plan for all sizes of numbers
        return connection

    def _not_connected(self, reason: str) -> OSError:
        """The error of a connection that could not be made."""
        if STARTING.search(reason):
            unavailable = DatabaseUnavailable(
                errno.EAGAIN, f"the server takes no connections now ({reason})", self.name
            )
            unavailable.is_starting = True
            return unavailable
        kind = OSError if REFUSED.search(reason) else DatabaseUnavailable
        advice = "cannot connect; check host, port, database, user and password"
        return kind(errno.EHOSTUNREACH, f"{advice} ({reason})", self.name)

    def give(self, connection: psycopg.Connection[Any]) -> None:
        """Take a connection back; one that is broken or in a transaction is closed."""
        if connection.closed:
            # Those that were idle meanwhile have probably ended as well.
            with self._lock:
                idle, self._idle = self._idle, []
            for each in idle:
                each.close()
            return
        is_sound = connection.info.transaction_status == TransactionStatus.IDLE
        with self._lock:
            if is_sound and not self._is_closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
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
        for each in idle:
            each.close()


_OPEN: WeakSet[Connections] = WeakSet()
INHERITED: list[psycopg.Connection[Any]] = []
"""Connections of a parent process, which are neither used nor closed here."""


def _leave_to_parent() -> None:
    """Let a forked process open connections of its own."""
    for each in _OPEN:
        each._lock = threading.Lock()
        INHERITED.extend(each._idle)
        each._idle = []


os.register_at_fork(after_in_child=_leave_to_parent)
