"""Slices of a run's account: the purse never shows less than the ledger, in any order of calls."""

from decimal import Decimal
from itertools import count

import pytest
from fakes import toy_problem
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from toy_graph import discovery

from costada.nodes.calls.run_account import (
    begin_execution,
    close_account,
    draw_budget,
    open_account,
    report_cost,
    settle_account,
)
from costada.store.purse import Purse
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore

D = Decimal
BUDGET, SLICE = D("1"), D("0.2")
RUNS = ("first", "second")
RUN, TICKET = st.sampled_from(RUNS), st.integers(1, 4)
DOLLARS = st.decimals(0, D("0.3"), places=3)
ORDER = count()


class SlicedRuns(RuleBasedStateMachine):
    """Two runs on one purse: requests begin and end, executions end, processes die."""

    def __init__(self, policy):
        super().__init__()
        self.purse, self.store = Purse(2 * BUDGET, policy=policy), RunStore()
        self.graph = discovery(
            problem=toy_problem(),
            budget=float(BUDGET),
            store=self.store,
            purse=self.purse,
            budget_policy=policy,
            purse_slice=float(SLICE),
        )
        self.context, self.is_hard = self.graph.search, policy == "hard"
        self.in_flight, self.executed = [], set()

    def ledger(self, run):
        costs = self.store.ledger.step_costs(run).values()
        return sum((cost + bound for cost, bound in costs), D(0))

    @rule(run=RUN)
    def execute(self, run):
        """An execution begins, perhaps after the process of another one has died."""
        begin_execution(run, self.context)
        assert draw_budget(run, self.context) == float(BUDGET)
        self.executed.add(run)

    @precondition(lambda self: self.executed)
    @rule(run=RUN, ticket=TICKET, bound=DOLLARS)
    def begin(self, run, ticket, bound):
        fits = self.ledger(run) + (bound if self.is_hard else 0) <= BUDGET
        if run in self.executed and fits:
            account = open_account(run, self.context)
            row = CallRow(ticket=ticket, role="generation", attempt=next(ORDER), bound=bound)
            number = self.store.call_log.put_call(run, row)
            report_cost(account, run, ticket, self.context)
            self.in_flight.append((account, run, row, number))
            self.is_covered(run)

    @precondition(lambda self: self.in_flight)
    @rule(place=st.integers(0, 30), share=st.integers(0, 4), in_doubt=st.booleans())
    def finish(self, place, share, in_doubt):
        """Also after the execution has ended, as a call does that was in flight."""
        account, run, row, number = self.in_flight.pop(place % len(self.in_flight))
        cost = row.bound * share / 4
        bound = row.bound - cost if in_doubt else D(0)
        ended = {"cost": cost, "bound": bound, "status": CallStatus.DONE}
        self.store.call_log.finish_call(run, number, CallRow(**{**vars_of(row), **ended}))
        report_cost(account, run, row.ticket, self.context)

    @rule(run=RUN)
    def interrupt(self, run):
        settle_account(run, self.context)
        self.is_exact(run)

    @rule(run=RUN)
    def close(self, run):
        close_account(run, self.context)
        self.executed.discard(run)
        if self.purse.found(run):
            self.is_exact(run)

    def is_exact(self, run):
        account = self.purse.below(run)
        if account:
            assert account.spent == self.ledger(run)

    def is_covered(self, run):
        account = self.purse.below(run)
        assert account.spent >= self.ledger(run)

    @invariant()
    def the_purse_shows_no_less_than_the_ledger(self):
        for run in RUNS:
            if self.purse.found(run):
                self.is_covered(run)

    @invariant()
    def no_account_exceeds_its_budget(self):
        for account in self.purse.accounts():
            assert not self.is_hard or account.spent <= account.committed <= account.budget

    def teardown(self):
        for run in RUNS:
            close_account(run, self.context)
        assert self.purse.spent == sum(map(self.ledger, RUNS))
        self.purse.close()
        self.store.close()


def vars_of(row):
    return {name: getattr(row, name) for name in row.__slots__}


@pytest.mark.parametrize("policy", ["hard", "crossing"])
def test_the_purse_never_shows_less_than_the_ledger_nor_more_than_a_hard_budget(policy):
    run_state_machine_as_test(
        lambda: SlicedRuns(policy),
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None),
    )
