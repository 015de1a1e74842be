"""The budget check of a call: what is left to pay for the most that it can cost.

Money is reserved in two places: for a request of a run by `reserve_share`, within the transaction
that puts the request into the journal, and for an agent's call by `Purse.begin`
(`BudgetMiddleware`).
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from decimal import Decimal
from threading import Lock

from costada.models.asking import RequestNotSent, journals_of
from costada.models.prices import PriceBook
from costada.models.runnable_tree import OutgoingRequest
from costada.nodes.calls.bounds import (
    MINIMAL_ANSWER,
    ROOMY_ANSWER,
    evaluation_bound,
    request_output_cap,
)
from costada.nodes.context import PerRun, PricedModel, RunContext, budget_of, is_sequential
from costada.nodes.state import SearchState
from costada.store.call_log import CallKey
from costada.store.rows import LandedTickets
from costada.values.numbering import START, TicketNumber
from costada.values.roles import GENERATION, JUDGING, RETRY
from costada.values.usage import exactly

PROPOSING = (GENERATION, RETRY)
"""Roles of the requests for a program."""


@exactly
def money_left(
    key: CallKey,
    state: SearchState,
    context: RunContext,
    *,
    gateways: Collection[str] = (),
    counts_sent: bool = True,
) -> Decimal:
    """Dollars left (B - C_t, and less the calls of all open tickets so far), below 0 if overspent.

    Requests whose bill is unknown count at their upper bound, under a hard budget always. Requests
    in flight count with `counts_sent`. Not counted: lost requests of this call that one of the
    `gateways` will report again.
    """
    ledger, counts_lost = context.store.ledger, context.counts_lost
    spent = ledger.spent(key.run_id, state.get("iterations", START))
    spent += ledger.open_cost(
        key.run_id, _open_tickets(key, state), counts_lost=counts_lost, counts_sent=counts_sent
    )
    if counts_lost:
        spent -= context.store.call_log.lost_through(key, gateways)
    return Decimal(str(budget_of(state, context))) - spent


@exactly
def expected_left(
    key: CallKey, state: SearchState, context: RunContext, *, gateways: Collection[str] = ()
) -> Decimal:
    """Dollars left once the tickets in flight have cost what they are expected to cost.

    It depends on no answer that is still to land, so a run in the order of launching decides by it
    whatever the latencies. The calls of the ticket itself count as `money_left` counts them.
    """
    ledger, counts_lost = context.store.ledger, context.counts_lost
    flight = state["flight"]
    in_flight = {
        each.number: Decimal(str(each.expected))
        for each in flight.tickets
        if each.number != key.ticket and each.number <= flight.last_ticket
    }
    spent = ledger.spent(key.run_id, state.get("iterations", START))
    for ticket in {key.ticket, *flight.open_tickets} - in_flight.keys():
        spent += ledger.step_cost(key.run_id, ticket, counts_lost=counts_lost)
    if counts_lost:
        spent -= context.store.call_log.lost_through(key, gateways)
    return Decimal(str(budget_of(state, context))) - spent - sum(in_flight.values())


class WaitingForFunds(RequestNotSent):
    """A request waits until others in flight have ended and what they reserved is free."""


class FundsQueue:
    """The requests of a run that wait for funds, served in the order of the launch of tickets.

    A request joins when it is refused and stays until it is sent, or until its call ends: between
    two polls nothing else shows that it waits, and a cheaper request of a later ticket would take
    what has become free.

    The queue also knows what is set aside for evaluations. Requests of the search wait until it is
    released; those of an evaluation that has money set aside do not wait for them in turn.
    """

    def __init__(self) -> None:
        self._requests: set[tuple[CallKey, object]] = set()
        self._set_aside: dict[TicketNumber, Decimal] = {}
        self._lock = Lock()  # workers join and leave while another looks through the set

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits."""
        return bool(self._requests)

    @property
    def waiting(self) -> frozenset[TicketNumber]:
        """The tickets with a request that waits."""
        with self._lock:
            return frozenset(key.ticket for key, _ in self._requests)

    def is_behind(self, key: CallKey) -> bool:
        """Whether a request of a ticket launched earlier waits that a call has to wait for."""
        with self._lock:
            has_own = key.role in JUDGING and key.ticket in self._set_aside
            return any(
                other.ticket < key.ticket and not (has_own and other.role not in JUDGING)
                for other, _ in self._requests
            )

    def join(self, key: CallKey, request: object = None) -> None:
        """Let a request wait; several of one call are told apart."""
        with self._lock:
            self._requests.add((key, request))

    def leave(self, key: CallKey, request: object = None) -> None:
        """Note that a request no longer waits, if it did."""
        with self._lock:
            self._requests.discard((key, request))

    def leave_all(self, key: CallKey) -> None:
        """Note that no request of a call waits any longer."""
        with self._lock:
            self._requests = {each for each in self._requests if each[0] != key}

    def set_aside(self, ticket: TicketNumber, dollars: Decimal) -> None:
        """Set money aside for the evaluation of a ticket, in the place of what was so far."""
        if dollars:
            with self._lock:
                self._set_aside[ticket] = dollars

    def draw(self, ticket: TicketNumber, dollars: Decimal) -> None:
        """Take money out of what is set aside for a ticket, if any is; negative is given back."""
        with self._lock:
            if ticket in self._set_aside:
                self._set_aside[ticket] -= dollars

    def release(self, ticket: TicketNumber) -> None:
        """Set nothing aside for a ticket any longer."""
        with self._lock:
            self._set_aside.pop(ticket, None)

    def set_aside_for_others(self, ticket: TicketNumber) -> list[Decimal]:
        """What is set aside for each other ticket."""
        with self._lock:
            aside = self._set_aside.items()
            return [max(dollars, Decimal(0)) for other, dollars in aside if other != ticket]

    def may_release(self, key: CallKey) -> bool:
        """Whether money is set aside for another ticket that may end without what a call asks for.

        A ticket that waits to ask for a program does not, and to an evaluation neither does one
        whose evaluation waits: the oldest of them has to go first.
        """
        with self._lock:
            stuck = {
                other.ticket
                for other, _ in self._requests
                if key.role in JUDGING or other.role not in JUDGING
            }
            return bool(self._set_aside.keys() - stuck - {key.ticket})


