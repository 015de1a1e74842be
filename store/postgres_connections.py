"""Connections to one Postgres database, shared by a process, and errors with advice.

`psycopg_pool` does not fit: a server that cannot be reached is a timeout without its cause, its
connections are opened by threads, which a forked process does not have, and a thread that holds a
connection waits for a second one like any other.
"""

import errno
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from secrets import randbits
from select import POLLIN, poll
from threading import Event, RLock, get_ident
from time import monotonic, sleep
from typing import Any
from weakref import finalize

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper

from costada.store.address import CAN_RESUME, address_parts, shown_address
from costada.store.outage import DatabaseUnavailable, check_stop
from costada.values.redaction import without_passwords

SCHEMA = "costada"
"""Every table of ours is in this schema, and LangGraph's for the checkpoints of our saver."""

MAX_CONNECTIONS = 16
"""Connections of a pool that threads use at once, and most that stay open while none does.

A thread that has one gets more of them at once, beyond this number.
"""

IDLE_SECONDS = 15.0
"""Seconds after which the server ends the session of a client that stopped in a transaction."""

CHECK_SECONDS = 1.0
"""Longest time that a thread whose run is asked to stop waits for a connection.

Others give theirs back within milliseconds, except where the server hangs.
"""

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

CAUSES = (
    *(errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH),
    *(errno.ECONNRESET, errno.EACCES, errno.ENOENT),
)
"""Errors of the system whose words libpq repeats where a connection fails."""

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

NO_TABLES = ("42P01", "3F000", "42703", "42883", "42P10")
"""A table, the schema, a column, a function or a key is missing."""


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


@dataclass(slots=True, eq=False)
class _Waiter:
    """A thread that waits for a connection, or the error of a server that cannot be reached."""

    has_come: Event = field(default_factory=Event)
    error: DatabaseUnavailable | None = None


class Pool:
    """The connections of this process to one address, with the same settings of their sessions.

    A thread waits while `MAX_CONNECTIONS` are in use. Those that wait are woken in their order, but
    a thread that is at work may be faster, as a connection would idle until one has woken up. One
    that holds a connection already does not wait for a second one: threads that hold one each and
    wait for each other would never go on. A lock of the program that is taken while a connection is
    held must not be held by a thread that waits for its first one.

    It is closed when its last user leaves. The collector may end a user in any line here, so the
    lock is reentrant.
    """

    def __init__(
        self, conninfo: str, session: dict[str, str], name: str, *, is_read_only: bool
    ) -> None:
        """Make no connection yet."""
        self._conninfo, self._session, self._name = conninfo, session, name
        self._is_read_only = is_read_only
        self._users: set[object] = set()
        self._is_closed = False
        self._idle: list[psycopg.Connection[Any]] = []
        self._is_checked = False
        self._has_to_set = False  # as a pooler drops the options of a connection
        self._begin()

    def _begin(self) -> None:
        self._lock = RLock()
        self._lent: dict[psycopg.Connection[Any], int] = {}  # with the threads that use them
        self._num_used = 0  # these, and those that are being opened
        self._waiting: deque[_Waiter] = deque()

    def join(self, user: object) -> bool:
        """Keep the pool open for a user; false if it is closed."""
        with self._lock:
            self._users.add(user)
            return not self._is_closed

    def leave(self, user: object) -> None:
        """End the use of the pool; the last user closes it."""
        with self._lock:
            self._users.discard(user)
            if self._users:
                return
            self._is_closed = True
            _POOLS.pop(self._conninfo, None)
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def take(self) -> psycopg.Connection[Any]:
        """As `Connections.take`."""
        self._wait_for_slot()
        try:
            connection = self._idle_one() or self.opened()
            with self._lock:
                self._lent[connection] = get_ident()
        except BaseException as error:  # raised again: another thread may take one
            with self._lock:
                # Each of them would wait for the same answer as long, one after another.
                if isinstance(error, DatabaseUnavailable) and not error.is_starting:
                    self._refuse_all(error)
                self._free_slot()
            raise
        return connection

    def _idle_one(self) -> psycopg.Connection[Any] | None:
        """An idle connection, `None` if there is none that the server has not ended meanwhile."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not _has_pending_input(connection):
                return connection
            connection.close()

    def _wait_for_slot(self) -> None:
        """Wait until the thread may take a connection."""
        with self._lock:
            if self._num_used < MAX_CONNECTIONS or get_ident() in self._lent.values():
                self._num_used += 1
                return
            waiter = _Waiter()
            self._waiting.append(waiter)
        try:
            while not self._may_take(waiter):
                if not waiter.has_come.wait(CHECK_SECONDS):
                    check_stop()
        finally:
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                self._wake_next()

    def _may_take(self, waiter: _Waiter) -> bool:
        """Whether a thread that waits takes a connection now; raises where none can be opened."""
        with self._lock:
            if waiter.error is not None:
                raise copy(waiter.error)
            if self._num_used < MAX_CONNECTIONS:
                self._num_used += 1
                return True
            waiter.has_come.clear()  # a thread that was at work has taken it before
            return False

    def _wake_next(self) -> None:
        """Let the first thread that waits look for a connection; called with the lock."""
        if self._waiting and self._num_used < MAX_CONNECTIONS:
            self._waiting[0].has_come.set()

    def _free_slot(self) -> None:
        """Let another thread take a connection in place of this one; called with the lock."""
        self._num_used -= 1
        self._wake_next()

    def _refuse_all(self, error: DatabaseUnavailable) -> None:
        """Raise an error in all threads that wait; called with the lock."""
        for waiter in self._waiting:
            waiter.error = error
            waiter.has_come.set()
        self._waiting.clear()

    def give(self, connection: psycopg.Connection[Any]) -> None:
        """As `Connections.give`."""
        is_sound = connection.info.transaction_status == TransactionStatus.IDLE
        ended: list[psycopg.Connection[Any]] = []
        with self._lock:
            if self._lent.pop(connection, None) is None:
                return  # a parent process has lent it
            if connection.closed:
                # Those that were idle meanwhile have probably ended as well.
                ended, self._idle = self._idle, []
            has_room = self._num_used + len(self._idle) <= MAX_CONNECTIONS
            if is_sound and has_room and not self._is_closed:
                self._idle.append(connection)
            else:
                ended.append(connection)
            self._free_slot()
        for each in ended:
            each.close()

    def leave_to_parent(self) -> None:
        """Have no connection in a forked process."""
        INHERITED.extend((*self._idle, *self._lent))
        self._idle = []
        self._begin()

    def opened(self) -> psycopg.Connection[Any]:
        """As `Connections.opened`."""
        connection = self._connected()
        try:
            with explaining(self._name):
                # Once: all connections are alike, and the check opens a second one.
                if not self._is_checked:
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
            raise ValueError(f"{self._name}: {NO_SESSION}")
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
                raise ValueError(f"{self._name}: {NO_OPTIONS} ({reason})") from error
            raise self._not_connected(reason) from error
        # After a failover an address may lead to the old server, or to one not promoted yet.
        if not self._is_read_only and connection.info.parameter_status("in_hot_standby") == "on":
            connection.close()
            raise DatabaseUnavailable(
                errno.EROFS, "the server is a standby, which takes no writes", self._name
            )
        connection.adapters.register_dumper(int, Int8Dumper)  # one plan for all sizes of numbers
        return connection

    def _not_connected(self, reason: str) -> OSError:
        """The error of a connection that could not be made."""
        if STARTING.search(reason):
            unavailable = DatabaseUnavailable(
                errno.EAGAIN, f"the server takes no connections now ({reason})", self._name
            )
            unavailable.is_starting = True
            return unavailable
        kind = OSError if REFUSED.search(reason) else DatabaseUnavailable
        advice = "cannot connect; check host, port, database, user and password"
        known = (each for each in CAUSES if os.strerror(each) in reason)
        return kind(next(known, errno.EIO), f"{advice} ({reason})", self._name)


def _has_pending_input(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server has sent something unasked, as it does when it ends a session."""
    looking = poll()
    looking.register(connection.pgconn.socket, POLLIN)
    return bool(looking.poll(0))


