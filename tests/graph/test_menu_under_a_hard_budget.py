"""Several models under a hard budget: no model is asked that cannot be paid for."""

from decimal import Decimal

import pytest
from billing_server import Reply
from fakes import hashed_answer
from menu_provider import DOLLARS, answer, billed_by_model, ledger_by_model, menu_of, several
from toy_graph import calls_of, events_of, rows_of, spent_by

from costada.nodes.calls.bounds import MESSAGE_TOKENS, MINIMAL_ANSWER
from costada.store.run_store import RunStore

HARD = {"budget_policy": "hard", "iterations": 60}


def longest(body):
    """An answer as long as it may be, to a prompt with as many tokens as bytes."""
    size = sum(len(message["content"].encode()) for message in body["messages"])
    return Reply(
        hashed_answer(body["messages"][-1]["content"]),
        input_tokens=size,
        output_tokens=body["max_completion_tokens"],
    )


@pytest.mark.parametrize("reply", [answer, longest])
@pytest.mark.parametrize(
    ("router", "parallel"),
    [("budgeted-thompson", 1), ("budgeted-thompson", 4), ("round-robin", 4), ("cascade", 1)],
)
@pytest.mark.parametrize("budget", [0.0007, 0.003])
def test_no_bill_exceeds_a_hard_budget_whatever_is_chosen(server, budget, router, parallel, reply):
    server.default, store = reply, RunStore()
    menu = menu_of(server)
    several(menu, store=store, budget=budget, router=router, parallel=parallel, **HARD).invoke({})
    bill = billed_by_model(server)
    assert spent_by(store) == sum(bill.values()) <= Decimal(str(budget))
    assert ledger_by_model(store) == bill
    attempts = ledger_by_model(store, has_guides=False)
    assert {each["name"]: each["dollars"] for each in rows_of(store)[-1]["router"]} == {
        name: float(cost) for name, cost in attempts.items()
    }


def minimal(name, prompt):
    """Dollars of the shortest answer worth its money, at the bound of its prompt's tokens."""
    return DOLLARS[name] * (prompt + MESSAGE_TOKENS + 4 * MINIMAL_ANSWER) / 1_000_000


@pytest.mark.parametrize("router", ["round-robin", "fixed:large", "ucb1"])
def test_what_is_left_goes_to_the_models_that_it_can_pay_for(server, router):
    """Every model but the cheapest is left out as soon as it has become too expensive."""
    server.default, store = longest, RunStore()
    budget = 0.012
    several(menu_of(server), store=store, budget=budget, router=router, **HARD).invoke({})
    left = Decimal(str(budget))
    for call in calls_of(store):
        assert minimal(call.entry, len(call.prompt.encode())) <= left
        left -= call.cost
    assert events_of(store)[-1] == "out_of_money"
    last = calls_of(store)[-1]
    assert last.entry == "small" or router == "fixed:large"
    assert left < minimal("small", 2 * len(last.prompt.encode()))


def test_a_step_that_no_model_can_be_paid_for_makes_no_call(server):
    """The budget pays for a shorter first prompt than one with the start's evaluation."""
    server.default, store = answer, RunStore()
    graph = several(menu_of(server), store=store, budget=0.000056, **HARD)
    found = graph.invoke({})
    (row,) = rows_of(store)
    assert (server.requests, calls_of(store)) == ([], [])
    assert row["failure"].startswith("not asked: no model of the menu can answer for the $0.000056")
    assert (row["events"], row["models"], row["attempts"]) == (["out_of_money"], [], 1)
    assert [each["tries"] for each in row["router"]] == [0, 0, 0]
    assert (found["spent"], found["stop_reason"]) == (0.0, "budget")
