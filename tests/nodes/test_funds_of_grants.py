"""Who gets the money that is left, of the search and those that it grants models; none is sent."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from functools import partial
from threading import Barrier

import pytest
from fakes import toy_problem
from impatience import PATIENCE
from metered_calls import context_for
from toy_graph import PRICE, scripted

from costada.models.asking import RequestNotSent
from costada.models.endpoint.exchange import Postponed
from costada.models.metering import MeteredCall
from costada.models.prices import price_book
from costada.models.runnable_tree import OutgoingRequest
from costada.nodes.calls import granted_calls
from costada.nodes.calls.allowance import Allowance
from costada.nodes.calls.budget import (
    FUNDS_QUEUES,
    WaitingForFunds,
    affordable_answer,
    evaluation_funds,
    reserve_bound,
    reserve_share,
    share_of_money,
)
from costada.nodes.calls.granted_calls import Grant, GrantedRequest
from costada.nodes.calls.journal import CallJournal
from costada.nodes.context import RunContext
from costada.nodes.settings import Settings
from costada.nodes.state import Account, Flight, Run, SearchState, Step
from costada.prompts.render import Prompt
from costada.store.call_log import CallKey
from costada.store.rows import CallRow
from costada.values.numbering import START, TicketNumber
from costada.values.usage import Usage

RUN = "run"
REQUEST = OutgoingRequest("scripted", "scripted", 12_000, 1, 0, number=1)
"""Costs $0.024 at most, at $2 per million tokens of an answer."""


def hard_context(budget: float, *, parallel: int = 1) -> RunContext:
    model = scripted()
    return replace(
        context_for(model, prices=price_book([(model, PRICE)], {})),
        budget=budget,
        parallel=parallel,
        settings=Settings(price=PRICE, budget_policy="hard"),
    )


def state_of(ticket: int, *open_tickets: int) -> SearchState:
    number = TicketNumber(ticket)
    return {
        "run": Run(RUN, 0, RUN),
        "step": Step(ticket=number),
        "flight": Flight(last_ticket=max(open_tickets), open_tickets=open_tickets),
        "account": Account(),
        "iterations": START,
    }


def grant_of(context: RunContext, state: SearchState, allowance: Allowance | None = None) -> Grant:
    """The first model of a context, granted to the evaluation of a step."""
    key = CallKey(RUN, state["step"].ticket, "evaluation", 1)
    of_budget = Allowance(context.budget, "the budget", is_strict=False)
    models = {"agent": context.menu[0]}
    return Grant(key, "test", models, state, context, allowance or of_budget)


def request_of(grant: Grant, words: str = "How large is it?") -> GrantedRequest:
    return GrantedRequest(grant, grant.models["agent"], Prompt(words, ""))


def answered(sent: OutgoingRequest) -> MeteredCall:
    return MeteredCall(sent, usage=Usage(input_tokens=0, output_tokens=100))


def test_a_request_that_another_ticket_was_ahead_of_waits_for_it(monkeypatch):
    context, has_looked = hard_context(0.03, parallel=2), Barrier(2)
    look = granted_calls.share_of_money

    def look_at_once(*given):
        share = look(*given)
        if not has_looked.broken:
            has_looked.wait(PATIENCE)  # both before either of them reserves
        return share

    monkeypatch.setattr(granted_calls, "share_of_money", look_at_once)
    grants = [grant_of(context, state_of(ticket, 1, 2)) for ticket in (1, 2)]
    requests = [request_of(each) for each in grants]
    with ThreadPoolExecutor(2) as threads:
        begun = [threads.submit(each.begin, REQUEST) for each in requests]
    has_looked.abort()
    errors = [each.exception() for each in begun]
    assert [type(each) for each in errors if each] == [Postponed]
    assert [each.refusals for each in grants] == [{}, {}]
    late = errors.index(None) ^ 1
    requests[1 - late].finish(answered(begun[1 - late].result()))
    sent = requests[late].begin(REQUEST)
    assert sent.output_cap == 12_000
    requests[late].finish(answered(sent))
    for each in grants:
        each.close()
    assert context.store.ledger.step_cost(RUN, 2, counts_lost=True) == Decimal("0.0002")


def test_what_a_killed_evaluation_lost_leaves_its_successor_the_whole_allowance():
    context, state = hard_context(1.0), state_of(1, 1)
    unlimited = REQUEST._replace(output_cap=None)

    def sent_within_the_allowance():
        limited = Allowance(0.05, "evaluation_dollars", is_strict=True)
        return request_of(grant_of(context, state, limited)).begin(unlimited)

    first = sent_within_the_allowance()
    assert first.output_cap == 25_000  # $0.05 at $2 per million tokens
    context.store.call_log.in_flight.end(CallKey(RUN, 1, "evaluation", 1))  # as its process ends
    assert sent_within_the_allowance() == first
    assert context.store.ledger.step_cost(RUN, 1, counts_lost=True) == Decimal("0.1")


def test_a_request_of_an_evaluation_waits_on_while_another_one_of_it_leaves():
    context = hard_context(0.03, parallel=3)
    states = {ticket: state_of(ticket, 1, 2, 3) for ticket in (1, 2, 3)}
    others, evaluation, younger = (grant_of(context, states[each]) for each in (1, 2, 3))
    request_of(others).begin(REQUEST._replace(output_cap=11_000))  # leaves $0.008
    with pytest.raises(Postponed):
        request_of(evaluation).begin(REQUEST)
    small = REQUEST._replace(output_cap=500)  # $0.001
    another = request_of(evaluation, "another")
    another.finish(answered(another.begin(small)))
    assert evaluation.is_waiting
    with pytest.raises(Postponed):
        request_of(younger).begin(small)
    evaluation.close()
    assert request_of(younger).begin(small) == small


EVALUATION = 0.4
SHORT = REQUEST._replace(output_cap=500)
"""Costs $0.001 at most."""


def with_evaluation_dollars(context: RunContext) -> RunContext:
    problem = toy_problem(candidate_models={"agent": "openai:any"}, evaluation_dollars=EVALUATION)
    return replace(context, problem=problem)


def propose(context: RunContext, state: SearchState) -> CallJournal:
    """Ask for a program as a step does, or raise why that cannot be paid for now."""
    key, asked = CallKey(RUN, state["step"].ticket, "generation", 1), context.menu[0]
    share = share_of_money(SHORT, asked, key, state, context)
    assert affordable_answer(SHORT, share, asked.prices) == 500
    reserve = partial(reserve_share, asked=asked, key=key, state=state, context=context)
    journal = CallJournal(key, Prompt("Improve it.", ""), asked, context, 0, reserve)
    journal.begin(SHORT)
    return journal


def is_waiting_to_propose(context: RunContext, state: SearchState) -> bool:
    """Whether a step would have to wait; it is in the queue then."""
    try:
        propose(context, state)
    except WaitingForFunds:
        return True
    return False


@pytest.fixture
def funds():
    """A context with $1 for four steps whose evaluations cost up to $0.4, and their states."""
    context = with_evaluation_dollars(hard_context(1.0, parallel=4))
    return context, {ticket: state_of(ticket, 1, 2, 3, 4) for ticket in (1, 2, 3, 4)}


def test_a_program_is_asked_for_while_money_is_left_for_all_evaluations_in_flight(funds):
    context, states = funds
    with evaluation_funds(states[1], context):
        propose(context, states[1]).finish(answered(SHORT))
        propose(context, states[2]).finish(answered(SHORT))
        assert is_waiting_to_propose(context, states[3])
    propose(context, states[3])  # the evaluation of the first has cost nothing


def test_an_evaluation_draws_on_what_is_set_aside_for_it(funds):
    context, states = funds
    for ticket in (1, 2):
        propose(context, states[ticket]).finish(answered(SHORT))
    evaluation = request_of(grant_of(context, states[1]))
    evaluation.begin(REQUEST)
    queue = FUNDS_QUEUES.of(context.store, RUN)
    assert queue.set_aside_for_others(TicketNumber(3)) == [Decimal("0.376"), Decimal("0.4")]
    evaluation.finish(answered(SHORT))
    assert queue.set_aside_for_others(TicketNumber(3)) == [Decimal("0.3998"), Decimal("0.4")]


def test_an_evaluation_does_not_wait_for_a_step_that_waits_until_it_ends(funds):
    context, states = funds
    for ticket in (2, 3):
        propose(context, states[ticket]).finish(answered(SHORT))
    assert is_waiting_to_propose(context, states[1])
    assert request_of(grant_of(context, states[3])).begin(SHORT) == SHORT
    with pytest.raises(WaitingForFunds):
        propose(context, states[4])


def test_of_steps_that_wait_for_each_other_the_oldest_does_without(funds):
    context, states = funds
    for ticket in (1, 2):
        propose(context, states[ticket]).finish(answered(SHORT))
    context = replace(context, budget=0.5)  # $0.1 beside the evaluation of the other
    assert is_waiting_to_propose(context, states[1])
    assert is_waiting_to_propose(context, states[2])
    with pytest.raises(RequestNotSent, match="not asked"):
        propose(context, states[1])


def test_of_evaluations_that_wait_for_each_other_the_oldest_does_without(funds):
    context, states = funds
    for ticket in (1, 2):
        propose(context, states[ticket]).finish(answered(SHORT))

    def judge(ticket):
        key = CallKey(RUN, TicketNumber(ticket), "evaluation", 1)
        reserve_bound(Decimal(2), key, states[ticket], context)

    for ticket in (1, 2):
        with pytest.raises(WaitingForFunds):
            judge(ticket)
    with pytest.raises(RequestNotSent, match="it may cost") as refusal:
        judge(1)
    assert not isinstance(refusal.value, WaitingForFunds)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_request_reads_no_more_rows_of_a_step_that_has_sent_many(parallel, monkeypatch):
    context, state = hard_context(1.0, parallel=parallel), state_of(1, 1)
    call_log, engine, read = context.store.call_log, context.store._db.engine, []
    row = CallRow(ticket=1, role="evaluation", attempt=1, cost=Decimal("0.0001"))
    rows = engine.rows

    def counted(*given, **options):
        found = rows(*given, **options)
        read.append(len(found))
        return found

    def num_read():
        grant = grant_of(context, state)
        request_of(grant).begin(SHORT)  # the first request of a process reads them all
        request = request_of(grant, "another question")
        monkeypatch.setattr(engine, "rows", counted)
        read.clear()
        request.finish(answered(request.begin(SHORT)))
        monkeypatch.setattr(engine, "rows", rows)
        call_log.in_flight.end(grant.key)
        return sum(read)

    few = num_read()
    with context.store._db.transaction():
        for number in range(300):
            call_log.put_call(RUN, replace(row, request_hash=f"{number}"))
    assert num_read() <= few < 20
