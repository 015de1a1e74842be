"""Calls that judge programs: part of a step's cost, apart from the calls of the search."""

from dataclasses import replace
from decimal import Decimal

import pytest
from rows import call_row

from costada.store.call_log import CallFilter, CallKey
from costada.store.rows import CallStatus, Outcome, OutcomeKind
from costada.values.roles import CANDIDATE, COMPUTE, EVALUATION, GUIDE, JUDGING, SEARCHING

RUN, TICKET = "run", 1


@pytest.fixture
def judged(store):
    """A guide, two attempts by two models of a menu, and what judged each of them."""
    rows = [
        (GUIDE, 1, "", "0.5"),
        ("generation", 1, "large", "1"),
        (EVALUATION, 1, "", "0.1"),
        (CANDIDATE, 1, "", "0.01"),
        (COMPUTE, 1, "", "0.001"),
        ("retry", 2, "small", "2"),
        (COMPUTE, 2, "", "0.002"),
    ]
    for role, attempt, entry, cost in rows:
        row = replace(call_row(entry=entry), ticket=TICKET, role=role, attempt=attempt)
        store.call_log.put_call(RUN, replace(row, cost=Decimal(cost), bound=Decimal(0)))
    return store


def test_every_role_either_searches_or_judges():
    assert SEARCHING == ("generation", "retry", "guide")
    assert JUDGING == ("evaluation", "candidate", "compute")


def test_a_step_costs_its_search_and_what_judged_it(judged):
    ledger = judged.ledger
    assert ledger.step_cost(RUN, TICKET, counts_lost=True) == Decimal("3.613")
    assert ledger.step_cost(RUN, TICKET, counts_lost=True, has_guides=False) == Decimal("3.113")
    assert ledger.cost_before(RUN, TICKET, 2, counts_lost=True) == Decimal("1.611")
    assert ledger.charge(RUN, 1, [TICKET]).cost == Decimal("3.613")


def test_an_attempt_costs_its_model_what_judged_it(judged):
    def cost(attempt, entry, *, has_judging=True):
        attempts = range(attempt, attempt + 1)
        return judged.ledger.attempt_cost(
            RUN, TICKET, attempts, entry, counts_lost=True, has_judging=has_judging
        )

    assert cost(1, "large") == Decimal("1.111")
    assert cost(2, "small") == Decimal("2.002")
    assert cost(1, "large", has_judging=False) == 1
    assert cost(2, "large") is None  # it made no request, though the attempt was judged


def test_a_lost_evaluation_counts_at_its_bound(judged):
    row = replace(call_row(), ticket=2, role=COMPUTE, status=CallStatus.LOST)
    judged.call_log.put_call(RUN, replace(row, cost=Decimal(0), bound=Decimal("0.25")))
    assert judged.ledger.step_cost(RUN, 2, counts_lost=True) == Decimal("0.25")
    assert judged.ledger.step_cost(RUN, 2, counts_lost=False) == 0


@pytest.mark.parametrize("which", [CallFilter(), CallFilter(of_guides=False), CallFilter(True)])
def test_what_judges_says_nothing_of_the_models_of_the_search(store, which):
    log = store.call_log
    row = replace(call_row(), role=EVALUATION, error="refused", status=CallStatus.ERROR)
    log.put_call(RUN, row)
    log.put_call(RUN, replace(row, status=CallStatus.UNCOUNTED))
    log.put_outcome(CallKey(RUN, TICKET, EVALUATION, 1), Outcome("", "5", OutcomeKind.ANSWER))
    assert log.num_requests(RUN, which) == 0
    assert not log.has_answer(RUN, which)
    assert not log.has_uncounted(RUN, which)
    assert log.last_kind(RUN, which) is None
    assert log.last_error(RUN) == ""
