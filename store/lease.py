"""A run that this process holds while others may reach its database, and the writes it guards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

LEASE_SECONDS = 30.0
"""Seconds without a heartbeat after which another process may take over a run."""

MIN_SECONDS = 1.0


class LostLease(ValueError):
    """Another process has taken over the run; this one has written nothing since."""


class HeldElsewhere(ValueError):
    """Another process holds the run, or held it a moment ago."""


class Holder(NamedTuple):
    """A process that holds a run; `since` is the time in ISO 8601."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"

    @property
    def began(self) -> float:
        """Since when, in seconds since 1970 UTC."""
        return datetime.fromisoformat(self.since).timestamp()


class LeaseHolder(Protocol):
    """What holds the leases of this process in one database."""

    def renew(self) -> None:
        """Send a heartbeat for all leases, and note which are lost."""

    def share(self, lease: Lease) -> None:
        """Let another part of this process hold the run, too; it releases the lease as well."""

    def release(self, lease: Lease) -> None:
        """Release the run once no part of this process holds it."""


def elapsed() -> float:
    """Seconds of a clock that also counts while the process or the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(slots=True, eq=False)
class Lease:
    """A run that this process holds.

    Attributes:
        name: What is held: a run, or the thread of a graph.
        epoch: Grows with each holder; writes of an earlier one are refused.
        seconds: Seconds without a heartbeat after which another process may take over.
        holder: Renews and releases it.
        confirmed: When the last confirmed heartbeat was sent.
        num_users: How many parts of this process hold it.
        lost: Why it is lost; empty while it is held.
    """

    name: str
    epoch: int
    seconds: float
    holder: LeaseHolder
    confirmed: float = field(default_factory=elapsed)
    num_users: int = 1
    lost: str = ""

    def check(self) -> None:
        """Raise `LostLease` if another process has taken over the run.

        The server is asked only when the heartbeat is overdue: earlier, no process can take over
        while this one is connected.
        """
        if not self.lost and elapsed() - self.confirmed > self.seconds:
            self.holder.renew()
        if self.lost:
            raise LostLease(self.lost)

    def release(self) -> None:
        """Release the run once no part of this process holds it."""
        self.holder.release(self)


_GUARD: ContextVar[Lease | None] = ContextVar("costada_lease", default=None)


def guarding_lease() -> Lease | None:
    """The lease that writes of this thread or task depend on."""
    return _GUARD.get()


@contextmanager
def guarded_by(lease: Lease | None) -> Iterator[None]:
    """Let writes in the block succeed only while the lease is held.

    That includes threads that are started with a copy of the block's context.
    """
    token = _GUARD.set(lease)
    try:
        yield
    finally:
        _GUARD.reset(token)