FUNDS_QUEUES = PerRun(FundsQueue)

FUNDS_POLL_SECONDS = 0.2
"""How often a call that waits for funds asks again."""


@exactly
def share_of_money(
    request: OutgoingRequest,
    asked: PricedModel,
    key: CallKey,
    state: SearchState,
    context: RunContext,
    waiter: object = None,
) -> Decimal:
    """Dollars that a request may reserve of what is left, beside those of other tickets.

    A request for a program leaves what its evaluation can cost, `evaluation_bound`, and what is set
    aside for those of other tickets. The share is what is left divided by n: the tickets that have
    reserved nothing yet, but no more of them than can each pay for a roomy answer. A few whole
    answers are worth more than many that are cut short.

    Where a call sends several requests at once, `waiter` tells this one from the others.

    Raises:
        WaitingForFunds: An older ticket waits, or others are in flight, and what they leave cannot
            buy a roomy answer. The request has joined the queue then.
    """
    gateways = journals_of(asked.model)
    own = _own_evaluation(key, context)
    if is_sequential(state, context):
        return money_left(key, state, context, gateways=gateways) - own
    cap = min(request_output_cap(request), ROOMY_ANSWER)
    roomy = asked.prices.listed(request.model).worst_cost(
        request.input_bound, cap * request.choices
    )
    queue = FUNDS_QUEUES.of(context.store, key.run_id)
    # One snapshot: a call that ends between the two would be both paid and in flight, or neither.
    with context.store.ledger.unchanged():
        left = money_left(key, state, context, gateways=gateways) - _of_others(key, context)
        num_sent = num_others_sent(key, state, context)
        is_free_later = num_sent > 0 or queue.may_release(key)
        if queue.is_behind(key) or (is_free_later and left - own < roomy):
            raise _join_queue(roomy, left - own, key, context, waiter)
    num_busy = max(num_sent, len(queue.set_aside_for_others(key.ticket)))
    num_affordable = int(left / (roomy + own)) if roomy + own else context.parallel
    return left / max(1, min(context.parallel - num_busy, num_affordable)) - own


@exactly
def _own_evaluation(key: CallKey, context: RunContext) -> Decimal:
    """What a request leaves for the evaluation of the program that it asks for."""
    if key.role not in PROPOSING:
        return Decimal(0)
    return evaluation_bound(context.problem, context.settings)


@exactly
def _of_others(key: CallKey, context: RunContext) -> Decimal:
    """What a request leaves for the evaluations of other tickets; one of an evaluation, nothing.

    Evaluations would wait for each other otherwise.
    """
    if key.role in JUDGING:
        return Decimal(0)
    queue = FUNDS_QUEUES.of(context.store, key.run_id)
    return sum(queue.set_aside_for_others(key.ticket), Decimal(0))


@contextmanager
def evaluation_funds(state: SearchState, context: RunContext) -> Iterator[Callable[[], None]]:
    """Release at the end of the block what is set aside for the step's evaluation.

    Yields what sets it aside, where no request for a program has done so in this process.
    """
    queue, ticket = FUNDS_QUEUES.of(context.store, state["run"].id), state["step"].ticket
    bound = evaluation_bound(context.problem, context.settings) if context.is_hard else Decimal(0)
    try:
        yield lambda: queue.set_aside(ticket, bound)
    finally:
        queue.release(ticket)


