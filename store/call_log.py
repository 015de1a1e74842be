"""The log of calls: what was asked, what came of it, and what each request cost."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from costada.store.call_sums import CallSums, difference, sum_of
from costada.store.database import Database, any_of
from costada.store.in_flight_calls import in_flight_calls, share_no_more
from costada.store.outage import waiting_in_any_case
from costada.store.request_marker import RequestMarker, Requests
from costada.store.rows import (
    CallRow,
    CallStatus,
    Outcome,
    OutcomeKind,
    amount,
    checking_rows,
    record,
)
from costada.values.numbering import START_TICKET, TicketNumber
from costada.values.roles import GUIDE, JUDGING, TOOL
from costada.values.usage import Usage, exactly

COLUMNS = "ticket, role, attempt, status, request_hash, cost, bound, prompt_hash, answer_hash"
KEY = "run_id = ? AND ticket = ? AND role = ? AND attempt = ?"
OWN_COLUMNS = {*COLUMNS.replace("_hash", "").split(", "), "request_hash", "usage"}
TOKENS = [each.name for each in fields(Usage)]
FACTS = [each.name for each in fields(CallRow) if each.name not in OWN_COLUMNS]
"""Fields kept as JSON, beside the tokens; the others have columns of their own, or texts."""


class CallKey(NamedTuple):
    """Which logical call this is, the same whenever a step is executed again.

    `ticket` is that of the step, `role` one of `costada.values.roles.ROLES`; `attempt` counts from
    1 within ticket and role. Where an attempt is a conversation with tools, it counts the step's
    requests for a program instead. What judges a program has the number of the request for it.
    """

    run_id: str
    ticket: TicketNumber
    role: str
    attempt: int


class SentRequest(NamedTuple):
    """A request of a logical call that a gateway may report again.

    Attributes:
        number: Its number within the call.
        gateway: The gateway it went through.
        model: The model it went to.
        place: As in `CallRow`.
        bound: What it may have cost beyond what is known, in dollars.
        is_lost: Whether a process died before it ended.
    """

    number: int
    gateway: str
    model: str
    place: int
    bound: Decimal
    is_lost: bool


class AnsweredRequest(NamedTuple):
    """A request that was answered: its logical call, and its number within that."""

    key: CallKey
    number: int


class CallFilter(NamedTuple):
    """Which calls of a run's search are meant; those that judge programs never are.

    `of_guides`: guide calls only, or the others only; `None`: both. `entry`: those of the model
    that the menu calls so; `None`: those of all models.
    """

    of_guides: bool | None = None
    entry: str | None = None


ALL_CALLS = CallFilter()
ANSWERED = CallStatus.DONE, CallStatus.UNCOUNTED
"""Statuses of a request that was answered, perhaps without token counts."""

OF_ENTRY = "COALESCE(COALESCE(json_extract(facts, '$.entry'), '') = ?, TRUE)"
"""Condition for the requests to a model of a menu, or with `None` to any model."""

OF_KIND = f"role NOT IN {(*JUDGING, TOOL)} AND COALESCE((role = '{GUIDE}') = ?, TRUE)"
"""Condition for calls of the search, or only its guides, or only the others."""

IS_MEANT = f"{OF_KIND} AND {OF_ENTRY}"
"""Condition for the requests of a `CallFilter`."""


OF_OUTCOME = f"""{OF_KIND} AND (?
OR (ticket, role, attempt) IN (
    SELECT ticket, role, attempt FROM costada_call AS asked WHERE run_id = ? AND {OF_ENTRY}
    AND n = (SELECT MAX(n) FROM costada_call WHERE run_id = asked.run_id
        AND ticket = asked.ticket AND role = asked.role AND attempt = asked.attempt)))
