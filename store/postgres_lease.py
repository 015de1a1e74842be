"""Leases on runs in Postgres: one process at a time holds a run, for as long as it lives.

A holder has a session-level advisory lock, which the server releases when the process dies, and a
row with its host, its process and the time of its last heartbeat by the server's clock. A run whose
lock is free can be taken at once, and one whose heartbeat is overdue although a session still has
the lock, as after a network failure, can be taken over. Each holder has a higher epoch than the one
before, and a transaction that depends on a lease begins with a check of the epoch.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

import psycopg

from costada.store.lease import HeldElsewhere, Lease, LostLease, elapsed, guarding_lease
from costada.store.outage import outlast
from costada.store.postgres_connections import (
    IDLE_SECONDS,
    INHERITED,
    IS_LOCKED,
    Connections,
    explaining,
)

BEATS = 6
"""Heartbeats in the time after which a lease expires."""

PATIENCE_SECONDS = 1.0
"""Seconds for which taking a held run is retried."""

TICK_SECONDS = 0.05

LOST_SECONDS = 0.5
"""Seconds between two heartbeats while the server cannot be reached."""

LOST = "CA001"
"""SQLSTATE of a write whose lease another process has taken over."""

SINCE = """to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"""

LEASES = f"""
CREATE TABLE IF NOT EXISTS costada_lease (
    name TEXT PRIMARY KEY, epoch BIGINT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
    since TIMESTAMPTZ NOT NULL, beat TIMESTAMPTZ NOT NULL, seconds DOUBLE PRECISION NOT NULL,
    UNIQUE (name, epoch)
);
CREATE OR REPLACE FUNCTION costada_check_lease(held TEXT, held_epoch BIGINT) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE present RECORD;
BEGIN
    PERFORM 1 FROM costada_lease WHERE name = held AND epoch = held_epoch FOR KEY SHARE;
    IF FOUND THEN RETURN; END IF;
    SELECT pid, host, {SINCE} AS since
        INTO present FROM costada_lease WHERE name = held;
    RAISE EXCEPTION USING ERRCODE = '{LOST}', MESSAGE = format(
        'process %s on %s took it over at %s', present.pid, present.host, present.since);
END $$;
"""  # noqa: S608
"""The unique pair makes an update of the epoch wait for transactions that have checked it, while a
heartbeat does not wait for them, nor they for it."""

CHECK = b"SELECT costada_check_lease(%s, %s)"

# With the epoch: a process that lost a run may still have the lock of its own epoch.
LOCK = "hashtextextended(name || ' ' || epoch, 'costada_lease'::regclass::oid::bigint)"
"""Number of the advisory lock of a holder, in a query of its row."""

NEW_ROW = """
INSERT INTO costada_lease VALUES (%s, 0, '', 0, now(), now(), 0) ON CONFLICT (name) DO NOTHING
"""
PRESENT = f"""
SELECT pid, host, {SINCE},
    seconds = 0 OR extract(epoch FROM clock_timestamp() - beat) > seconds
    OR pg_try_advisory_xact_lock({LOCK})
FROM costada_lease WHERE name = %s FOR NO KEY UPDATE
"""  # noqa: S608
"""The holder, and whether its run is free or can be taken over; other takers wait."""

HOLDERS = f"""
SELECT name, pid, host, {SINCE}
FROM costada_lease WHERE (?1::text IS NULL OR name = ?1) AND host <> ''
    AND extract(epoch FROM clock_timestamp() - beat) <= seconds
    AND {IS_LOCKED.format(LOCK)}
"""  # noqa: S608
"""The processes that hold runs; no row of one that has died or whose heartbeat is overdue."""

TAKE = f"""
UPDATE costada_lease SET epoch = greatest(epoch + 1, extract(epoch FROM clock_timestamp()) * 1e6),
    host = %s, pid = %s, since = clock_timestamp(), beat = clock_timestamp(), seconds = %s
