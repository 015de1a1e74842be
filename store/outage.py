"""Waiting for a database that is away: while its server restarts, fails over or cannot be reached.

One function does all of it: `outlast` repeats work until the database is back. Who may wait, and
for how long, is said by `waiting_for_database` around a run or a command.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from threading import Lock
from time import monotonic, sleep
from typing import TypeVar

Found = TypeVar("Found")

MIN_WAIT, MAX_WAIT = 0.05, 2.0
"""Seconds between two tries; the wait doubles from the first to the second."""

POLL_SECONDS = 0.2
"""Longest time until what waits notices that it is asked to stop."""

LONGEST_PAUSE = 3600.0
"""Seconds that a purse waits for its database outside of a run."""

_LOG = logging.getLogger(__name__)


class DatabaseUnavailable(OSError):
    """A database cannot be reached, starts up or has ended a connection; it may soon be back.

    Attributes:
        is_starting: Whether the server answers that it takes no connections yet or any more.
    """

    is_starting = False


class RowsChanged(OSError):
    """Another client has changed rows that a transaction had read before it lost its connection.

    The transaction has written nothing.
    """


class LostWrites(ValueError):
    """The server lacks writes of this process that it had confirmed.

    A standby without them has taken over, or a backup was restored. The process has to read again
    what is there.
    """


@dataclass(slots=True)
class Patience:
    """How long a database is waited for, by all threads of a run together.

    Attributes:
        seconds: The longest outage.
        check: Raises `InterruptedError` if the waiting is to end.
        starting_only: Whether only a server is waited for that starts up, and not one that cannot
            be reached: its address may be wrong.
        is_over: Whether an outage has lasted too long, so that nothing waits for its end any more.
    """

    seconds: float
    check: Callable[[], None] = lambda: None
    starting_only: bool = False
    is_over: bool = False

    def covers(self, error: DatabaseUnavailable) -> bool:
        """Whether an outage with this error is waited out."""
        if not self.seconds:
            return False
        return not self.starting_only or error.is_starting or _IS_KNOWN.get()


NO_PATIENCE = Patience(0.0)
"""For who asks again soon."""

_IS_KNOWN: ContextVar[bool] = ContextVar("costada_address_is_known", default=False)
_PATIENCE: ContextVar[Patience | None] = ContextVar("costada_patience", default=None)
_IN_ANY_CASE: ContextVar[bool] = ContextVar("costada_in_any_case", default=False)


@contextmanager
def waiting_for_database(patience: Patience) -> Iterator[None]:
    """Let work in the block outlast an outage of its database, as an outer block says if any does.

    That includes threads that are started with a copy of the block's context.
    """
    token = _PATIENCE.set(_PATIENCE.get() or patience)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


def trust_address() -> None:
    """Let `starting_only` hold nothing up in this process: its addresses were used before."""
    _IS_KNOWN.set(True)


@contextmanager
def waiting_in_any_case() -> Iterator[None]:
    """Let the block wait also when the run is asked to stop: what it writes was paid for."""
    token = _IN_ANY_CASE.set(True)
    try:
        yield
    finally:
        _IN_ANY_CASE.reset(token)


@dataclass(slots=True)
class Outage:
    """An outage that this process waits out.

    Attributes:
        database: What messages call the database.
        since: When it was noticed.
        reason: The last error.
        num_waiting: How many threads wait.
        is_over: Whether one of them has reached the database again.
    """

    database: str
    since: datetime
    reason: str
    num_waiting: int = 0
    is_over: bool = False

    def __str__(self) -> str:
        return f"Waiting for the database, since {self.since:%H:%M:%S} ({self.reason})"


_OUTAGES: dict[str, Outage] = {}
_LOCK = Lock()


def _leave_to_parent() -> None:
    """Let a forked process wait out none of the outages that threads of its parent wait out."""
    global _LOCK
    _LOCK = Lock()  # a thread that does not exist here may have held the old one
    _OUTAGES.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def outages() -> list[Outage]:
    """The outages that threads of this process wait out now."""
    with _LOCK:
        return [*_OUTAGES.values()]


def outlast(work: Callable[[], Found], patience: Patience | None = None) -> Found:
    """The result of work, which is repeated while its database is unavailable.

    Done twice, the work must leave the same as done once: a connection that is lost does not tell
    whether the last write has arrived.

    Args:
        work: Asks the database.
        patience: Where no block of `waiting_for_database` says it; `None` for none.

    Raises:
        DatabaseUnavailable: It is not waited for, or not any longer.
        InterruptedError: The run was asked to stop while it waited.
    """
    try:
        return work()
    except DatabaseUnavailable as error:
        patience = _PATIENCE.get() or patience
        if patience is None or not patience.covers(error):
            raise
    try:
        return work()  # only the connection may be lost
    except DatabaseUnavailable as error:
        with _noted(error, patience) as outage:
            return _waited(work, patience, outage, error)


def _waited(
    work: Callable[[], Found], patience: Patience, outage: Outage, error: DatabaseUnavailable
) -> Found:
    """The result of work that has failed with an error, as soon as the database is back."""
    began, wait = monotonic(), MIN_WAIT
    while True:
        left = patience.seconds - (monotonic() - began)
        if left <= 0 or patience.is_over:
            patience.is_over = True
            raise DatabaseUnavailable(
                error.errno,
                f"the database was away for longest_pause ({patience.seconds:g} s); everything"
                " before is saved, so resume when the server answers again; last error:"
                f" {error.strerror}",
                error.filename,
            ) from error
        _sleep(min(wait, left), patience)
        wait = min(2 * wait, MAX_WAIT)
        try:
            found = work()
        except DatabaseUnavailable as again:
            error, outage.reason, outage.is_over = again, str(again.strerror), False
            continue
        if not outage.is_over:
            outage.is_over = True
            _LOG.warning("The database is back after %.0f s; continuing", monotonic() - began)
        return found


@contextmanager
def _noted(error: DatabaseUnavailable, patience: Patience) -> Iterator[Outage]:
    """Note during the block that a thread waits; the first one of an outage logs it."""
    name, reason = str(error.filename), str(error.strerror)
    with _LOCK:
        is_first = name not in _OUTAGES
        outage = _OUTAGES.setdefault(name, Outage(name, datetime.now(), reason))
        outage.num_waiting += 1
    if is_first and not patience.is_over:
        ends = ""
        if isfinite(patience.seconds):
            end = outage.since + timedelta(seconds=patience.seconds)
            ends = f", until {end:%H:%M:%S} at most"
        _LOG.warning("%s%s: %s", outage, ends, name)
    try:
        yield outage
    finally:
        with _LOCK:
            outage.num_waiting -= 1
            if not outage.num_waiting:
                del _OUTAGES[name]


def check_stop(patience: Patience | None = None) -> None:
    """Raise `InterruptedError` if waiting is to end, unless it was paid for what is written."""
    patience = patience or _PATIENCE.get()
    if patience is not None and not _IN_ANY_CASE.get():
        patience.check()


def _sleep(seconds: float, patience: Patience) -> None:
    """Wait; raises `InterruptedError` soon after the run is asked to stop."""
    ends_at = monotonic() + seconds
    while True:
        check_stop(patience)
        left = ends_at - monotonic()
        if left <= 0:
            return
        sleep(min(left, POLL_SECONDS))