def reserve_share(
    bound: Decimal, asked: PricedModel, key: CallKey, state: SearchState, context: RunContext
) -> None:
    """Reserve the bound of a request, in the transaction that journals it.

    The reservation is the `bound` of the request's row in the call log. `CallJournal.finish`
    releases it when the bill is known; the bound of a lost request stays.

    Raises:
        WaitingForFunds: An older ticket waits, or others are in flight, and what they leave is
            less. The request has joined the queue then.
        RequestNotSent: The bound exceeds what is left, and no request of another ticket is in
            flight that could leave more.
    """
    if is_sequential(state, context):
        return  # nothing else is in flight: what the share allowed is still there
    # Read again: between the share and this transaction another ticket may have reserved its own.
    reserve_bound(bound, key, state, context, gateways=journals_of(asked.model))


def reserve_bound(
    bound: Decimal,
    key: CallKey,
    state: SearchState,
    context: RunContext,
    *,
    gateways: Collection[str] = (),
    waiter: object = None,
) -> None:
    """Reserve the bound of a call, in the transaction that journals it, whatever its share was.

    `waiter` is as in `share_of_money`. Raises as `reserve_share` does.
    """
    queue = FUNDS_QUEUES.of(context.store, key.run_id)
    own = _own_evaluation(key, context)
    left = money_left(key, state, context, gateways=gateways) - own - _of_others(key, context)
    # The oldest goes first, or cheaper requests would take what it waits for again and again.
    if queue.is_behind(key):
        raise _join_queue(bound, left, key, context, waiter)
    if bound > left:
        if num_others_sent(key, state, context) or queue.may_release(key):
            raise _join_queue(bound, left, key, context, waiter)
        raise RequestNotSent(f"not asked: it may cost ${bound:.6f}, and ${left:.6f} are left")
    queue.leave(key, waiter)
    if key.role in JUDGING:
        queue.draw(key.ticket, bound)
    elif not is_sequential(state, context):
        queue.set_aside(key.ticket, own)


def leave_queue(key: CallKey, context: RunContext, waiter: object = None) -> None:
    """Note that a request no longer waits for funds, if it did."""
    FUNDS_QUEUES.of(context.store, key.run_id).leave(key, waiter)


def _join_queue(
    dollars: Decimal, left: Decimal, key: CallKey, context: RunContext, waiter: object
) -> WaitingForFunds:
    """Add a request to the queue; the error that says so."""
    FUNDS_QUEUES.of(context.store, key.run_id).join(key, waiter)
    return WaitingForFunds(f"not asked: it may cost ${dollars:.6f}, and ${left:.6f} are left")


def num_others_sent(key: CallKey, state: SearchState, context: RunContext) -> int:
    """How many other tickets have a request in flight."""
    if is_sequential(state, context):
        return 0
    waiting = FUNDS_QUEUES.of(context.store, key.run_id).waiting
    open_tickets = _open_tickets(key, state)
    return context.store.ledger.num_sent(key.run_id, open_tickets, key.ticket, waiting)


def _open_tickets(key: CallKey, state: SearchState) -> LandedTickets:
    """What had landed when the ticket was launched; its own calls count as open."""
    seen = state["flight"].seen
    return LandedTickets(seen.last, (*seen.open, key.ticket))


@exactly
def left_of_step(
    key: CallKey,
    step_cap: float | None,
    context: RunContext,
    *,
    gateways: Collection[str] = (),
) -> Decimal | None:
    """Dollars that the step may still cost by its cap, `None` without a cap.

    Guides are charged to the step and do not count. Requests whose bill is unknown count as they
    do against the budget, see `money_left`.
    """
    if step_cap is None:
        return None
    store, counts_lost = context.store, context.counts_lost
    cost = store.ledger.step_cost(key.run_id, key.ticket, counts_lost=counts_lost, has_guides=False)
    if counts_lost:
        cost -= store.call_log.lost_through(key, gateways)
    return Decimal(str(step_cap)) - cost


def affordable_answer(request: OutgoingRequest, left: Decimal, prices: PriceBook) -> int:
    """Most answer tokens that a request may get: its own limit, or what can be bought.

    Raises:
        RequestNotSent: Not even `MINIMAL_ANSWER` tokens can be bought, or the whole limit if it is
            lower.
        ValueError: The model that is asked has no price.
    """
    quote, cap = prices.listed(request.model), request_output_cap(request)

    def worst(tokens: int) -> Decimal:
        return quote.worst_cost(request.input_bound, tokens * request.choices)

    if worst(cap) <= left:
        return cap
    affordable = bisect_right(range(cap), left, key=worst) - 1
    least = min(MINIMAL_ANSWER, cap)
    if affordable < least:
        raise RequestNotSent(
            f"not asked: it may cost ${worst(least):.6f}, and ${left:.6f} are left"
        )
    return affordable
