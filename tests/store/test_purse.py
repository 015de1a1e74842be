"""One purse for many spenders: no account below it makes it spend more than it holds."""

from decimal import ROUND_DOWN, Decimal, localcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from store_backends import SHARED

from costada.store.accounts import OverBudget
from costada.store.purse import Purse

D = Decimal


def standing(purse: Purse) -> tuple[Decimal, Decimal, Decimal]:
    return purse.budget, purse.spent, purse.remaining


def test_a_new_purse_holds_its_budget(open_purse):
    purse = open_purse(0.5)
    assert standing(purse) == (D("0.5"), D(0), D("0.5"))
    assert (purse.name, purse.policy, purse.is_exhausted) == ("purse", "crossing", False)


def test_a_call_counts_at_its_bound_until_it_is_put_with_its_cost(open_purse):
    purse = open_purse(1)
    purse.begin("a", D("0.3"))
    assert standing(purse) == (D(1), D("0.3"), D("0.7"))
    purse.put("a", cost=D("0.1"))
    assert standing(purse) == (D(1), D("0.1"), D("0.9"))


def test_putting_the_same_call_again_changes_nothing(open_purse):
    purse = open_purse(1)
    for _ in range(3):
        purse.put("a", cost=0.1, bound=0.2, model="m")
    assert purse.spent == D("0.3")
    (entry,) = purse.calls()
    assert (entry.account, entry.key, entry.cost, entry.bound) == ("purse", "a", D("0.1"), D("0.2"))
    assert entry.facts == {"model": "m"}


def test_a_child_draws_its_budget_and_gives_back_what_it_did_not_spend(open_purse):
    purse = open_purse(1)
    child = purse.child("search", 0.4)
    assert (purse.remaining, purse.spent) == (D("0.6"), D(0))
    child.put("a", cost=0.1)
    assert (purse.remaining, purse.spent) == (D("0.6"), D("0.1"))
    child.close()
    child.close()
    assert (purse.remaining, purse.spent, child.remaining) == (D("0.9"), D("0.1"), D(0))


def test_a_child_without_a_budget_draws_all_that_is_left(open_purse):
    purse = open_purse(1)
    purse.put("a", cost=0.3)
    assert purse.child("rest").budget == D("0.7")
    assert purse.is_exhausted


def test_the_spending_of_grandchildren_reaches_the_purse_once(open_purse):
    purse = open_purse(1)
    child = purse.child("child", 0.6)
    grandchild = child.child("grandchild", 0.5)
    grandchild.put("a", cost=0.2)
    assert [each.spent for each in (purse, child, grandchild)] == [D("0.2")] * 3
    assert [each.remaining for each in (purse, child, grandchild)] == [D("0.4"), D("0.1"), D("0.3")]
    child.close()
    assert (purse.remaining, purse.spent) == (D("0.8"), D("0.2"))
    assert [account.is_closed for account in purse.accounts()] == [False, True, True]


def test_a_crossing_child_is_lent_what_is_left_and_its_overshoot_is_its_parents(open_purse):
    purse = open_purse(1)
    purse.put("a", cost=0.7)
    child = purse.child("search", 0.5)
    assert child.budget == D("0.3")
    child.put("b", cost=0.4)
    assert (child.remaining, purse.remaining, purse.spent) == (D("-0.1"), D("-0.1"), D("1.1"))
    with pytest.raises(OverBudget, match=r"budget: got 0.1, but 'purse' has \$0 left of \$1"):
        purse.child("another", 0.1)


def test_a_hard_purse_refuses_a_child_that_does_not_fit_and_names_both_numbers(open_purse):
    purse = open_purse(1, policy="hard")
    purse.child("first", 0.7)
    with pytest.raises(ValueError, match=r"budget: got 0.4, but 'purse' has \$0.3 left of \$1"):
        purse.child("second", 0.4)
    assert purse.child("second", 0.3).policy == "hard"


def test_the_same_name_is_the_same_account(open_purse):
    purse = open_purse(1)
    purse.child("search", 0.4).put("a", cost=0.1)
    again = purse.child("search", 0.4)
    assert standing(again) == (D("0.4"), D("0.1"), D("0.3"))
    assert purse.child("search").budget == D("0.4")
    assert purse.child("search", 0.2).budget == D("0.4")
    assert purse.child("search", 0.6).budget == D("0.6")
    assert purse.remaining == D("0.4")


