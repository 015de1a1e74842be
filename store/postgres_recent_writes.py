"""Writes that a crash of the server may undo, kept until a durable commit has followed them.

A commit that does not wait for the disk can be lost in a crash. The server has one log, so once a
later commit is on disk, all before it are. A crash, a failover and a restore empty the unlogged
table below, and no connection outlives them. So each new connection looks there before its first
use, whichever store uses it, and where the server is no longer the one it was, what all of them
have kept is sent again.

A standby that takes over may also lack commits that were on the disk of the server before it. The
numbers of transactions in `costada_transaction` show that.
"""

import errno
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakSet, WeakValueDictionary

import psycopg
from psycopg import RawCursor

from costada.store.lease import Lease, LostLease, guarding_lease
from costada.store.outage import DatabaseUnavailable, LostWrites
from costada.store.postgres_lease import check, guarded

MAX_COMMITS, MAX_SIZE = 64, 2**22
"""Commits that are kept, and characters and bytes of their values; the next one is durable."""

RECOVERY = """
CREATE UNLOGGED TABLE IF NOT EXISTS costada_recovery (
    name TEXT PRIMARY KEY, id UUID NOT NULL DEFAULT gen_random_uuid());
"""
"""One row with an id, which is another one after each crash of the server."""

NOTE_RECOVERY = "INSERT INTO costada_recovery VALUES ('last') ON CONFLICT DO NOTHING"
LAST_RECOVERY = "SELECT id FROM costada_recovery"
LAST_NUMBERS = "SELECT client, number FROM costada_transaction WHERE client = ANY(%s)"


class Commit(NamedTuple):
    """What a transaction has written: rows in place of those with their keys, or a text.

    Attributes:
        lease: Guards them, so no other process writes the same rows; `None` for a text.
        writes: Statements with their values.
        client: What wrote them.
        number: That of the transaction among those of the client; 0 outside of transactions.
    """

    lease: Lease | None
    writes: Sequence[tuple[bytes, Sequence[object]]]
    client: str
    number: int = 0

    @property
    def size(self) -> int:
        """Characters and bytes of the values."""
        values = (each for _, values in self.writes for each in values)
        return sum(len(each) for each in values if isinstance(each, str | bytes))


