"""The ledger of a run: what its calls cost, by step and iteration, and how its steps landed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import NamedTuple

from costada.store.call_log import IS_MEANT, CallKey, CallLog
from costada.store.database import Database, any_of
from costada.store.rows import CallStatus, Charge, LandedTickets, amount
from costada.values.numbering import FIRST_TICKET, START, START_TICKET, Iteration, TicketNumber
from costada.values.roles import COMPUTE, GUIDE, JUDGING
from costada.values.usage import exactly

SPENT = """
SELECT spent FROM costada_charge WHERE run_id = ? AND iteration <= ? ORDER BY iteration DESC LIMIT 1
"""
"""The money spent up to and including an iteration."""


class Landing(NamedTuple):
    """The ticket that landed, and whether another one waited for money then.

    The file has a negative number where one waited.
    """

    ticket: TicketNumber
    is_waiting_for_funds: bool


class Ledger:
    """The account of a run, computed from its calls: one charge per iteration."""

    def __init__(self, database: Database, call_log: CallLog) -> None:
        self._db = database
        self._in_flight = call_log.in_flight
        self._sums = call_log.sums

    @exactly
    def step_cost(
        self, run_id: str, ticket: TicketNumber, *, counts_lost: bool, has_guides: bool = True
    ) -> Decimal:
        """The dollars of a step's calls so far (c_t).

        Args:
            run_id: The run.
            ticket: That of the step.
            counts_lost: Whether requests whose bill is unknown count at their upper bound.
            has_guides: Whether guide calls are part of the sum.
        """
        sums = self._sums.of(run_id, ticket).items()
        counted = [each for role, each in sums if has_guides or role != GUIDE]
        return sum((each.cost + each.bound * counts_lost for each in counted), Decimal(0))

    @exactly
    def step_costs(self, run_id: str) -> dict[TicketNumber, tuple[Decimal, Decimal]]:
        """The dollars of each step's calls so far, and the most that they may cost beyond that."""
        costs: dict[TicketNumber, tuple[Decimal, Decimal]] = {}
        for ticket, *money in self._db.rows(
            "SELECT ticket, cost, bound FROM costada_call WHERE run_id = ?", (run_id,)
        ):
            cost, bound = costs.get(ticket, (Decimal(0), Decimal(0)))
            costs[ticket] = cost + amount(money[0]), bound + amount(money[1])
        return costs

    @exactly
    def cost_before(
        self, run_id: str, ticket: TicketNumber, attempt: int, *, counts_lost: bool
    ) -> Decimal:
        """The dollars of a ticket's guide, and of its other calls before an attempt."""
        found = self._db.rows(
            "SELECT cost, bound FROM costada_call WHERE run_id = ? AND ticket = ?"  # noqa: S608
            f" AND (role = '{GUIDE}' OR attempt < ?)",
            (run_id, ticket, attempt),
        )
        dollars = (amount(cost) + (amount(bound) if counts_lost else 0) for cost, bound in found)
        return sum(dollars, Decimal(0))

    @exactly
    def attempt_cost(
        self,
        run_id: str,
        ticket: TicketNumber,
        attempts: range,
        entry: str,
        *,
        counts_lost: bool,
        has_judging: bool,
    ) -> Decimal | None:
        """The dollars of the calls that a model of the menu got in an attempt of a ticket.

        Args:
            run_id: The run.
            ticket: That of the step.
            attempts: The attempts of its calls: one, or the requests of an attempt with tools.
            entry: What the menu calls the model.
            counts_lost: Whether requests whose bill is unknown count at their upper bound.
            has_judging: Whether what judged the attempt's programs is part of the sum.

        Returns:
            `None` if it got no call.
        """
        found = self._db.rows(
            "SELECT role, cost, bound FROM costada_call WHERE run_id = ? AND ticket = ?"  # noqa: S608
            f" AND attempt >= ? AND attempt < ? AND (role IN {JUDGING} OR {IS_MEANT})",
            (run_id, ticket, attempts.start, attempts.stop, False, entry),
        )
        if all(role in JUDGING for role, _, _ in found):
            return None
        charged = _charged(found, counts_lost)
        counted = (cost for role, cost, _ in charged if has_judging or role not in JUDGING)
        return sum(counted, Decimal(0))

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Let no other thread write during the block."""
        with self._db.transaction():
            yield

    @exactly
    def open_cost(
        self, run_id: str, seen: LandedTickets, *, counts_lost: bool, counts_sent: bool = True
    ) -> Decimal:
        """The dollars of all calls of the tickets that had not landed.

        Without `counts_sent`, requests in flight do not count at their bounds.
        """
        total = Decimal(0)
        with self._db.engine.lock:  # as of one moment
            for ticket in self._open_tickets(run_id, seen):
                for each in self._sums.of(run_id, ticket).values():
                    doubt = each.bound if counts_sent else each.bound - each.sent
                    total += each.cost + doubt * counts_lost
        return total

    def num_sent(
        self,
        run_id: str,
        seen: LandedTickets,
        apart_from: TicketNumber,
        waiting: Collection[TicketNumber] = (),
    ) -> int:
        """How many of the tickets that had not landed, apart from one, have a request in flight.

        A request of a process that has died counts until its ticket is launched again, which the
        tickets that were open then are. A later ticket may have been launched without being saved,
        and is perhaps never launched again: it counts if this process has sent its request. An
        evaluation does not count while its ticket is among those that are `waiting`: its models
        wait for money, so it would end no sooner.
        """
        # Spelled out, so that the index of what is in flight serves it.
        started = f"status = '{CallStatus.STARTED}'"
        found = self._db.rows(
            f"SELECT ticket, role FROM costada_call WHERE run_id = ? AND {started}",  # noqa: S608
            (run_id,),
        )
        keys = [key for key in self._in_flight.keys if isinstance(key, CallKey)]
        launched = {*seen.open, *(key.ticket for key in keys if key.run_id == run_id)}
        sent = {
            ticket
            for ticket, role in found
            if (ticket in seen.open or ticket > seen.last)
            and not (role == COMPUTE and ticket in waiting)
        }
        return len(sent & launched - {apart_from})

    def _open_tickets(self, run_id: str, seen: LandedTickets) -> set[TicketNumber]:
        """The tickets with calls that had not landed.

        Later ones are found one by one: SQLite would look at each of their calls to tell them all.
        """
        found, last = {*seen.open}, seen.last
        later = "SELECT MIN(ticket) FROM costada_call WHERE run_id = ? AND ticket > ?"
        while (ticket := self._db.rows(later, (run_id, last))[0][0]) is not None:
            found.add(ticket)
            last = ticket
        return found

    @exactly
    def charge(
        self,
        run_id: str,
        iteration: Iteration,
        tickets: Sequence[TicketNumber],
        *,
        counts_lost: bool = True,
    ) -> Charge:
        """Charge an iteration with all calls of its tickets and return the account after it.

        The money spent is the previous iteration's plus the sum of these calls, so charging twice
        changes nothing and the work does not grow with the run.
        """
        with self._db.transaction():
            # one query, as each is a round trip to a server; the row without a role is the account
            found = self._db.rows(
                "SELECT role, cost, bound FROM costada_call WHERE run_id = ?"  # noqa: S608
                f" AND ticket IN {any_of(tickets)}"
                f" UNION ALL SELECT '', COALESCE(({SPENT}), '0'), '0'",
                (run_id, *tickets, run_id, iteration - 1),
            )
            (before,) = (amount(spent) for role, spent, _ in found if not role)
            charged = _charged([each for each in found if each[0]], counts_lost)
            by_role: dict[str, Decimal] = {}
            for role, dollars, _ in charged:
                by_role[role] = by_role.get(role, Decimal(0)) + dollars
            cost = sum(by_role.values(), Decimal(0))
            spent = before + cost
            self._db.put_row("costada_charge", (run_id, iteration, f"{cost:f}", f"{spent:f}"))
        in_doubt = sum((each[2] for each in charged), Decimal(0))
        num_guides = sum(each[0] == GUIDE for each in charged)
        return Charge(cost, spent, num_guides, in_doubt, by_role)

    @exactly
    def give_back(self, run_id: str, too_much: Mapping[Iteration, Decimal]) -> None:
        """Take dollars off the account that iterations were charged too much.

        The account is corrected from each of these iterations on, so one that is charged again
        after a crash, and a fork at an earlier one, begin from what was billed. The cost of the
        iterations stays as it is: the controller has decided by it.
        """
        given_back = Decimal(0)
        with self._db.transaction():
            for iteration, spent in self._db.rows(
                "SELECT iteration, spent FROM costada_charge WHERE run_id = ? AND iteration >= ?"
                " ORDER BY iteration",
                (run_id, min(too_much, default=START)),
            ):
                given_back += too_much.get(iteration, Decimal(0))
                self._db.write(
                    "UPDATE costada_charge SET spent = ? WHERE run_id = ? AND iteration = ?",
                    (f"{amount(spent) - given_back:f}", run_id, iteration),
                )

    @exactly
    def in_doubt(self, run_id: str) -> Mapping[TicketNumber, Decimal]:
        """The dollars of calls whose bill is unknown, at their upper bound, by ticket."""
        dollars: dict[TicketNumber, Decimal] = {}
        for ticket, bound in self._db.rows(
            "SELECT ticket, bound FROM costada_call WHERE run_id = ? AND bound != '0'", (run_id,)
        ):
            dollars[ticket] = dollars.get(ticket, Decimal(0)) + amount(bound)
        return dollars

    def put_landing(self, run_id: str, landing: int, landed: Landing) -> None:
        """Note what landed at a place of the run's order of landing."""
        ticket = -landed.ticket if landed.is_waiting_for_funds else landed.ticket
        self._db.put_row("costada_landing", (run_id, landing, ticket))

    def landing(self, run_id: str, landing: int) -> Landing | None:
        """What landed there, `None` if nothing has landed there yet."""
        found = self._db.rows(
            "SELECT ticket FROM costada_landing WHERE run_id = ? AND landing = ?",
            (run_id, landing),
        )
        return Landing(TicketNumber(abs(found[0][0])), found[0][0] < 0) if found else None

    @exactly
    def unsettled_cost(self, run_id: str, iteration: Iteration, *, counts_lost: bool) -> Decimal:
        """The dollars of all calls whose step had not landed by an iteration."""
        tickets = self.unsettled_tickets(run_id, iteration)
        costs = (self.step_cost(run_id, each, counts_lost=counts_lost) for each in tickets)
        return sum(costs, Decimal(0))

    def unsettled_tickets(self, run_id: str, iteration: Iteration) -> list[TicketNumber]:
        """The tickets with calls whose step had not landed by an iteration."""
        found = self._db.rows(
            # In Postgres `json_extract` is a function of ours that gives text, hence the cast.
            "SELECT DISTINCT ticket FROM costada_call WHERE run_id = ?1 AND ticket != ?3"
            " AND ticket NOT IN"
            " (SELECT CAST(json_extract(row, '$.ticket') AS BIGINT) FROM costada_step"
            " WHERE run_id = ?1 AND iteration <= ?2)",
            (run_id, iteration, START_TICKET),
        )
        return [ticket for (ticket,) in found]

    def first_open(self, run_id: str) -> TicketNumber:
        """The first ticket that has not landed, perhaps one that has not been launched."""
        found = self._db.rows(
            "SELECT CAST(json_extract(row, '$.ticket') AS BIGINT) FROM costada_step"
            " WHERE run_id = ?",
            (run_id,),
        )
        landed, ticket = {each for (each,) in found}, FIRST_TICKET
        while ticket in landed:
            ticket = TicketNumber(ticket + 1)
        return ticket

    def spent(self, run_id: str, iteration: Iteration) -> Decimal:
        """The dollars spent up to and including an iteration (C_t, Sec. 3.1)."""
        found = self._db.rows(SPENT, (run_id, iteration))
        return amount(found[0][0]) if found else Decimal(0)


def _charged(
    rows: Sequence[tuple[str, str, str]], counts_lost: bool
) -> list[tuple[str, Decimal, Decimal]]:
    """Role, charged dollars and the part of them in doubt, for each row of a call."""
    charged = []
    for role, cost, bound in rows:
        in_doubt = amount(bound) if counts_lost else Decimal(0)
        charged.append((role, amount(cost) + in_doubt, in_doubt))
    return charged