def test_an_account_that_is_opened_again_draws_what_it_had_given_back(open_purse):
    purse = open_purse(1, policy="hard")
    child = purse.child("search", 0.4)
    child.put("a", cost=0.1)
    child.close()
    other = purse.child("other", 0.7)
    with pytest.raises(OverBudget, match=r"budget: got 0.4, but 'purse' has \$0.2 left"):
        purse.child("search", 0.4)
    other.close()
    assert standing(purse.child("search", 0.4)) == (D("0.4"), D("0.1"), D("0.3"))
    assert purse.remaining == D("0.6")


def test_a_hard_purse_refuses_an_open_account_more_than_there_is(open_purse):
    purse = open_purse(1, policy="hard")
    purse.child("search", 1)
    with pytest.raises(OverBudget):
        purse.child("search", 1.5)


def test_a_closed_account_begins_no_call_and_lends_nothing_but_records_what_was_spent(
    open_purse,
):
    purse = open_purse(1)
    child = purse.child("search", 0.5)
    child.begin("a", 0.2)
    child.close()
    assert purse.remaining == D("0.8")
    child.put("a", cost=0.05)
    assert (purse.remaining, purse.spent) == (D("0.95"), D("0.05"))
    with pytest.raises(ValueError, match="account 'search' is closed"):
        child.begin("b", 0.1)
    with pytest.raises(ValueError, match="account 'search' is closed"):
        child.child("below", 0.1)


def test_a_closed_purse_says_that_it_is_closed(open_purse):
    purse = open_purse(1)
    purse.close()
    with pytest.raises(ValueError, match="is closed, expected an open"):
        purse.child("search", 0.5)


def test_raising_draws_the_difference_under_either_policy_or_not_at_all(open_purse):
    purse = open_purse(1)
    child = purse.child("search", 0.4)
    child.raise_to(0.9)
    assert (child.budget, purse.remaining) == (D("0.9"), D("0.1"))
    with pytest.raises(OverBudget, match=r"budget: got 1.1, but 'purse' has \$0.1 left of \$1"):
        child.raise_to(1.1)
    with pytest.raises(ValueError, match=r"budget: got 0.5, expected at least 0.9"):
        child.raise_to(0.5)
    child.raise_to(0.9)
    purse.raise_to(2)
    assert purse.remaining == D("1.1")


def test_a_hard_call_begins_only_if_its_worst_case_fits(open_purse):
    purse = open_purse(1, policy="hard")
    purse.begin("a", 0.6)
    with pytest.raises(OverBudget, match=r"a call of at most \$0.5, but 'purse' has \$0.4 left"):
        purse.begin("b", 0.5)
    purse.put("a", cost=0.5)
    purse.begin("b", 0.5)
    assert purse.remaining == 0


def test_a_crossing_call_begins_as_long_as_anything_is_left(open_purse):
    purse = open_purse(0.1)
    purse.begin("a", 5)
    with pytest.raises(OverBudget):
        purse.begin("b", 0.01)
    purse.put("a", cost=0.05)
    purse.begin("b", 5)


def test_a_key_can_begin_only_once(open_purse):
    purse = open_purse(1)
    purse.begin("a", 0.1)
    with pytest.raises(ValueError, match="key: got 'a', which 'purse' holds"):
        purse.begin("a", 0.1)


def test_calls_are_reported_with_the_account_that_paid(open_purse):
    purse = open_purse(1)
    purse.put("plan", cost=0.1)
    child = purse.child("search", 0.5)
    child.put("1", cost=0.2)
    purse.child("other").put("x", cost=0.3)
    child.child("below").put("y", cost=0.1)
    assert [(entry.account, entry.key) for entry in purse.calls()] == [
        ("purse", "plan"),
        ("purse/search", "1"),
        ("purse/search/below", "y"),
        ("purse/other", "x"),
    ]
    assert [entry.account for entry in child.calls()] == ["search", "search/below"]


@pytest.mark.parametrize("budget", [0, -1, float("inf"), float("nan"), True, "much", None])
def test_a_budget_is_finite_dollars_above_0(open_purse, budget):
    with pytest.raises(ValueError, match="budget: got"):
        open_purse(budget)