"""  # noqa: S608
"""Condition for the outcomes of a `CallFilter`: a call belongs to the model that it asked last, as
one that a model of the menu refused goes to another."""


def _of_outcome(run_id: str, which: CallFilter) -> tuple[object, ...]:
    return (which.of_guides, which.entry is None, run_id, which.entry)


class CallLog:
    """One row per request to a model, and the outcome of each call.

    `in_flight` knows the requests that threads of this process wait for, `sums` what the calls of
    tickets have cost.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._marker: RequestMarker | None = None
        self.sums = CallSums(database)
        self.in_flight = in_flight_calls(database.place)

    def put_call(
        self,
        run_id: str,
        call: CallRow,
        reserve: Callable[[Decimal], None] | None = None,
        *,
        repeats: int | None = None,
    ) -> int:
        """Append a request and return its number; those of one logical call count from 1.

        The row is on disk before the request is sent, so not even a power loss can lose it.

        Args:
            run_id: The run.
            call: The request.
            reserve: Called with its bound in the same transaction; may raise.
            repeats: Number of an earlier request that this one repeats through a gateway. Its row
                is replaced: the gateway does not send it again.
        """
        key = CallKey(run_id, call.ticket, call.role, call.attempt)
        with self._db.transaction(is_durable=True):
            # First: the reservation must not count the request that is repeated beside this one.
            if repeats is not None:
                self._db.write(f"DELETE FROM costada_call WHERE {KEY} AND n = ?", (*key, repeats))  # noqa: S608
                self.sums.forget(run_id, call.ticket)
            if reserve:
                reserve(call.bound)
            # In the transaction, so no other thread draws the same number for this call.
            ((number,),) = self._db.rows(
                f"SELECT 1 + COALESCE(MAX(n), 0) FROM costada_call WHERE {KEY}",  # noqa: S608
                key,
            )
            self._write(key, number, call)
            self.sums.add(
                run_id, call.ticket, call.role, sum_of(call.status, call.cost, call.bound)
            )
        if self._marker and repeats is None:  # the one that is repeated counts already
            self._marker.begin((*key, int(number)), call.cost + call.bound)
        return int(number)

    def finish_call(self, run_id: str, number: int, call: CallRow) -> None:
        """Complete a request that was put when it began, on disk as well.

        The caller does not wait for the disk: until it is written there, a power loss leaves the
        request as one in flight, and the next request of the run is on disk only after it. A server
        that is away is waited for also if the run is asked to stop: the answer was paid for.
        """
        key = CallKey(run_id, call.ticket, call.role, call.attempt)
        with waiting_in_any_case(), self._db.transaction(is_durable=True, waits=False):
            if self.sums.is_kept(run_id, call.ticket):
                ((status, cost, bound),) = self._db.rows(
                    f"SELECT status, cost, bound FROM costada_call WHERE {KEY} AND n = ?",  # noqa: S608
                    (*key, number),
                )
                begun = sum_of(status, amount(cost), amount(bound))
                ended = sum_of(call.status, call.cost, call.bound)
                self.sums.add(run_id, call.ticket, call.role, difference(ended, begun))
            self._write(key, number, call)
        if self._marker:
            self._marker.end((*key, number), call.cost + call.bound)

    def share_no_more(self) -> None:
        """Let who opens the database later find nothing of the calls of this process there."""
        share_no_more(self._db.place)

    def note_beside(self, path: Path, run_id: str) -> None:
        """Note each request in a file as well: a restored database may lack the last ones."""
        self._marker = RequestMarker(path, self.requests(run_id))

    @exactly
    def requests(self, run_id: str, *, counts_lost: bool = True) -> Requests:
        """All requests of a run, with what they have cost; with their bounds if these count."""
        found = self._db.rows("SELECT cost, bound FROM costada_call WHERE run_id = ?", (run_id,))
        dollars = (amount(cost) + amount(bound) * counts_lost for cost, bound in found)
        return Requests(run_id, len(found), sum(dollars, Decimal(0)))

    def settle_call(self, run_id: str, call: CallRow, number: int | None = None) -> None:
        """Replace a request of a logical call: by default the last one to the same model."""
        key = CallKey(run_id, call.ticket, call.role, call.attempt)
        with self._db.transaction():
            if number is None:
                ((number,),) = self._db.rows(
                    f"SELECT MAX(n) FROM costada_call WHERE {KEY} AND {OF_ENTRY}",  # noqa: S608
                    (*key, call.entry or None),
                )
            self._write(key, number, call)
            self.sums.forget(run_id, call.ticket)

    @exactly
    def mark_lost(self, key: CallKey) -> Mapping[str, Decimal]:
        """Mark the unfinished requests of a logical call as lost: no thread waits for them.

        Returns the most dollars that those not marked before can have cost, by the gateway that
        they went through; the name is empty for those without one.
        """
        open_calls = f"{KEY} AND status = ?"
        # One transaction: exactly the requests that are summed up are marked.
        with self._db.transaction():
            found = self._db.rows(
                "SELECT bound, COALESCE(json_extract(facts, '$.gateway'), '')"  # noqa: S608
                f" FROM costada_call WHERE {open_calls}",
                (*key, CallStatus.STARTED),
            )
            if found:
                self._db.write(
                    f"UPDATE costada_call SET status = ? WHERE {open_calls}",  # noqa: S608
                    (CallStatus.LOST, *key, CallStatus.STARTED),
                )
                self.sums.forget(key.run_id, key.ticket)
        bounds: dict[str, Decimal] = {}
        for bound, gateway in found:
            bounds[gateway] = bounds.get(gateway, Decimal(0)) + amount(bound)
        return bounds

    def repeatable(
        self,
        key: CallKey,
        gateways: Collection[str],
        entry: str | None = None,
        request_hash: str | None = None,
    ) -> list[SentRequest]:
        """The requests of a logical call that gateways report again when it is repeated.

        Those are all that went through one of them and were billed or may have been, in the order
        of sending; with `entry`, those to one model of a menu, as only that one is asked again.
        With `request_hash`, those that are equal to that request.
        """
        if not gateways:
            return []
        found = self._db.rows(
            # Floats only tell amounts from 0; stored as texts, they are exact in Python alone.
            f"SELECT n, json_extract(facts, '$.gateway'), json_extract(facts, '$.model'),"  # noqa: S608
            " COALESCE(json_extract(facts, '$.place'), '0'), bound, status"
            f" FROM costada_call WHERE {KEY} AND {OF_ENTRY} AND COALESCE(request_hash = ?, TRUE)"
            f" AND json_extract(facts, '$.gateway') IN ({', '.join('?' * len(gateways))})"
            " AND (status != ? OR CAST(cost AS DOUBLE PRECISION) > 0"
            " OR CAST(bound AS DOUBLE PRECISION) > 0) ORDER BY n",
            (*key, entry, request_hash, *gateways, CallStatus.ERROR),
        )
        return [
            SentRequest(n, gateway, model, int(place), amount(bound), status == CallStatus.LOST)
            for n, gateway, model, place, bound, status in found
        ]

    @exactly
    def lost_through(self, key: CallKey, gateways: Collection[str]) -> Decimal:
        """The most dollars of the lost requests of a logical call that went through gateways."""
        if not gateways:
            return Decimal(0)
        found = self._db.rows(
            f"SELECT bound FROM costada_call WHERE {KEY} AND status = ?"  # noqa: S608
            f" AND json_extract(facts, '$.gateway') IN ({', '.join('?' * len(gateways))})",
            (*key, CallStatus.LOST, *gateways),
        )
        return sum((amount(bound) for (bound,) in found), Decimal(0))

    def put_outcome(self, key: CallKey, outcome: Outcome) -> None:
        """Store the outcome of a logical call."""
        with self._db.transaction():
            text_hash = self._db.put_text(outcome.text)
            row = (*key, outcome.request_hash, text_hash, outcome.kind)
            self._db.put_row("costada_outcome", row)

    def is_known(self, key: CallKey) -> bool:
        """Whether a logical call has an outcome or ever sent a request."""
        of_call = f"SELECT 1 FROM costada_call WHERE {KEY}"  # noqa: S608
        of_outcome = f"SELECT 1 FROM costada_outcome WHERE {KEY}"  # noqa: S608
        return bool(self._db.rows(f"{of_call} UNION ALL {of_outcome} LIMIT 1", (*key, *key)))

    def has_steps(self, run_id: str) -> bool:
        """Whether a step of a run has sent a request or landed; its start is no step."""
        return bool(
            self._db.rows(
                "SELECT 1 FROM costada_call WHERE run_id = ?1 AND ticket > ?2"
                " UNION ALL SELECT 1 FROM costada_step WHERE run_id = ?1 LIMIT 1",
                (run_id, START_TICKET),
            )
        )

    def is_answered(self, key: CallKey) -> bool:
        """Whether a request of a logical call was answered."""
        answered = f"SELECT 1 FROM costada_call WHERE {KEY} AND status = ? LIMIT 1"  # noqa: S608
        return bool(self._db.rows(answered, (*key, CallStatus.DONE)))

    def outcome(self, key: CallKey) -> Outcome | None:
        """The outcome of a logical call, `None` if it has not ended."""
        found = self._db.rows(
            f"SELECT request_hash, text_hash, kind FROM costada_outcome WHERE {KEY}",  # noqa: S608
            key,
        )
        if not found:
            return None
        request_hash, text_hash, kind = found[0]
        return Outcome(request_hash, self._db.text(text_hash), OutcomeKind(kind))

    def answered(self, keys: Sequence[CallKey], request_hash: str) -> list[AnsweredRequest]:
        """The answered ones of equal requests of some work, in the order of sending.

        An answer may have come without token counts. The work has several keys, of the same role,
        where later steps have gone on with it. Its name is part of the hash, so no other attempt of
        their steps has the same.
        """
        tickets = [key.ticket for key in keys]
        found = self._db.rows(
            "SELECT ticket, attempt, n FROM costada_call WHERE run_id = ?"  # noqa: S608
            f" AND ticket IN {any_of(tickets)} AND role = ? AND request_hash = ?"
            " AND status IN (?, ?) ORDER BY ticket, n",
            (keys[0].run_id, *tickets, keys[0].role, request_hash, *ANSWERED),
        )
        return [
            AnsweredRequest(keys[0]._replace(ticket=ticket, attempt=attempt), number)
            for ticket, attempt, number in found
        ]

    def request(self, key: CallKey, number: int) -> CallRow:
        """A request of a logical call, by its number."""
        (found,) = self._db.rows(
            f"SELECT {COLUMNS}, facts FROM costada_call WHERE {KEY} AND n = ?",  # noqa: S608
            (*key, number),
        )
        return self._row(found, with_texts=True)

    def last_call(self, key: CallKey, entry: str | None = None) -> CallRow | None:
        """The last request of a logical call, `None` if none was sent.

        With `entry`, the last one to that model of the menu.
        """
        found = self._db.rows(
            f"SELECT {COLUMNS}, facts FROM costada_call WHERE {KEY} AND {OF_ENTRY}"  # noqa: S608
            " ORDER BY n DESC LIMIT 1",
            (*key, entry),
        )
        return self._row(found[0], with_texts=True) if found else None

    def has_answer(self, run_id: str, which: CallFilter = ALL_CALLS) -> bool:
        """Whether any of these calls of a run was ever answered usably."""
        return bool(
            self._db.rows(
                "SELECT 1 FROM costada_outcome"  # noqa: S608
                f" WHERE run_id = ? AND kind = ? AND {OF_OUTCOME} LIMIT 1",
                (run_id, OutcomeKind.ANSWER, *_of_outcome(run_id, which)),
            )
        )

    def has_uncounted(self, run_id: str, which: CallFilter = ALL_CALLS) -> bool:
        """Whether any answer to these calls came without token counts and is not charged yet."""
        return bool(
            self._db.rows(
                "SELECT 1 FROM costada_call"  # noqa: S608
                f" WHERE run_id = ? AND status = ? AND {IS_MEANT} LIMIT 1",
                (run_id, CallStatus.UNCOUNTED, *which),
            )
        )

    def num_requests(self, run_id: str, which: CallFilter = ALL_CALLS) -> int:
        """How many requests of these calls have ended, without those that a killed process left."""
        ((number,),) = self._db.rows(
            "SELECT COUNT(*) FROM costada_call"  # noqa: S608
            f" WHERE run_id = ? AND status NOT IN (?, ?) AND {IS_MEANT}",
            (run_id, CallStatus.STARTED, CallStatus.LOST, *which),
        )
        return int(number)

    def last_error(self, run_id: str) -> str:
        """What went wrong with the last request of a search that failed; empty if none did."""
        # From the end of the table: by an index, SQLite would read and sort all rows of the run.
        found = self._db.rows(
            "SELECT facts FROM costada_call NOT INDEXED WHERE run_id = ?"  # noqa: S608
            f" AND role NOT IN {JUDGING} AND json_extract(facts, '$.error') IS NOT NULL"
            " ORDER BY rowid DESC LIMIT 1",
            (run_id,),
        )
        return str(record(found[0][0])["error"]) if found else ""

    def last_kind(self, run_id: str, which: CallFilter = ALL_CALLS) -> OutcomeKind | None:
        """The kind of outcome of the last of these calls of a run; `None` before one."""
        found = self._db.rows(
            "SELECT kind FROM costada_outcome NOT INDEXED"  # noqa: S608
            f" WHERE run_id = ? AND {OF_OUTCOME} ORDER BY rowid DESC LIMIT 1",
            (run_id, *_of_outcome(run_id, which)),
        )
        return OutcomeKind(found[0][0]) if found else None

    def calls(self, run_id: str, *, with_texts: bool = True) -> Iterator[CallRow]:
        """Yield every call of a run in the order of tickets.

        Without texts, prompts and answers are empty and need not be read.
        """
        for stored in self._db.rows(
            f"SELECT {COLUMNS}, facts FROM costada_call"  # noqa: S608
            " WHERE run_id = ? ORDER BY ticket, rowid",
            (run_id,),
        ):
            yield self._row(stored, with_texts=with_texts)

    def numbered(self, run_id: str) -> Iterator[tuple[CallKey, int, CallRow]]:
        """Yield every request of a run, without texts, with its logical call and its number."""
        for number, *stored in self._db.rows(
            f"SELECT n, {COLUMNS}, facts FROM costada_call"  # noqa: S608
            " WHERE run_id = ? ORDER BY ticket, rowid",
            (run_id,),
        ):
            call = self._row(tuple(stored), with_texts=False)
            yield CallKey(run_id, call.ticket, call.role, call.attempt), int(number), call

    def _write(self, key: CallKey, number: int, call: CallRow) -> None:
        facts = {name: getattr(call, name) for name in FACTS} | asdict(call.usage)
        for name in ("entry", "gateway", "place"):
            if not facts[name]:
                del facts[name]
        texts = self._db.put_text(call.prompt), self._db.put_text(call.answer)
        money = f"{call.cost:f}", f"{call.bound:f}"
        self._db.put_row(
            "costada_call",
            (*key, number, call.status, call.request_hash, *money, *texts, json.dumps(facts)),
        )

    def _row(self, stored: tuple[Any, ...], *, with_texts: bool) -> CallRow:
        ticket, role, attempt, status, request_hash, cost, bound, prompt, answer, facts = stored
        text = self._db.text if with_texts else lambda _: ""
        known = record(facts)
        with checking_rows(self._db.place):
            return CallRow(
                ticket=ticket,
                role=role,
                attempt=attempt,
                status=CallStatus(status),
                request_hash=request_hash,
                cost=amount(cost),
                bound=amount(bound),
                prompt=text(prompt),
                answer=text(answer),
                usage=Usage(**{name: known.pop(name) for name in TOKENS}),
                **known,
            )
