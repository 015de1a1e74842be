"""The ledger beside an independent one, through random lives of a run.

Hypothesis launches tickets, sends requests, answers or loses them, lands tickets, kills the
process, settles what was lost, changes K, extends the budget and forks the run. The other ledger is
a list of bills.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import pytest
from fakes import hashed_answer, toy_problem
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langchain_core.messages import AIMessage
from store_backends import SHARED
from toy_graph import PRICE, scripted

from costada.models.asking import ModelFailure, RequestNotSent
from costada.models.menu import ModelEntry
from costada.models.metering import MeteredCall
from costada.models.prices import price_book
from costada.models.runnable_tree import OutgoingRequest
from costada.nodes.calls.bounds import MINIMAL_ANSWER
from costada.nodes.calls.budget import (
    WaitingForFunds,
    affordable_answer,
    leave_queue,
    reserve_share,
    share_of_money,
)
from costada.nodes.calls.journal import CallJournal
from costada.nodes.context import PricedModel, RunContext
from costada.nodes.settings import Settings
from costada.nodes.state import Account, ArchiveVersion, Flight, SearchState, Step, Ticket
from costada.prompts.render import Prompt
from costada.runs.reconcile import settle_requests
from costada.runs.reconciliation import Billed, SentCall
from costada.store.call_log import CallKey
from costada.store.ledger import Landing
from costada.store.rows import CallStatus, LandedTickets
from costada.store.run_copy import Cut, copy_file, cut_back
from costada.store.run_store import RunStore
from costada.values.usage import Usage

MODEL = scripted(hashed_answer)
ASKED = PricedModel(
    ModelEntry(name="model", model="stand-in"), MODEL, price_book([(MODEL, PRICE)], {})
)
SENT = OutgoingRequest("scripted", "scripted", None, 1, 0, number=1)
NAMES, IDS = count(1), count(1)


def dollars(tokens_in: int, tokens_out: int) -> Decimal:
    """At 1 dollar per million tokens in, and 2 per million out."""
    return Decimal(tokens_in + 2 * tokens_out) / 1_000_000


@dataclass
class Bill:
    """One request, as the other ledger has it."""

    ticket: int
    role: str
    attempt: int
    bound: Decimal
    status: CallStatus = CallStatus.STARTED
    cost: Decimal = Decimal(0)


@dataclass
class Books:
    """The other ledger, and what a checkpoint would say."""

    bills: list[Bill] = field(default_factory=list)
    is_guide: dict[int, bool] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """Attempts that each open ticket has concluded."""

    outcomes: dict[tuple[int, str, int], str] = field(default_factory=dict)
    landed: list[int] = field(default_factory=list)
    """The tickets in the order of landing."""

    last: int = 0
    iteration: int = 0
    charged: Decimal = Decimal(0)
    half_landed: int = 0
    """A ticket that was charged before a kill; the checkpoint does not know that it landed."""

    def cost_of(self, ticket: int, counts_lost: bool) -> Decimal:
        own = [bill for bill in self.bills if bill.ticket == ticket]
        return sum((each.cost + counts_lost * each.bound for each in own), Decimal(0))

    def key(self, ticket: int) -> tuple[int, str, int]:
        """The logical call that a ticket makes next."""
        attempt = self.attempts[ticket] + 1
        if self.is_guide[ticket]:
            return ticket, "guide", attempt
        return ticket, "generation" if attempt == 1 else "retry", attempt


class LedgerMachine(RuleBasedStateMachine):
    """What happens to a run, in a file or in a database."""

    def __init__(self, new_place: Callable[[], Path | str]) -> None:
        super().__init__()
        self.place, self.run_id = new_place(), f"run-{next(IDS)}"
        self.new_place = new_place
        self.books, self.sent = Books(), dict[int, tuple[CallJournal, Bill, int]]()
        self.waiting = dict[int, CallKey]()
        self.forked_from: tuple[Path | str, str, list[Bill]] | None = None
        self.store = self.opened()

    def opened(self) -> RunStore:
        return (
            RunStore(self.place) if isinstance(self.place, Path) else RunStore.postgres(self.place)
        )

    @initialize(
        rules=st.sampled_from([("hard", "count"), ("crossing", "count"), ("crossing", "ignore")]),
        parallel=st.integers(1, 4),
        budget=st.sampled_from([0.01, 0.03, 0.1]),
    )
    def begin(self, rules: tuple[Any, Any], parallel: int, budget: float) -> None:
        self.policy, lost_calls = rules
        self.counts_lost = lost_calls == "count"
        self.parallel, self.budget = parallel, budget
        self.settings = Settings(price=PRICE, budget_policy=self.policy, lost_calls=lost_calls)
        self.store.open_run(self.run_id, "test", "toy")

    def teardown(self) -> None:
        self.forget_requests()
        self.store.close()

    def forget_requests(self) -> None:
        """No thread waits for them any more; this process outlives the one that is killed."""
        for ticket in self.sent:
            self.store.call_log.in_flight.end(self.key(ticket))
        self.sent.clear()

    @property
    def context(self) -> RunContext:
        return RunContext(
            name="test",
            problem=toy_problem(),
            menu=(ASKED,),
            budget=self.budget,
            settings=self.settings,
            store=self.store,
            parallel=self.parallel,
        )

    def state(self, ticket: int) -> SearchState:
        """What a node of a ticket is given; the others are in flight."""
        others = [each for each in self.books.attempts if each != ticket]
        flight = Flight(
            tickets=tuple(ticket_of(each) for each in others),
            last_ticket=self.books.last,
            open_tickets=tuple(self.books.attempts),
        )
        return {"flight": flight, "account": Account(), "iterations": self.books.iteration}

    def key(self, ticket: int) -> CallKey:
        return CallKey(self.run_id, *self.books.key(ticket))

    def journal(self, ticket: int) -> CallJournal:
        """The journal of the call that a ticket makes next."""
        key, state, context = self.key(ticket), self.state(ticket), self.context

        def reserve(bound: Decimal) -> None:
            reserve_share(bound, ASKED, key, state, context)

        prompt = Prompt("Be brief.", f"{key.role} {key.attempt} of {key.ticket}")
        is_hard = self.policy == "hard"
        return CallJournal(key, prompt, ASKED, context, None, reserve if is_hard else None)

    @property
    def idle(self) -> list[int]:
        """Open tickets that have no request in flight and were not charged."""
        return [
            each
            for each in self.books.attempts
            if each not in self.sent and each != self.books.half_landed
        ]

    @property
    def dollars_out(self) -> Decimal:
        """Charged, billed or possibly billed, or reserved; also by a launch that was lost."""
        books = self.books
        unsaved = {bill.ticket for bill in books.bills if bill.ticket > books.last}
        open_cost = (books.cost_of(each, self.counts_lost) for each in {*books.attempts, *unsaved})
        return books.charged + sum(open_cost, Decimal(0))

    @precondition(lambda self: len(self.books.attempts) < self.parallel)
    @rule(is_guide=st.booleans())
    def launch(self, is_guide: bool) -> None:
        """Launch a ticket; one whose launch was lost does again what it did."""
        books = self.books
        books.last += 1
        books.is_guide.setdefault(books.last, is_guide)
        books.attempts[books.last] = 0
        while (key := books.key(books.last)) in books.outcomes:
            known = self.journal(books.last).replay()
            assert books.outcomes[key] == (
                known.reason if isinstance(known, ModelFailure) else known and known.content
            )
            books.attempts[books.last] += 1

    @precondition(lambda self: self.idle)
    @rule(data=st.data(), tokens=st.integers(100, 3000), cap=st.integers(1, 12_000))
    def send(self, data: st.DataObject, tokens: int, cap: int) -> None:
        """Send a request as a call does: look, limit, reserve, journal."""
        ticket = data.draw(st.sampled_from(self.idle))
        key, state, context = self.key(ticket), self.state(ticket), self.context
        is_hard, journal = self.policy == "hard", self.journal(ticket)
        assert journal.replay() is None
        self.lose(*self.books.key(ticket))
        request = OutgoingRequest("scripted", "scripted", cap, 1, tokens, number=1)
        left = Decimal(str(self.budget)) - self.dollars_out
        try:
            if is_hard:
                share = share_of_money(request, ASKED, key, state, context)
                assert share <= left
                request = request._replace(
                    output_cap=affordable_answer(request, share, ASKED.prices)
                )
            journal.begin(request)
        except RequestNotSent as refusal:
            assert is_hard
            if isinstance(refusal, WaitingForFunds):
                started = {
                    each.ticket
                    for each in self.books.bills
                    if each.status is CallStatus.STARTED and each.ticket != ticket
                }
                assert started or min(self.waiting) < ticket
                self.waiting[ticket] = key
            else:
                assert dollars(tokens, min(MINIMAL_ANSWER, cap)) > left
                leave_queue(key, context)
                self.waiting.pop(ticket, None)
            return
        self.waiting.pop(ticket, None)
        bound = dollars(tokens, request.output_cap or 0)
        assert not is_hard or bound <= left
        bill = Bill(*self.books.key(ticket), bound)
        self.books.bills.append(bill)
        self.sent[ticket] = journal, bill, request.output_cap or 0

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), is_answer=st.booleans())
    def answer(self, data: st.DataObject, is_answer: bool) -> None:
        """Bill a request; its answer may be of no use, which ends the attempt as well."""
        journal, bill, cap = self.sent.pop(data.draw(st.sampled_from(sorted(self.sent))))
        tokens = data.draw(st.integers(0, cap))
        taken = int(bill.bound * 1_000_000) - 2 * cap
        usage = Usage(input_tokens=taken, output_tokens=tokens)
        journal.finish(MeteredCall(SENT, usage=usage))
        text = f"answer to {bill.ticket}.{bill.attempt}"
        journal.record_outcome(AIMessage(text) if is_answer else ModelFailure(text))
        bill.status, bill.cost, bill.bound = CallStatus.DONE, dollars(taken, tokens), Decimal(0)
        self.books.outcomes[bill.ticket, bill.role, bill.attempt] = text
        self.books.attempts[bill.ticket] += 1

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), may_be_billed=st.booleans())
    def fail(self, data: st.DataObject, may_be_billed: bool) -> None:
        """Let a request time out, or be refused for nothing; it may be sent again."""
        journal, bill, _ = self.sent.pop(data.draw(st.sampled_from(sorted(self.sent))))
        journal.finish(MeteredCall(SENT, error="late", may_be_billed=may_be_billed))
        bill.status = CallStatus.ERROR
        bill.bound *= may_be_billed

    @precondition(lambda self: self.landable)
    @rule(data=st.data(), dies=st.booleans(), twice=st.booleans())
    def land(self, data: st.DataObject, dies: bool, twice: bool) -> None:
        """Charge a ticket; the process may die before the checkpoint says so."""
        books, ledger = self.books, self.store.ledger
        landed = ledger.landing(self.run_id, books.iteration + 1)
        assert (landed.ticket if landed else 0) == books.half_landed
        ticket = books.half_landed or data.draw(st.sampled_from(self.landable))
        ledger.put_landing(
            self.run_id, books.iteration + 1, Landing(ticket, is_waiting_for_funds=False)
        )
        cost = books.cost_of(ticket, self.counts_lost)
        for _ in range(1 + twice):
            charge = ledger.charge(
                self.run_id, books.iteration + 1, [ticket], counts_lost=self.counts_lost
            )
            assert (charge.cost, charge.spent) == (cost, books.charged + cost)
        if dies:
            books.half_landed = ticket
            self.kill(is_launch_lost=False)
            return
        self.store.put_step(self.run_id, books.iteration + 1, {"ticket": ticket})
        books.half_landed = 0
        books.iteration += 1
        books.landed.append(ticket)
        books.charged += cost
        del books.attempts[ticket]

    @property
    def landable(self) -> list[int]:
        """Open tickets with a concluded call and no other begun; a half landed one alone."""
        if self.books.half_landed:
            return [self.books.half_landed]
        begun = {bill.ticket for bill in self.books.bills if bill.status is CallStatus.STARTED}
        return [each for each in self.idle if self.books.attempts[each] and each not in begun]

    @rule(is_launch_lost=st.booleans())
    def kill(self, is_launch_lost: bool) -> None:
        """Drop all that the process knows; the checkpoint may not have the last launch."""
        self.forget_requests()
        # A queue in a database may live as long as this process, which is not really killed.
        for key in self.waiting.values():
            leave_queue(key, self.context)
        self.waiting.clear()
        self.store.close()
        self.store = self.opened()
        assert self.store.call_log.in_flight.keys == []
        last = self.books.last
        if is_launch_lost and last in self.books.attempts and last != self.books.half_landed:
            del self.books.attempts[last]
            self.books.last -= 1

    @precondition(lambda self: self.doubtful)
    @rule(data=st.data(), share=st.sampled_from(["0", "0.25", "1"]))
    def settle(self, data: st.DataObject, share: str) -> None:
        """Settle a request of a dead process by what it was billed."""
        self.kill(is_launch_lost=False)
        books, bill = self.books, self.books.bills[data.draw(st.sampled_from(self.doubtful))]
        (call,) = [
            SentCall(key, number, row)
            for key, number, row in self.store.call_log.numbered(self.run_id)
            if (key.ticket, key.role, key.attempt) == (bill.ticket, bill.role, bill.attempt)
            and row.bound == bill.bound
        ][:1]
        billed = bill.bound * Decimal(share)
        flight = self.state(0)["flight"]
        settled = [(call, Billed(billed))]
        settle_requests(self.store, self.run_id, flight, settled, counts_lost=self.counts_lost)
        if bill.ticket <= books.last and bill.ticket not in books.attempts:
            books.charged += billed - bill.bound * self.counts_lost
        bill.cost, bill.bound, bill.status = billed, Decimal(0), call.row.status
        if bill.status is CallStatus.STARTED:
            bill.status = CallStatus.LOST

    @property
    def doubtful(self) -> list[int]:
        """Places of bills in doubt, without those of a ticket that is to be charged again."""
        return [
            place
            for place, bill in enumerate(self.books.bills)
            if bill.bound and bill.ticket != self.books.half_landed
        ]

    @rule(parallel=st.integers(1, 8))
    def change_parallel(self, parallel: int) -> None:
        self.kill(is_launch_lost=False)
        self.parallel = parallel

    @rule(more=st.sampled_from([0.005, 0.05]))
    def extend(self, more: float) -> None:
        self.budget = float(Decimal(str(self.budget)) + Decimal(str(more)))

    @precondition(lambda self: isinstance(self.place, Path) and not self.books.half_landed)
    @rule()
    def fork(self) -> None:
        """Continue in a copy, which has no request without an end; the original keeps them."""
        assert isinstance(self.place, Path)
        self.kill(is_launch_lost=False)
        before = [replace(bill) for bill in self.books.bills]
        self.forked_from = self.place, self.run_id, before
        place, run_id = self.new_place(), f"run-{next(IDS)}"
        assert isinstance(place, Path)
        copy_file(self.place, place)
        cut = Cut(
            run_id=self.run_id,
            iteration=self.books.iteration,
            archive_seq=0,
            landings=self.books.iteration,
            last_ticket=self.books.last,
            in_flight={
                ticket: 0 if self.books.is_guide[ticket] else attempts + 1
                for ticket, attempts in self.books.attempts.items()
            },
        )
        cut_back(place, cut, run_id)
        self.store.close()
        self.place, self.run_id, self.store = place, run_id, RunStore(place)
        last = self.books.last
        self.books.bills = [
            bill
            for bill in self.books.bills
            if bill.status is not CallStatus.STARTED and bill.ticket <= last
        ]
        kept = self.books.outcomes.items()
        self.books.outcomes = {key: text for key, text in kept if key[0] <= last}

    def lose(self, ticket: int, role: str, attempt: int) -> None:
        for bill in self.books.bills:
            is_of_call = (bill.ticket, bill.role, bill.attempt) == (ticket, role, attempt)
            if is_of_call and bill.status is CallStatus.STARTED:
                bill.status = CallStatus.LOST

    @invariant()
    def both_ledgers_agree(self) -> None:
        ledger, books = self.store.ledger, self.books
        half = books.half_landed
        charged = books.charged + (books.cost_of(half, self.counts_lost) if half else 0)
        assert ledger.spent(self.run_id, 10**9) == charged
        costs = (books.cost_of(each, self.counts_lost) for each in books.landed)
        accounts = [ledger.spent(self.run_id, each) for each in range(1, books.iteration + 1)]
        assert accounts == list(accumulate(costs))
        assert ledger.spent(self.run_id, books.iteration) == books.charged
        assert rows_of(self.store, self.run_id) == rows_by(books.bills)
        seen = self.state(0)["flight"].seen
        open_cost = ledger.open_cost(self.run_id, seen, counts_lost=self.counts_lost)
        assert books.charged + open_cost == self.dollars_out
        for ticket in books.attempts:
            cost = ledger.step_cost(self.run_id, ticket, counts_lost=self.counts_lost)
            assert cost == books.cost_of(ticket, self.counts_lost)

    @invariant()
    def a_hard_budget_is_never_exceeded(self) -> None:
        if self.policy == "hard":
            assert self.dollars_out <= Decimal(str(self.budget))

    @invariant()
    def no_concluded_call_is_made_again(self) -> None:
        for key, text in self.books.outcomes.items():
            found = self.store.call_log.outcome(CallKey(self.run_id, *key))
            assert found is not None
            assert found.text == text

    @invariant()
    def a_fork_leaves_its_original_alone(self) -> None:
        if self.forked_from is not None:
            place, run_id, bills = self.forked_from
            with RunStore(place, is_read_only=True) as store:
                assert rows_of(store, run_id) == rows_by(bills)


def ticket_of(number: int) -> Ticket:
    return Ticket(
        number, 1, Step(ticket=number), "", 0.0, LandedTickets(0), 0, ArchiveVersion(), ""
    )


def rows_of(store: RunStore, run_id: str) -> list[tuple[object, ...]]:
    return sorted(
        (row.ticket, row.role, row.attempt, row.status, row.cost, row.bound)
        for row in store.call_log.calls(run_id, with_texts=False)
    )


def rows_by(bills: list[Bill]) -> list[tuple[object, ...]]:
    return sorted(
        (bill.ticket, bill.role, bill.attempt, bill.status, bill.cost, bill.bound) for bill in bills
    )


EXAMPLES = {"sqlite-file": 30, "postgres": 10}
"""Lives of a run. Both engines execute the same statements."""


@pytest.mark.parametrize("backend", SHARED)
def test_the_ledger_is_exact_whatever_happens_to_a_run(
    request: pytest.FixtureRequest, tmp_path: Path, backend: str
) -> None:
    def new_place() -> Path | str:
        if backend == "postgres":
            return str(request.getfixturevalue("postgres_address"))
        return tmp_path / f"{next(NAMES)}.sqlite"

    run_state_machine_as_test(
        lambda: LedgerMachine(new_place),
        settings=settings(max_examples=EXAMPLES[backend], stateful_step_count=40, deadline=None),
    )