def test_costs_and_names_are_checked(open_purse):
    purse = open_purse(1)
    with pytest.raises(ValueError, match="cost: got -1, expected finite dollars of at least 0"):
        purse.put("a", cost=-1)
    with pytest.raises(ValueError, match="bound: got"):
        purse.begin("a", float("nan"))
    with pytest.raises(ValueError, match="name: got ''"):
        purse.child("", 0.1)
    with pytest.raises(ValueError, match="policy: got 'soft'"):
        open_purse(1, policy="soft")
    assert purse.calls() == []


@pytest.mark.parametrize("address", SHARED, indirect=True)
def test_a_purse_is_reopened_with_what_was_spent_before(open_purse):
    with open_purse(1, policy="hard") as purse:
        purse.child("search", 0.5).put("a", cost=0.2)
    with open_purse(2, policy="hard") as purse:
        assert standing(purse) == (D(2), D("0.2"), D("1.5"))
        assert purse.child("search", 0.5).spent == D("0.2")
        assert open_purse(3, name="another").spent == 0
    with pytest.raises(ValueError, match="budget: got 1, expected at least 2"):
        open_purse(1, policy="hard")
    with pytest.raises(ValueError, match="policy: got 'crossing', expected 'hard' as it was"):
        open_purse(2)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"path": "a.sqlite", "dsn": "postgresql://h/d"}, "dsn: got one with path 'a.sqlite'"),
        ({"path": "postgresql://u:secret@h/d"}, "path: got the address of a Postgres database"),
        ({"path": ""}, "path: got an empty string, expected a file"),
        ({"dsn": ""}, "dsn: got an empty string, expected 'postgresql://"),
        ({"dsn": Path("a.sqlite")}, "dsn: got a PosixPath, expected 'postgresql://"),
        ({"dsn": "secret is not an address"}, "cannot be read, expected postgresql://"),
    ],
)
def test_a_place_that_is_none_is_refused_and_no_secret_repeated(place, message, tmp_path):
    for opened in (partial(Purse, 1), partial(Purse.existing, "purse")):
        with pytest.raises(ValueError, match=message) as refused:
            opened(**place)
        assert "secret" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_fact_that_is_not_a_plain_value_is_refused_before_money_is_reserved(open_purse):
    purse = open_purse(1)
    for record in (partial(purse.begin, "a", 0.5), partial(purse.put, "a", cost=0.5)):
        with pytest.raises(ValueError, match=r"model: got \['m'\], expected a string, a number"):
            record(model=["m"])
    assert purse.remaining == 1
    assert not purse.calls()


def test_a_purse_whose_server_is_gone_names_the_place():
    with pytest.raises(OSError, match="cannot connect") as refused:
        Purse(1, dsn="postgresql://user:secret@127.0.0.1:9/purses")
    assert refused.value.filename == "postgresql://user@127.0.0.1:9/purses"
    assert "secret" not in str(refused.value)


def test_sums_are_exact_in_whatever_decimal_context_the_caller_works(open_purse):
    with localcontext(prec=2, rounding=ROUND_DOWN):
        purse = open_purse(D("1000.005"), policy="hard")
        child = purse.child("search", D("200.0004"))
        for number in range(3):
            child.begin(f"{number}", D("1.00003"))
            child.put(f"{number}", cost=D("1.00001"))
        purse.put("own", cost=D("100.5"), bound=D("0.25"))
        child.raise_to(D("300.0007"))
        found = standing(purse), standing(child)
        child.close()
    spent, own = D("3.00003"), D("100.75")
    assert found[0] == (D("1000.005"), own + spent, D("1000.005") - own - D("300.0007"))
    assert found[1] == (D("300.0007"), spent, D("300.0007") - spent)
    assert purse.remaining == D("1000.005") - own - spent


def test_amounts_that_could_not_be_read_again_are_refused_or_rounded_up(open_purse):
    purse = open_purse(1)
    for cost in (D("1e20"), 1e300):
        with pytest.raises(ValueError, match=r"cost: got .*, expected less than 1E\+20 dollars"):
            purse.put("a", cost=cost)
    purse.put("a", cost=D("1e-40"), bound=D("0e-60"))
    assert purse.spent == D("1e-30")
    purse.put("a", cost=D("0." + "1" * 200))
    assert purse.spent == D("0." + "1" * 29 + "2")
    assert [entry.cost for entry in purse.calls()] == [purse.spent]


