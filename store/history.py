"""The past of a run, read without writing, also while it is active."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from costada.store.address import StorePlace, damage_error
from costada.store.candidates import FRONT, SEED_ID
from costada.store.database import Database, any_of
from costada.store.rows import (
    MAX_READING,
    CallStatus,
    OutcomeKind,
    amount,
    checking_rows,
    parse_json,
    record,
)
from costada.store.run_store import RunFacts, run_ids
from costada.values.candidate import Program
from costada.values.numbering import START_TICKET, Iteration, TicketNumber
from costada.values.usage import COUNTS, NO_TOKENS, Price, Usage, cache_savings, exactly

CALL_COLUMNS = "ticket, role, attempt, n, status, cost, bound, prompt_hash, answer_hash"
ENTRY = "COALESCE(json_extract(facts, '$.entry'), '')"
CANDIDATE_COLUMNS = "id, ticket, code_hash, facts, iteration"
LAST_ITERATION, LAST_TICKET = Iteration(2**62), TicketNumber(2**62)
"""Numbers that no run reaches."""


class Iterations(NamedTuple):
    """Iterations of one run: those above `after`, up to and with `until`."""

    run_id: str
    after: Iteration = Iteration(-1)
    until: Iteration = LAST_ITERATION


class Tickets(NamedTuple):
    """Tickets of one run: those above `after`, and those in `also`, which are at most `after`."""

    run_id: str
    after: TicketNumber = TicketNumber(-1)
    also: Sequence[TicketNumber] = ()


@dataclass(frozen=True, slots=True)
class PastCall:
    """A model request: as in `CallRow`, with the names of its texts in place of the texts.

    `number` counts the requests of one logical call from 1; `facts` are tokens, model, seconds and
    whatever else its row holds.
    """

    ticket: TicketNumber
    role: str
    attempt: int
    number: int
    status: CallStatus
    cost: Decimal
    bound: Decimal
    prompt: str
    answer: str
    facts: Mapping[str, Any]

    @property
    def saved(self) -> Decimal:
        """Dollars that the provider's prompt cache saved, by the rates of the call.

        Raises:
            ValueError: If the row holds no number of dollars or tokens where it should.
        """
        usage = Usage(**{name: self.facts.get(name) or 0 for name in COUNTS})
        price = _price(self.facts.get("price_in"), self.facts.get("price_out"))
        return cache_savings(usage, price, self.cost)


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Tokens of all prompts, those that came from a provider's cache, and the dollars it saved."""

    input_tokens: int
    cached_tokens: int
    saved: float


@dataclass(frozen=True, slots=True)
class UsedCalls:
    """What the requests of one role, to one model of a menu, have used.

    Attributes:
        role: One of `costada.values.roles.ROLES`.
        entry: What the menu calls the model; empty without one.
        calls: Their number.
        in_doubt: How many of them have an unknown bill: timed out, cancelled, or in flight when
            their process died.
        usage: Billed tokens.
        dollars: What they cost, exact, without those in doubt.
        saved: What they would have cost more without the providers' prompt caches.
        in_doubt_dollars: Upper bound of those in doubt.
    """

    role: str
    entry: str
    calls: int = 0
    in_doubt: int = 0
    usage: Usage = NO_TOKENS
    dollars: Decimal = Decimal(0)
    saved: Decimal = Decimal(0)
    in_doubt_dollars: Decimal = Decimal(0)

    @exactly
    def __add__(self, other: "UsedCalls") -> "UsedCalls":
        """Both together, under the role and model of the first."""
        return UsedCalls(
            self.role,
            self.entry,
            self.calls + other.calls,
            self.in_doubt + other.in_doubt,
            self.usage + other.usage,
            self.dollars + other.dollars,
            self.saved + other.saved,
            self.in_doubt_dollars + other.in_doubt_dollars,
        )


