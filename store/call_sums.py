"""What the calls of a ticket have cost so far, by role, without reading their rows each time."""

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from costada.store.database import Database
from costada.store.rows import CallStatus, amount
from costada.values.numbering import TicketNumber
from costada.values.usage import exactly

MAX_TICKETS = 256
"""Tickets whose sums are kept; those that are in flight are far fewer."""


class CallSum(NamedTuple):
    """Dollars of calls.

    Attributes:
        cost: What they have cost.
        bound: The most that they can have cost beyond that.
        sent: The part of the bound that is of requests in flight.
    """

    cost: Decimal = Decimal(0)
    bound: Decimal = Decimal(0)
    sent: Decimal = Decimal(0)


def sum_of(status: str, cost: Decimal, bound: Decimal) -> CallSum:
    """That of one request."""
    return CallSum(cost, bound, bound if status == CallStatus.STARTED else Decimal(0))


@exactly
def total(first: CallSum, second: CallSum) -> CallSum:
    """The sum of two."""
    return CallSum(first.cost + second.cost, first.bound + second.bound, first.sent + second.sent)


@exactly
def difference(first: CallSum, second: CallSum) -> CallSum:
    """What has to be added to the second for the first."""
    return CallSum(first.cost - second.cost, first.bound - second.bound, first.sent - second.sent)


class CallSums:
    """The sums of a database, changed with each row that the log of calls writes.

    A step may send thousands of requests, and each needs the sum before it leaves. A sum is read
    from the rows again where it may have changed otherwise: another connection has written to the
    file, or a transaction was undone. Nothing is kept of a database that several machines share,
    as it does not say when another one has written.
    """

    def __init__(self, database: Database) -> None:
        """Know no sum yet."""
        self._db = database
        self._sums: dict[tuple[str, TicketNumber], dict[str, CallSum]] = {}
        self._seen: tuple[int, int] | None = None

    def of(self, run_id: str, ticket: TicketNumber) -> Mapping[str, CallSum]:
        """The sums of a ticket by role."""
        if self._db.engine.is_shared:
            return self._read(run_id, ticket)
        with self._db.engine.lock:  # no other thread writes a row and changes its sum in between
            self._forget_if_changed()
            key = run_id, ticket
            if key not in self._sums:
                if len(self._sums) >= MAX_TICKETS:
                    self._sums.clear()
                self._sums[key] = self._read(run_id, ticket)
            return dict(self._sums[key])

    def is_kept(self, run_id: str, ticket: TicketNumber) -> bool:
        """Whether the sums of a ticket have to be changed with its rows."""
        with self._db.engine.lock:
            return (run_id, ticket) in self._sums

    def add(self, run_id: str, ticket: TicketNumber, role: str, change: CallSum) -> None:
        """Change the sum of a ticket as a row does that is written in the same transaction."""
        with self._db.engine.lock:
            of_ticket = self._sums.get((run_id, ticket))
            if of_ticket is not None:
                of_ticket[role] = total(of_ticket.get(role, CallSum()), change)

    def forget(self, run_id: str, ticket: TicketNumber) -> None:
        """Read the sums of a ticket again when they are needed."""
        with self._db.engine.lock:
            self._sums.pop((run_id, ticket), None)

    def _forget_if_changed(self) -> None:
        ((version,),) = self._db.rows("PRAGMA data_version")
        seen = version, self._db.num_undone
        if seen != self._seen:
            self._sums.clear()
            self._seen = seen

    def _read(self, run_id: str, ticket: TicketNumber) -> dict[str, CallSum]:
        sums: dict[str, CallSum] = {}
        for role, status, cost, bound in self._db.rows(
            "SELECT role, status, cost, bound FROM costada_call WHERE run_id = ? AND ticket = ?",
            (run_id, ticket),
        ):
            of_call = sum_of(status, amount(cost), amount(bound))
            sums[role] = total(sums.get(role, CallSum()), of_call)
        return sums