@pytest.mark.parametrize("key", ["", "a\0b", 5, None])
def test_a_key_is_a_text(open_purse, key):
    purse = open_purse(1)
    for record in (partial(purse.begin, bound=0.1), partial(purse.put, cost=0.1)):
        with pytest.raises(ValueError, match=r"key: got .*, expected a string of at least one"):
            record(key)
    assert purse.spent == 0


def spend_and_report(purse, answers):
    try:
        purse.begin("child's", 0.25)
        answers.put("begun")
    except ValueError as refused:
        answers.put(str(refused))


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_never_spends_from_a_copy_of_its_parents_purse(open_purse, address):
    """In Postgres it opens a connection of its own, and both spend from one purse."""
    purse, forking = open_purse(1, policy="hard"), get_context("fork")
    purse.begin("parent's", 0.5)
    answers = forking.SimpleQueue()
    child = forking.Process(target=spend_and_report, args=(purse, answers))
    child.start()
    found = answers.get()
    child.join(100)
    assert child.exitcode == 0
    if isinstance(address, str):
        assert (found, purse.spent) == ("begun", D("0.75"))
    else:
        assert "was opened before this process was forked" in found
        assert purse.spent == D("0.5")
    purse.put("parent's", cost=0.5)


def test_an_account_that_its_purse_has_lost_is_named(open_purse):
    purse = open_purse(1)
    account = purse.child("run", 0.5)
    account._rows.database.write("DELETE FROM costada_account WHERE name = ?", ("run",))
    for use in (
        partial(account.child, "below", 0.1),
        partial(account.raise_to, 0.6),
        partial(account.begin, "key", 0.1),
        partial(account.put, "key", cost=0.1),
        partial(account.put_and_reserve, {}, "key", 0.1),
        lambda: account.spent,
        lambda: account.root,
        account.calls,
        account.close,
    ):
        with pytest.raises(ValueError, match=r"account 'run': the purse.* has lost it, as after"):
            use()
    assert account._rows.database.rows("SELECT * FROM costada_entry") == []


def entries(purse: Purse) -> dict[str, tuple[Decimal, Decimal]]:
    return {each.key: (each.cost, each.bound) for each in purse.calls()}


def test_calls_and_a_reservation_are_written_at_once(open_purse):
    purse = open_purse(1)
    account = purse.child("run", 0.5)
    account.put("a", cost=D("0.1"), bound=D("0.1"))
    assert account.put_and_reserve({"a": (D("0.05"), D(0))}, "kept", D("0.2")) == D("0.2")
    assert entries(account) == {"a": (D("0.05"), D(0)), "kept": (D(0), D("0.2"))}
    assert standing(account) == (D("0.5"), D("0.25"), D("0.25"))
    more = {"a": (D("0.06"), D(0)), "b": (D("0.1"), D("0.14"))}
    assert account.put_and_reserve(more, "kept", 5) == D("0.2")  # all that is left
    assert standing(account) == (D("0.5"), D("0.5"), D(0))
    assert (purse.spent, purse.remaining) == (D("0.5"), D("0.5"))
    assert account.put_and_reserve({}, "kept", 0) == 0
    assert (purse.spent, purse.remaining) == (D("0.3"), D("0.5"))


def test_nothing_is_reserved_where_a_crossing_account_is_overspent_or_closed(open_purse):
    purse = open_purse(1)
    account = purse.child("run", 0.5)
    assert account.put_and_reserve({"a": (D("0.6"), D(0))}, "kept", 1) == 0
    assert (purse.spent, purse.remaining) == (D("0.6"), D("0.4"))
    assert [*entries(account)] == ["a"]
    account.close()
    assert account.put_and_reserve({"a": (D("0.4"), D(0))}, "kept", 1) == 0
    assert (purse.spent, purse.remaining) == (D("0.4"), D("0.6"))


def test_thousands_of_calls_are_written_at_once(open_purse):
    account = open_purse(100).child("run", 50)
    calls = {f"call {number}": (D("0.001"), D(0)) for number in range(2500)}
    for _ in range(2):
        account.put_and_reserve(calls, "kept", 5)
        assert account.spent == D("7.5")