class Connections:
    """A user's access to the pool of its address: threads borrow connections, in autocommit mode.

    All users of the process with one address and the same settings share a pool. A lost connection
    raises `DatabaseUnavailable` where it is used, and the next use opens another one. A forked
    process opens its own.

    Attributes:
        name: What messages call the database.
        when_taken: Called with each connection that is taken, before its use.
    """

    when_taken: Callable[[psycopg.Connection[Any]], None] | None = None

    def __init__(
        self, address: str, *, is_read_only: bool = False, idle_seconds: float = IDLE_SECONDS
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
        session = {**SESSION, **idle, **reading}
        own = " ".join(f"-c {name}={value}" for name, value in session.items())
        # libpq separates options by spaces.
        own = own.replace("read committed", r"read\ committed")
        options = f"{parts.get('options', '')} {own}".strip()
        conninfo = make_conninfo(**{**DEFAULTS, **parts, "options": options})
        self.name = shown_address(address)
        new, user = Pool(conninfo, session, self.name, is_read_only=is_read_only), object()
        while not (pool := _POOLS.setdefault(conninfo, new)).join(user):
            pass  # its last user has just left
        self._pool, self._leave = pool, finalize(self, pool.leave, user)

    def take(self) -> psycopg.Connection[Any]:
        """A connection for this thread alone, which `give` takes back; waits until one is free.

        Raises:
            DatabaseUnavailable: The server cannot be reached, or takes no connections now.
            InterruptedError: The run was asked to stop while it waited.
            OSError: The server refuses the connection.
        """
        if not self._leave.alive:
            raise ValueError(f"{self.name}: is closed, expected an open store")
        connection = self._pool.take()
        try:
            if self.when_taken:
                with explaining(self.name):
                    self.when_taken(connection)
        except BaseException:  # raised again: the connection is not used
            self.give(connection)
            raise
        return connection

    def opened(self) -> psycopg.Connection[Any]:
        """A new connection beside those of the pool, which the caller closes.

        Raises:
            OSError: As `take`.
            ValueError: A pooler in between does not give the connection a session of its own.
        """
        return self._pool.opened()

    def give(self, connection: psycopg.Connection[Any]) -> None:
        """Take a connection back; one that is broken or in a transaction is closed."""
        self._pool.give(connection)

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
        """Leave the pool, whose last user closes its connections."""
        self._leave()


@contextmanager
def closing_on_error(connections: Connections) -> Iterator[None]:
    """Close connections if the block fails, so that no traceback keeps their pool open."""
    try:
        yield
    except BaseException:  # raised again
        connections.close()
        raise


_POOLS: dict[str, Pool] = {}
INHERITED: list[psycopg.Connection[Any]] = []
"""Connections of a parent process, which are neither used nor closed here."""


def _leave_to_parent() -> None:
    """Let a forked process open connections of its own."""
    for each in [*_POOLS.values()]:
        each.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)
