"""A purse under many spenders at once, under a kill, and under whatever hypothesis thinks of."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from costada.store.accounts import OverBudget
from costada.store.purse import Purse

D = Decimal


def test_threads_can_not_overdraw_a_hard_purse(open_purse):
    purse = open_purse(1, policy="hard")

    def spend(number: int) -> Decimal:
        with suppress(OverBudget):
            account = purse.child(f"account {number % 5}", 0.15) if number % 2 else purse
            account.begin(f"call {number}", 0.02)
            account.put(f"call {number}", cost=D("0.02"))
            return D("0.02")
        return D(0)

    with ThreadPoolExecutor(8) as pool:
        spent = sum(pool.map(spend, range(160)), D(0))
    assert purse.spent == spent <= 1
    assert purse.remaining >= 0


SPENDER = """
    import sys
    from contextlib import suppress
    from costada.store.accounts import OverBudget
    from costada.store.purse import Purse

    purse = Purse(0.2, policy="hard", path=sys.argv[1])
    account = purse.child("shared", 0.15)
    print("ready", flush=True)
    for number in range(int(sys.argv[3])):
        key = f"{sys.argv[2]} {number}"
        with suppress(OverBudget):
            account.begin(key, "0.002")
            account.put(key, cost="0.001")
"""


def spender(file: Path, name: str, calls: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", dedent(SPENDER), str(file), name, str(calls)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.process
def test_processes_share_a_purse_and_one_that_is_killed_leaves_it_sound(tmp_path: Path):
    file = tmp_path / "purse.sqlite"
    killed, other = spender(file, "killed", 10**6), spender(file, "other", 60)
    killed.stdout.readline()
    assert other.wait(100) == 0
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(100)
    for process in (killed, other):
        process.stdout.close()
    with Purse(0.2, policy="hard", path=file) as purse:
        entries = purse.calls()
        assert purse.spent == sum(entry.cost + entry.bound for entry in entries) <= D("0.15")
        assert sum(entry.bound > 0 for entry in entries) <= 1
        assert purse.remaining == D("0.05")


DOLLARS = st.decimals(0, 1, places=3)
ACCOUNT = st.integers(0, 30)


class NestedSpending(RuleBasedStateMachine):
    def __init__(self, purse):
        super().__init__()
        self.accounts, self.policy = [purse], purse.policy
        self.in_flight, self.numbers = [], count()

    def pick(self, number):
        return self.accounts[number % len(self.accounts)]

    @rule(number=ACCOUNT, name=st.sampled_from("abc"), budget=st.none() | DOLLARS)
    def draw(self, number, name, budget):
        with suppress(ValueError):
            self.accounts.append(self.pick(number).child(name, budget))

    @rule(number=ACCOUNT, bound=DOLLARS)
    def begin(self, number, bound):
        account, key = self.pick(number), f"call {next(self.numbers)}"
        with suppress(ValueError):
            account.begin(key, bound)
            self.in_flight.append((account, key, bound))

    @rule(number=ACCOUNT, share=st.fractions(0, 1))
    def finish(self, number, share):
        if self.in_flight:
            account, key, bound = self.in_flight.pop(number % len(self.in_flight))
            cost = (bound * share.numerator / share.denominator).quantize(D("0.000001"))
            account.put(key, cost=min(cost, bound))

    @rule(number=ACCOUNT, budget=DOLLARS)
    def extend(self, number, budget):
        if number % len(self.accounts):
            with suppress(ValueError):
                self.pick(number).raise_to(budget)

    @rule(number=ACCOUNT)
    def close(self, number):
        if number % len(self.accounts):
            self.pick(number).close()

    def teardown(self):
        self.accounts[0].close()

    @invariant()
    def the_books_are_those_of_a_sum_over_all_calls(self):
        accounts, calls = self.accounts[0].accounts(), self.accounts[0].calls()
        for account in accounts:
            below = [each for each in accounts if each.parent == account.id]
            own = account.spent - sum(each.spent for each in below)
            assert account.committed == own + sum(each.held for each in below)
            assert not account.is_closed or all(each.is_closed for each in below)
            if self.policy == "hard":
                assert account.spent <= account.committed <= account.budget
        assert accounts[0].spent == sum(entry.cost + entry.bound for entry in calls)


@pytest.mark.parametrize("policy", ["hard", "crossing"])
def test_the_books_of_nested_accounts_are_right_after_every_step(open_purse, policy):
    names = map(str, count())
    run_state_machine_as_test(
        lambda: NestedSpending(open_purse(1, policy=policy, name=next(names))),
        settings=settings(max_examples=15, stateful_step_count=20, deadline=None),
    )


@settings(max_examples=25)
@given(asked=st.lists(st.tuples(DOLLARS, DOLLARS), max_size=12))
def test_the_children_of_a_hard_purse_never_spend_more_than_it_holds(asked):
    purse = Purse(1, policy="hard")
    for number, (budget, cost) in enumerate(asked):
        with suppress(ValueError), purse.child(str(number), budget) as child:
            child.begin("call", cost)
            child.put("call", cost=cost)
    assert purse.spent <= 1
    assert purse.remaining == 1 - purse.spent