class RecentWrites:
    """The latest commits of this process in one database that did not wait for the disk.

    Attributes:
        num_crashes: Grows with each crash of the server that was noticed.
    """

    def __init__(self) -> None:
        self.num_crashes = 0
        self._lock = Lock()
        self._commits: list[Commit] = []
        self._size = 0
        self._num_durable = 0  # of all that were ever kept
        self._last_durable: dict[str, int] = {}  # numbers of transactions, by client
        self._guards: dict[str, Lease | None] = {}  # of these transactions
        self._lost: set[str | Lease | None] = set()
        self._recovery: object = None
        self._seen: WeakSet[psycopg.Connection[Any]] = WeakSet()  # that have looked there

    @property
    def is_full(self) -> bool:
        """Whether the next commit has to be durable."""
        return len(self._commits) >= MAX_COMMITS or self._size >= MAX_SIZE

    @property
    def num_kept(self) -> int:
        """How many commits were ever kept; those up to here are before a commit sent now."""
        with self._lock:
            return self._num_durable + len(self._commits)

    def keep(self, commit: Commit, num_crashes: int, place: str) -> None:
        """Keep a commit that the server has confirmed and may not have on disk.

        Args:
            commit: The commit.
            num_crashes: The number after its connection was taken and before it was sent.
            place: What messages call the database.

        Raises:
            DatabaseUnavailable: The server has crashed meanwhile, so it may have lost the commit.
        """
        if not commit.writes:
            return
        with self._lock:
            self._check_crashes(num_crashes, place)
            self._commits.append(commit)
            self._size += commit.size

    def note_durable(self, commit: Commit, num_crashes: int, place: str) -> None:
        """Note that a commit is on disk; arguments and errors as those of `keep`."""
        with self._lock:
            self._check_crashes(num_crashes, place)
            self._note(commit)

    def forget(self, number: int) -> None:
        """Note that so many of all commits ever kept are on disk."""
        with self._lock:
            durable = self._commits[: max(0, number - self._num_durable)]
            del self._commits[: len(durable)]
            self._num_durable += len(durable)
            self._size -= sum(commit.size for commit in durable)
            for commit in durable:
                self._note(commit)

    def forget_client(self, client: str) -> None:
        """Note that a client writes no more."""
        with self._lock:
            self._last_durable.pop(client, None)
            self._guards.pop(client, None)
            self._lost.discard(client)

    def _check_crashes(self, num_crashes: int, place: str) -> None:
        if num_crashes != self.num_crashes:
            raise DatabaseUnavailable(errno.EIO, "the server has crashed", place)

    def _note(self, commit: Commit) -> None:
        if commit.number > self._last_durable.get(commit.client, 0):
            self._last_durable[commit.client] = commit.number
            self._guards[commit.client] = commit.lease

    def restore(
        self, connection: psycopg.Connection[Any], place: str, clients: Collection[str]
    ) -> None:
        """Send again what the server may have lost; called with a connection before each use.

        Only its first use asks the server. Others wait meanwhile, so nothing that was written later
        is overwritten.

        Args:
            connection: Of the pool that the clients share with others.
            place: What messages call the database.
            clients: Names of who uses the connection.

        Raises:
            LostWrites: The server lacks a write that was on disk, of one of these clients or of
                another one that the lease of this thread guards: they refer to each other.
        """
        with self._lock:
            if connection not in self._seen:
                self._restore(connection)
                self._seen.add(connection)
        if self._lost.intersection((*clients, guarding_lease())):
            reason = "a standby without them has taken over, or a backup was restored"
            raise LostWrites(f"{place}: lacks writes that it had confirmed; {reason}")

    def look_again(self, connection: psycopg.Connection[Any]) -> None:
        """Ask the server at the next use of a connection."""
        with self._lock:
            self._seen.discard(connection)

    def _restore(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(NOTE_RECOVERY)
        ((recovery,),) = connection.execute(LAST_RECOVERY).fetchall()
        if recovery == self._recovery:
            return
        for client in self._without_last_write(connection):
            self._lost |= {client, *filter(None, [self._guards[client]])}
        for commit in self._commits:
            if commit.lease not in self._lost:
                # Its run belongs to another process now, which goes on without it.
                with suppress(LostLease):
                    _repeat(commit, connection)
        self._num_durable += len(self._commits)
        self._commits.clear()
        self._size = 0
        self.num_crashes += 1
        self._recovery = recovery

    def _without_last_write(self, connection: psycopg.Connection[Any]) -> set[str]:
        """The clients whose last transaction on disk the server does not have."""
        clients = [*self._last_durable]
        found = dict(connection.execute(LAST_NUMBERS, (clients,)).fetchall()) if clients else {}
        known = self._last_durable.items()
        return {client for client, number in known if found.get(client, 0) < number}

    def leave_to_parent(self) -> None:
        """Keep nothing in a forked process."""
        self._lock = Lock()
        self._commits, self._size, self._recovery = [], 0, None
        self._last_durable, self._guards, self._lost = {}, {}, set()
        self._seen = WeakSet()


def _repeat(commit: Commit, connection: psycopg.Connection[Any]) -> None:
    """Make a commit again, durably; raises `LostLease` where its lease is lost."""
    with guarded(commit.lease), connection.transaction(), RawCursor(connection) as cursor:
        check(connection, commit.lease)
        for statement, values in commit.writes:
            cursor.execute(statement, values, binary=True)


_KNOWN: WeakValueDictionary[tuple[object, ...], RecentWrites] = WeakValueDictionary()
_LOOKING_UP = Lock()


def recent_writes_in(connection: psycopg.Connection[Any]) -> RecentWrites:
    """The recent writes of this process in the database of a connection.

    Its next use asks the server again: a backup may have been restored since others used it.
    """
    info = connection.info
    reached = info.hostaddr or info.host, info.port, info.dbname, info.user
    with _LOOKING_UP:
        found = _KNOWN.setdefault(reached, RecentWrites())
    found.look_again(connection)
    return found


def _leave_to_parent() -> None:
    global _LOOKING_UP
    _LOOKING_UP = Lock()  # a thread that does not exist here may have held the old one
    for each in [*_KNOWN.values()]:
        each.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)