class RoleUse(NamedTuple):
    """Requests of a role for one ticket that came equally far, and when they began and ended.

    Dollars are in floating point, times seconds since 1970 UTC, `None` if no request says.
    """

    ticket: TicketNumber
    role: str
    status: str
    requests: int
    dollars: float
    began: float | None
    ended: float | None


@dataclass(frozen=True, slots=True)
class PastCandidate:
    """A candidate: `facts` as in `Candidate`, with the name of its program in its place.

    `migrated_in` is the iteration of a copy, `None` for an original.
    """

    id: str
    ticket: TicketNumber
    program: str
    facts: Mapping[str, Any]
    migrated_in: Iteration | None = None


@dataclass(frozen=True, slots=True)
class PastFailure:
    """A logical call without an answer: `kind` says whether it was refused, `text` why."""

    ticket: TicketNumber
    role: str
    attempt: int
    kind: OutcomeKind
    text: str


class RunHistory(RunFacts):
    """The runs in a file as they were when it was opened, read-only.

    Opening and every use raise as `Database` does.
    """

    def __init__(self, place: StorePlace, *, is_idle: bool = False) -> None:
        self._only_run = None if isinstance(place, Path) else place.run
        address = place if isinstance(place, Path) else place.database
        self._db = Database(address, is_read_only=True, is_idle=is_idle)
        self._size = 0

    @classmethod
    @contextmanager
    def of(cls, place: StorePlace, *, is_idle: bool = False) -> Iterator["RunHistory"]:
        """Open the history of a run as it is now; later writes are not seen.

        With `is_idle`, no process writes to it, as in `connect_to_read`.
        """
        history = cls(place, is_idle=is_idle)
        try:
            history._db.engine.begin_snapshot()
            yield history
        finally:
            history._db.close()

    @property
    def path(self) -> Path | None:
        """The file, `None` for a run in Postgres."""
        return self._db.place if isinstance(self._db.place, Path) else None

    def last_run(self) -> str:
        """The id of the run that began last, empty if none has begun."""
        return next(reversed(run_ids(self._db, self._only_run)), "")

    def last_iteration(self, run_id: str) -> Iteration:
        """The last finished iteration of a run, 0 before the first one."""
        last = "SELECT COALESCE(MAX(iteration), 0) FROM costada_step WHERE run_id = ?"
        ((iteration,),) = self._db.rows(last, (run_id,))
        return Iteration(iteration)

    def steps(self, span: Iterations) -> list[dict[str, Any]]:
        """The trace rows in order."""
        return [_read(row) for (row,) in self._in_order("row", "step", span)]

    def seconds(self, span: Iterations) -> list[tuple[Iteration, float]]:
        """Each iteration that was timed, with the seconds that its nodes took together.

        Raises:
            ValueError: If a row is malformed.
        """
        with checking_rows(self._db.place):
            return [
                (iteration, sum(map(float, _read(text).values())))
                for iteration, text in self._in_order("iteration, seconds", "timing", span)
            ]

    def calls(self, span: Tickets) -> list[PastCall]:
        """The requests by ticket, each ticket's in the order in which they ended."""
        return self._calls(self._in_order(f"{CALL_COLUMNS}, facts", "call", span))

    def open_calls(self, run_id: str) -> list[PastCall]:
        """The requests that have not ended, in the order in which they were sent.

        `facts["ended_at"]` is when one was sent. They are in flight while a process holds the run,
        and lost otherwise.
        """
        found = self._db.rows(
            f"SELECT {CALL_COLUMNS}, facts FROM costada_call"  # noqa: S608
            " WHERE run_id = ? AND status = 'started' ORDER BY rowid",
            (run_id,),
        )
        return self._calls(found)

    def cache_use(self, run_id: str) -> CacheUse:
        """What providers' prompt caches have done for the requests of a run so far."""
        used, saved = NO_TOKENS, Decimal(0)
        for each in self._usage(run_id).values():
            used += each.usage
            saved += each.saved
        return CacheUse(used.input_tokens, used.cached_tokens, float(saved))

    @exactly
    def used(self, run_id: str) -> list[UsedCalls]:
        """What the requests of each role to each model of a menu have used, summed exactly."""
        found = self._usage(run_id)
        dollars: dict[tuple[str, str], list[tuple[Decimal, Decimal]]] = {}
        for role, entry, cost, bound in self._db.rows(
            f"SELECT role, {ENTRY}, cost, bound FROM costada_call WHERE run_id = ?",  # noqa: S608
            (run_id,),
        ):
            dollars.setdefault((role, entry), []).append((amount(cost), amount(bound)))
        return [
            replace(
                found.get(key, UsedCalls(*key)),
                calls=len(each),
                in_doubt=sum(bound > 0 for _, bound in each),
                dollars=sum((cost for cost, _ in each), Decimal(0)),
                in_doubt_dollars=sum((bound for _, bound in each), Decimal(0)),
            )
            for key, each in dollars.items()
        ]

    def use_by_role(self, run_id: str, first: TicketNumber, last: TicketNumber) -> list[RoleUse]:
        """What each role used for the tickets of a range, both ends included; `used` is exact."""
        ended = "NULLIF(CAST(json_extract(facts, '$.ended_at') AS DOUBLE PRECISION), 0)"
        seconds = "CAST(json_extract(facts, '$.seconds') AS DOUBLE PRECISION)"
        found = self._db.rows(
            "SELECT ticket, role, status, COUNT(*), SUM(CAST(cost AS DOUBLE PRECISION)),"  # noqa: S608
            f" MIN({ended} - COALESCE({seconds}, 0)), MAX({ended}) FROM costada_call"
            " WHERE run_id = ? AND ticket BETWEEN ? AND ? AND json_valid(facts)"
            " GROUP BY ticket, role, status",
            (run_id, first, last),
        )
        return [RoleUse(*row) for row in found]

    def evaluation_seconds(
        self, run_id: str, first: TicketNumber, last: TicketNumber
    ) -> list[tuple[TicketNumber, float]]:
        """What evaluators reported as `eval_time`, by ticket of a range, both ends included.

        Not of programs whose evaluation was known; those of the start share one.
        """
        # CASE: the order of conditions is the engine's, and a row of a stranger need not be JSON.
        return self._db.rows(
            "SELECT ticket, SUM(CASE WHEN json_valid(facts) THEN CASE WHEN NOT"
            " CAST(COALESCE(json_extract(facts, '$.is_cached'), '0') AS BOOLEAN) THEN"
            " CAST(json_extract(facts, '$.metrics.eval_time') AS DOUBLE PRECISION) END END)"
            " FROM costada_candidate WHERE run_id = ? AND ticket BETWEEN ? AND ?"
            " AND iteration IS NULL AND (ticket > ? OR id = ?) GROUP BY ticket",
            (run_id, first, last, START_TICKET, SEED_ID),
        )

    @exactly
    def charged(self, run_id: str, *, counts_lost: bool) -> Decimal:
        """The dollars of all requests of a run so far, also of steps that have not ended.

        With `counts_lost`, those whose bill is unknown count at their upper bound.
        """
        sums = self.used(run_id)
        dollars = (each.dollars + counts_lost * each.in_doubt_dollars for each in sums)
        return sum(dollars, Decimal(0))

    def _usage(self, run_id: str) -> dict[tuple[str, str], UsedCalls]:
        """Tokens, and dollars that caches saved, by role and model of a menu."""
        # Requests at equal rates are summed first, as savings are linear in tokens and dollars.
        tokens = "CAST(json_extract(facts, '$.{}') AS BIGINT)"
        sums = ", ".join(f"CAST(SUM({tokens.format(name)}) AS BIGINT)" for name in COUNTS)
        found = self._db.rows(
            f"SELECT role, {ENTRY} AS entry, json_extract(facts, '$.price_in') AS price_in, {sums},"  # noqa: S608
            " json_extract(facts, '$.price_out') AS price_out, SUM(CAST(cost AS DOUBLE PRECISION)),"
            f" {tokens.format('cached_tokens')} > 0"
            f" OR {tokens.format('cache_write_tokens')} > 0 AS has_cache"
            " FROM costada_call WHERE run_id = ? AND json_valid(facts)"
            " GROUP BY role, entry, price_in, price_out, has_cache",
            (run_id,),
        )
        used: dict[tuple[str, str], UsedCalls] = {}
        for role, entry, price_in, *counts, price_out, cost, _ in found:
            usage = Usage(*(count or 0 for count in counts))
            saved = cache_savings(usage, _price(price_in, price_out), amount(str(cost)))
            before = used.get((role, entry), UsedCalls(role, entry))
            used[role, entry] = replace(
                before, usage=before.usage + usage, saved=before.saved + saved
            )
        return used

    def _calls(self, found: Iterable[tuple[Any, ...]]) -> list[PastCall]:
        with checking_rows(self._db.place):
            return [
                PastCall(
                    *(ticket, role, attempt, number, CallStatus(status)),
                    *(amount(cost), amount(bound), prompt, answer, _read(facts)),
                )
                for (
                    ticket,
                    role,
                    attempt,
                    number,
                    status,
                    cost,
                    bound,
                    prompt,
                    answer,
                    facts,
                ) in found
            ]

    def candidates(self, span: Tickets) -> list[PastCandidate]:
        """The candidates of tickets, in the order in which they were judged; no copies."""
        found = self._in_order(CANDIDATE_COLUMNS, "candidate", span)
        return [each for each in map(_candidate, found) if each.migrated_in is None]

    def copies(self, span: Iterations) -> list[PastCandidate]:
        """The candidates that migrated in some iterations, in order."""
        return [*map(_candidate, self._in_order(CANDIDATE_COLUMNS, "candidate", span))]

    def program_of(self, run_id: str, candidate_id: str) -> Program | None:
        """A candidate's program, `None` if the run has no such candidate."""
        found = self._db.rows(
            "SELECT code_hash FROM costada_candidate WHERE run_id = ? AND id = ?",
            (run_id, candidate_id),
        )
        return self.program(found[0][0]) if found else None

    def candidate(self, run_id: str, candidate_id: str) -> PastCandidate | None:
        """A candidate, `None` if the run has no such candidate."""
        found = self._db.rows(
            f"SELECT {CANDIDATE_COLUMNS} FROM costada_candidate WHERE run_id = ? AND id = ?",  # noqa: S608
            (run_id, candidate_id),
        )
        return _candidate(found[0]) if found else None

    def score_of(self, run_id: str, candidate_id: str) -> float | None:
        """A candidate's score, `None` if the run has no such candidate."""
        found = self._db.rows(
            "SELECT score FROM costada_candidate WHERE run_id = ? AND id = ?",
            (run_id, candidate_id),
        )
        return found[0][0] if found else None

    def front(self, run_id: str) -> list[str]:
        """Ids of the candidates on the Pareto front as it is now, oldest first; empty without one.

        Raises:
            ValueError: If the row is malformed.
        """
        found = self._db.rows(
            "SELECT members FROM costada_archive WHERE run_id = ? AND frontier = ?"
            " ORDER BY seq DESC LIMIT 1",
            (run_id, FRONT),
        )
        with checking_rows(self._db.place):
            return [str(each) for each in parse_json(found[0][0])] if found else []

    def archived(self, run_id: str) -> list[str]:
        """Ids of the members that the frontiers' archives have now, frontier by frontier.

        Raises:
            ValueError: If a row is malformed.
        """
        found = self._db.rows(
            "SELECT members FROM costada_archive AS last WHERE run_id = ? AND frontier != ?"
            " AND seq = (SELECT max(seq) FROM costada_archive WHERE run_id = last.run_id"
            " AND frontier = last.frontier) ORDER BY frontier",
            (run_id, FRONT),
        )
        with checking_rows(self._db.place):
            return [str(each) for (members,) in found for each in parse_json(members)]

    def failures(self, span: Tickets) -> list[PastFailure]:
        """The logical calls without an answer."""
        return [
            PastFailure(ticket, role, attempt, OutcomeKind(kind), self.text(name))
            for ticket, role, attempt, kind, name in self._in_order(
                "ticket, role, attempt, kind, text_hash", "outcome", span
            )
            if kind != OutcomeKind.ANSWER
        ]

    def tactics(self, span: Iterations) -> list[tuple[Iteration, dict[str, Any]]]:
        """What each guide gave, with the iteration that paid for it."""
        found = self._in_order("iteration, record", "tactics", span)
        return [(iteration, _read(record)) for iteration, record in found]

    def tickets(self, run_id: str) -> list[TicketNumber]:
        """The tickets that anything was sent or judged for, in order."""
        found = self._db.rows(
            "SELECT ticket FROM costada_call WHERE run_id = ?1 UNION"
            " SELECT ticket FROM costada_candidate WHERE run_id = ?1 ORDER BY ticket",
            (run_id,),
        )
        return [
            TicketNumber(each)
            for (each,) in found
            if isinstance(each, int) and 0 <= each < LAST_TICKET
        ]

    def begin_part(self) -> None:
        """Begin another part of the run; earlier texts no longer count against the limit."""
        self._size = 0

    def text(self, name: str) -> str:
        """The text of a name; the empty name is that of the empty text.

        Raises:
            ValueError: All texts that were asked for are larger together than those of any run.
        """
        text = self._db.text(name)
        self.count(text)
        return text

    def program(self, name: str) -> Program:
        """The program of a name; raises as `text` does.

        Texts of several files do not count: `count` those that are kept.
        """
        program = self._db.program(name)
        if program.is_one_text:
            self.count(program.text)
        return program

    def count(self, text: str) -> None:
        """Count a text that is kept in memory; raises as `text` does."""
        self._size += len(text)
        if self._size > MAX_READING:
            raise ValueError(
                f"{self._db.place}: texts of more than {MAX_READING:,} characters in one part"
                " of it, expected fewer"
            )

    def _in_order(
        self, columns: str, table: str, span: Iterations | Tickets
    ) -> list[tuple[Any, ...]]:
        # One query with OR would read every row of the run.
        number = "ticket" if isinstance(span, Tickets) else "iteration"
        chosen = f"SELECT {columns} FROM costada_{table} WHERE run_id = ? AND {number}"  # noqa: S608
        found, until = list[tuple[Any, ...]](), int(LAST_TICKET)
        if isinstance(span, Tickets):
            found += self._db.rows(
                f"{chosen} IN {any_of(span.also)} ORDER BY {number}, rowid",
                (span.run_id, *span.also),
            )
        else:
            until = span.until
        found += self._db.rows(
            f"{chosen} > ? AND {number} <= ? ORDER BY {number}, rowid",
            (span.run_id, span.after, until),
        )
        # A column of any type can hold bytes in SQLite; what is shown has to be text.
        if any(isinstance(value, bytes) for row in found for value in row):
            raise damage_error(self._db.place, f"a row of {table}s holds bytes, expected strings")
        return found


def _candidate(row: tuple[Any, ...]) -> PastCandidate:
    name, ticket, program, facts, migrated_in = row
    return PastCandidate(name, ticket, program, _read(facts), migrated_in)


def _read(text: str) -> dict[str, Any]:
    """The object that a row holds; what is not a number in JSON counts as absent."""
    return record(text, has_constants=False)


def _price(price_in: object, price_out: object) -> Price:
    """The rates of a request's row, 0 where it has none; raises as `amount` does."""
    return Price(amount(str(price_in or 0)), amount(str(price_out or 0)))