WHERE name = %s RETURNING epoch, pg_try_advisory_lock({LOCK})
"""  # noqa: S608
"""An epoch is no count: after a failover that has lost the row of a holder, the next one would get
the same, and both would hold the run."""

GIVE_BACK = f"""
UPDATE costada_lease SET seconds = 0 WHERE name = %s AND epoch = %s
RETURNING pg_advisory_unlock({LOCK})
"""  # noqa: S608
RENEW = """
UPDATE costada_lease SET beat = clock_timestamp()
FROM unnest(%s::text[], %s::bigint[]) AS own (name, epoch)
WHERE costada_lease.name = own.name AND costada_lease.epoch = own.epoch
RETURNING costada_lease.name
"""
LOCK_AGAIN = f"""
SELECT pg_try_advisory_lock({LOCK}) FROM costada_lease WHERE name = %s AND epoch = %s
"""  # noqa: S608


class Leases:
    """The leases that this process holds in one database, on a connection of their own.

    A thread renews them while any is held. It may be used from any thread.
    """

    def __init__(self, address: str) -> None:
        # With another time limit than stores: in a pool of theirs, it would keep that one open.
        self._connections = Connections(address, idle_seconds=0.0)
        self._changed = Condition()
        self._held: dict[str, Lease] = {}
        self._unlocked: set[str] = set()  # without the server's lock, after a cut connection
        self._connection: psycopg.Connection[Any] | None = None
        self._thread: Thread | None = None

    def acquire(self, name: str, seconds: float) -> Lease:
        """Hold a run for this process, which may hold it several times.

        Taking a held run is retried for a second: the server needs some milliseconds to notice that
        a process has died.

        Args:
            name: What is held.
            seconds: Seconds without a heartbeat after which another process may take over.

        Raises:
            ValueError: Another process holds the run, naming it.
            OSError: The server cannot be reached.
        """
        return outlast(partial(self._acquire, name, seconds))

    def _acquire(self, name: str, seconds: float) -> Lease:
        deadline = monotonic() + PATIENCE_SECONDS
        with self._changed, explaining(self._connections.name):
            while True:
                if (known := self._held.get(name)) and not known.lost:
                    known.num_users += 1
                    return known
                # Before the request: the lease must be over here before it is on the server.
                sent = elapsed()
                try:
                    epoch = self._take(name, seconds)
                    break
                except HeldElsewhere:
                    if monotonic() >= deadline:
                        # Without a lease there is no thread that would close it.
                        if not self._held and self._connection is not None:
                            self._connection.close()
                        raise
                    self._changed.wait(TICK_SECONDS)
            lease = Lease(name, epoch, seconds, self, sent)
            self._held[name] = lease
            if self._thread is None:
                self._thread = Thread(target=self._beat, name="costada-lease", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return lease

    def share(self, lease: Lease) -> None:
        """Let another part of this process hold the run, too; it releases the lease as well."""
        with self._changed:
            lease.num_users += 1

    def release(self, lease: Lease) -> None:
        """Release the run once no part of this process holds it."""
        with self._changed:  # not while a heartbeat or a take uses the connection
            lease.num_users -= 1
            if lease.num_users or self._held.get(lease.name) is not lease:
                return
            del self._held[lease.name]
            self._unlocked.discard(lease.name)
            # without a connection the server has released the lock, or will
            with suppress(psycopg.OperationalError):
                if self._connection is not None and not lease.lost:
                    self._connection.execute(GIVE_BACK, (lease.name, lease.epoch))
            self._changed.notify_all()

    def guard(self) -> Lease | None:
        """The lease that guards the writes of this thread in this database."""
        lease = guarding_lease()
        return lease if lease is not None and lease.holder is self else None

    def renew(self) -> None:
        """Send a heartbeat for all leases, and note which are lost.

        Raises:
            OSError: The server cannot be reached.
        """
        outlast(self._renew)

    def _renew(self) -> None:
        with self._changed, explaining(self._connections.name):
            held = {name: lease for name, lease in self._held.items() if not lease.lost}
            sent = elapsed()
            connection = self._connected()
            epochs = [lease.epoch for lease in held.values()]
            found = {name for (name,) in connection.execute(RENEW, ([*held], epochs)).fetchall()}
            for name, lease in held.items():
                if name in found:
                    lease.confirmed = sent
                else:
                    # The row has another epoch; the check notes in `lost` who took the run over.
                    with suppress(LostLease), guarded(lease):
                        check(connection, lease)
            for name in found & self._unlocked:
                values = name, held[name].epoch
                if connection.execute(LOCK_AGAIN, values).fetchall() == [(True,)]:
                    self._unlocked.discard(name)

    def forget(self) -> None:
        """Hold nothing in a forked process: the leases and their connection are the parent's."""
        if self._connection is not None:
            INHERITED.append(self._connection)
        self._changed, self._connection, self._thread = Condition(), None, None
        self._held, self._unlocked = {}, set()

    def _take(self, name: str, seconds: float) -> int:
        """Become the holder of a run and return the epoch; raises as `acquire` does."""
        connection = self._connected()
        own = socket.gethostname(), os.getpid(), seconds, name
        try:
            with connection.transaction():
                # At most a heartbeat: no other lease of this process is renewed while this waits.
                # And a process that stops in here does not hold up others that take the run.
                idle = min(IDLE_SECONDS, seconds / 2)
                connection.execute(
                    f"SET LOCAL lock_timeout TO {int(1000 * seconds / BEATS)};"
                    f"SET LOCAL idle_in_transaction_session_timeout TO {int(1000 * idle)}"
                )
                connection.execute(NEW_ROW, (name,))
                ((pid, host, since, is_free),) = connection.execute(PRESENT, (name,)).fetchall()
                if not is_free:
                    raise HeldElsewhere(
                        f"{name}: another process is at work in this run: process {pid} on {host}"
                        f" since {since}"
                    )
                ((epoch, is_locked),) = connection.execute(TAKE, own).fetchall()
        except psycopg.errors.LockNotAvailable:
            raise HeldElsewhere(
                f"{name}: another process is in the middle of a write or is taking over this run;"
                " try again in some seconds"
            ) from None
        if not is_locked:
            self._unlocked.add(name)
        return int(epoch)

    def _connected(self) -> psycopg.Connection[Any]:
        """The connection of the leases; a new one has to lock again what is held."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connections.opened()
            self._unlocked = {*self._held}
        return self._connection

    def _beat(self) -> None:
        """Renew the leases until there are none."""
        is_lost = False
        while True:
            with self._changed:
                if not self._held:
                    self._thread = None
                    if self._connection is not None:
                        self._connection.close()
                    return
                seconds = min(each.seconds for each in self._held.values()) / BEATS
                # Soon: a server that has restarted has forgotten the lock of the lease.
                self._changed.wait(min(seconds, LOST_SECONDS) if is_lost else seconds)
                is_lost = True
                with suppress(OSError, ValueError, psycopg.Error):
                    self._renew()
                    is_lost = False


def check(connection: psycopg.Connection[Any], lease: Lease | None) -> None:
    """Let the transaction fail if a lease is lost; with `None` do nothing."""
    if lease is not None:
        connection.execute(CHECK, (lease.name, lease.epoch))


@contextmanager
def guarded(lease: Lease | None) -> Iterator[None]:
    """Raise `LostLease` where the check of a lease fails."""
    try:
        yield
    except psycopg.DatabaseError as error:
        if lease is None or error.sqlstate != LOST:
            raise
        lease.lost = (
            f"{lease.name}: this process has lost the run: {error.diag.message_primary}. Its"
            f" heartbeat was overdue by more than {lease.seconds:g} seconds, or its connection was"
            " cut. It has written nothing since; what it had stored before is kept"
        )
        raise LostLease(lease.lost) from error


_KNOWN: WeakValueDictionary[tuple[object, ...], Leases] = WeakValueDictionary()
_LOOKING_UP = Lock()


def leases_in(address: str, connection: psycopg.Connection[Any]) -> Leases:
    """The leases of this process in the database of an address, however it is written.

    Args:
        address: Of the database.
        connection: One to it.
    """
    info = connection.info
    reached = info.hostaddr or info.host, info.port, info.dbname, info.user
    with _LOOKING_UP:
        return _KNOWN.setdefault(reached, Leases(address))


def _leave_to_parent() -> None:
    """Let a forked process take leases of its own."""
    global _LOOKING_UP
    _LOOKING_UP = Lock()  # a thread that does not exist here may have held the old one
    for each in [*_KNOWN.values()]:
        each.forget()


os.register_at_fork(after_in_child=_leave_to_parent)
