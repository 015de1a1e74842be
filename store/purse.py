"""One purse for many spenders: accounts drawn from one another, to any depth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal, Self, get_args

from costada.store.database import Database
from costada.store.read_limits import amount, record

COLUMNS = "id, parent, name, policy, budget, spent, committed, is_closed"
NOBODY = 0
"""Parent of an account that was drawn from no other."""


@dataclass(frozen=True, slots=True)
class Account:
    """One account as it stands; all amounts are exact dollars.

    `spent` is the sum of its calls and of the calls of all accounts below it, those whose bill is
    unknown at their upper bound. `committed` is what it cannot give away any more: its own calls,
    and what each account drawn from it holds.
    """

    id: int
    parent: int
    name: str
    policy: str
    budget: Decimal
    spent: Decimal
    committed: Decimal
    is_closed: bool

    @property
    def remaining(self) -> Decimal:
        """The dollars it may still spend or lend, below 0 after an overshoot.

        A closed account has nothing left: it gave that back.
        """
        return Decimal(0) if self.is_closed else self.budget - self.committed

    @property
    def held(self) -> Decimal:
        """The dollars that the account above cannot give to anybody else."""
        return self.spent if self.is_closed else max(self.budget, self.spent)


@dataclass(frozen=True, slots=True)
class Entry:
    """One call that an account paid for, or is about to.

    Attributes:
        account: Names of the accounts on the way to the one that paid, joined by slashes.
        key: What the call is known by in that account.
        cost: Dollars billed.
        bound: The most that it may have cost beyond `cost`, 0 where the bill is known.
        facts: What else was said of the call.
    """

    account: str
    key: str
    cost: Decimal
    bound: Decimal
    facts: Mapping[str, object]


class AccountTable:
    """Accounts by number; what an account holds is kept up to date in all those above it."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.transaction = database.transaction

    def get(self, number: int) -> Account:
        """An account."""
        found = self._db.rows(
            f"SELECT {COLUMNS} FROM costada_account WHERE id = ?",  # noqa: S608
            (number,),
        )
        return _account(found[0])

    def find(self, parent: int, name: str) -> Account | None:
        """The account of a name below another, `None` if there is none."""
        found = self._db.rows(
            f"SELECT {COLUMNS} FROM costada_account WHERE parent = ? AND name = ?",  # noqa: S608
            (parent, name),
        )
        return _account(found[0]) if found else None

    def below(self, parent: int) -> list[Account]:
        """The accounts drawn from one, oldest first."""
        found = self._db.rows(
            f"SELECT {COLUMNS} FROM costada_account WHERE parent = ? ORDER BY id",  # noqa: S608
            (parent,),
        )
        return [_account(row) for row in found]

    def add(self, parent: int, name: str, policy: str, budget: Decimal) -> Account:
        """A new account, whose whole budget the one above holds for it from now on."""
        with self.transaction():
            self._db.write(
                "INSERT INTO costada_account"
                " (parent, name, policy, budget, spent, committed, is_closed)"
                " VALUES (?, ?, ?, ?, '0', '0', 0)",
                (parent, name, policy, f"{budget:f}"),
            )
            self._book(parent, Decimal(0), budget)
            ((number,),) = self._db.rows("SELECT last_insert_rowid()")
        return self.get(int(number))

    def change(self, account: Account, *, budget: Decimal, is_closed: bool) -> None:
        """Give an account another budget, open or close it; those above hold what it then holds."""
        changed = replace(account, budget=budget, is_closed=is_closed)
        with self.transaction():
            self._write(changed)
            self._book(account.parent, Decimal(0), changed.held - account.held)

    def entry(self, number: int, key: str) -> Entry | None:
        """What an account holds under a key, `None` if nothing; `account` is left empty."""
        found = self._db.rows(
            "SELECT key, cost, bound, facts FROM costada_entry WHERE account = ? AND key = ?",
            (number, key),
        )
        return _entry("", found[0]) if found else None

    def put(self, number: int, entry: Entry) -> None:
        """Write a call down in place of what stands under its key."""
        before = self.entry(number, entry.key)
        known = before.cost + before.bound if before else Decimal(0)
        added = entry.cost + entry.bound - known
        self._db.write(
            "INSERT OR REPLACE INTO costada_entry VALUES (?, ?, ?, ?, ?)",
            (number, entry.key, f"{entry.cost:f}", f"{entry.bound:f}", json.dumps(entry.facts)),
        )
        self._book(number, added, added)

    def entries(self, account: Account, path: str) -> list[Entry]:
        """The calls of an account in the order in which they were last written."""
        found = self._db.rows(
            "SELECT key, cost, bound, facts FROM costada_entry WHERE account = ? ORDER BY rowid",
            (account.id,),
        )
        return [_entry(path, row) for row in found]

    def _book(self, number: int, spent: Decimal, committed: Decimal) -> None:
        """Add dollars to an account, and to those above what it holds and spent beyond before."""
        while number != NOBODY and (spent or committed):
            before = self.get(number)
            after = replace(
                before, spent=before.spent + spent, committed=before.committed + committed
            )
            self._write(after)
            number, committed = before.parent, after.held - before.held

    def _write(self, account: Account) -> None:
        money = [f"{each:f}" for each in (account.budget, account.spent, account.committed)]
        self._db.write(
            "UPDATE costada_account SET budget = ?, spent = ?, committed = ?, is_closed = ?"
            " WHERE id = ?",
            (*money, account.is_closed, account.id),
        )


def _account(stored: Sequence[Any]) -> Account:
    number, parent, name, policy, budget, spent, committed, is_closed = stored
    money = amount(budget), amount(spent), amount(committed)
    return Account(number, parent, name, policy, *money, bool(is_closed))


def _entry(path: str, stored: Sequence[Any]) -> Entry:
    key, cost, bound, facts = stored
    return Entry(path, key, amount(cost), amount(bound), record(facts))


class OverBudget(ValueError):
    """What was asked for is more than an account has left; nothing was written."""


def wanted_budget(found: Account | None, wanted: Decimal | None, above: Account) -> Decimal:
    """The budget that a child should have: never less than it has."""
    if found is None:
        return above.remaining if wanted is None else wanted
    return found.budget if wanted is None else max(found.budget, wanted)


def granted_budget(found: Account | None, target: Decimal, above: Account) -> Decimal:
    """The budget that a child gets, the target or as much of it as can be drawn."""
    held, spent = (found.held, found.spent) if found else (Decimal(0), Decimal(0))
    needed, left = max(target, spent) - held, above.remaining
    is_hard = above.policy == "hard"
    if found and needed <= 0:
        return target
    if found and not found.is_closed and not is_hard and left <= 0:
        return found.budget
    check_fits(needed if is_hard else Decimal(0), above, f"budget: got {target:f}")
    return target if needed <= left else held + left


def check_fits(least: Decimal, account: Account, what: str) -> None:
    """Raise `OverBudget` where less is left than is needed, or nothing at all."""
    left = account.remaining
    if least > left or left <= 0:
        raise OverBudget(
            f"{what}, but {account.name!r} has ${max(left, Decimal(0)):f} left of"
            f" ${account.budget:f}"
        )


__all__ = ["Account", "Entry", "OverBudget", "Purse"]

Policy = Literal["crossing", "hard"]
Fact = str | int | float | bool | None


class Purse:
    """An account of dollars, and the accounts drawn from it.

    With a path it is kept in an SQLite file, which survives the death of a process and may be open
    in several at once; without one it is in memory. It may be used from any thread. All amounts
    that come back are exact dollars.

    A child's budget is taken from what its parent has left, and what it did not spend comes back
    when it is closed. Under the policy `"hard"` nothing begins that does not fit at its worst, so
    no account spends more than its budget, whoever spends at the same time. Under `"crossing"`
    something begins as long as anything is left, and what crosses the budget completes.
    """

    def __init__(
        self,
        budget: float | Decimal,
        *,
        policy: Policy = "crossing",
        path: str | Path | None = None,
        name: str = "purse",
    ) -> None:
        """Open a purse; one of the same name in the same file is gone on with.

        Args:
            budget: Dollars; more than it was raises it.
            policy: Whether the call that crosses the budget completes, or does not begin.
            path: An SQLite file, best one of its own; in memory without one.
            name: Tells several purses of one file apart.

        Raises:
            ValueError: An argument is not what it should be, the budget is lower than the purse
                had, its policy another one, or the file is damaged or no file of CostAda's.
            OSError: The file cannot be opened or written.
        """
        dollars = _dollars("budget", budget, is_budget=True)
        if policy not in get_args(Policy):
            raise ValueError(f"policy: got {policy!r}, expected 'crossing' or 'hard'")
        self._db: Database | None = Database(Path(path) if path else None)
        self._table = AccountTable(self._db)
        with self._table.transaction():
            found = self._table.find(NOBODY, name)
            if found and found.policy != policy:
                raise ValueError(f"policy: got {policy!r}, expected {found.policy!r} as it was")
            self._number = (found or self._table.add(NOBODY, name, policy, dollars)).id
            self.raise_to(dollars)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """What the account is called below its parent."""
        return self._account().name

    @property
    def policy(self) -> str:
        """`"crossing"` or `"hard"`, the same for all accounts of a purse."""
        return self._account().policy

    @property
    def budget(self) -> Decimal:
        """The dollars that the account may spend."""
        return self._account().budget

    @property
    def spent(self) -> Decimal:
        """The dollars spent by the account and all below it.

        Calls that have not ended, or whose bill is unknown, count at the most they can cost.
        """
        return self._account().spent

    @property
    def remaining(self) -> Decimal:
        """The dollars that are free to be spent or drawn, below 0 after an overshoot.

        That is the budget without the account's own calls, without what an open child may spend
        (its budget, or what it spent if that is more), and without what a closed one spent.
        """
        return self._account().remaining

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left."""
        return self.remaining <= 0

    def child(self, name: str, budget: float | Decimal | None = None) -> "Purse":
        """An account that draws its budget from this one.

        The same name again is the same account, as it was; if it was closed it is opened with the
        budget it had, and a higher budget is drawn as a first one is.

        Args:
            name: Unique among the children of this account.
            budget: Dollars; all that is left when not given. Where less is left, a purse with the
                policy `"crossing"` lends what there is.

        Raises:
            OverBudget: Nothing is left, or, under `"hard"`, less than was asked for.
            ValueError: The name or the budget is not what it should be, or this account is closed.
        """
        wanted = None if budget is None else _dollars("budget", budget, is_budget=True)
        if not name:
            raise ValueError(f"name: got {name!r}, expected a name")
        with self._table.transaction():
            own = self._opened()
            found = self._table.find(own.id, name)
            target = wanted_budget(found, wanted, own)
            granted = granted_budget(found, target, own)
            if found is None:
                found = self._table.add(own.id, name, own.policy, granted)
            elif found.is_closed or granted != found.budget:
                self._table.change(found, budget=granted, is_closed=False)
        return self._with(found.id)

    def raise_to(self, budget: float | Decimal) -> None:
        """Give the account a higher budget, drawn from its parent; a closed one is opened again.

        Raises:
            OverBudget: The parent has less left, under either policy.
            ValueError: The budget is lower than before or no budget, or the parent is closed.
        """
        dollars = _dollars("budget", budget, is_budget=True)
        with self._table.transaction():
            own = self._account()
            if dollars < own.budget:
                raise ValueError(
                    f"budget: got {dollars:f}, expected at least {own.budget:f}, which {own.name!r}"
                    " has; it can be raised, not lowered"
                )
            if own.parent != NOBODY:
                above = self._with(own.parent)._opened()
                needed = max(dollars, own.spent) - own.held
                if needed > 0:
                    check_fits(needed, above, f"budget: got {dollars:f}")
            self._table.change(own, budget=dollars, is_closed=False)

    def begin(self, key: str, bound: float | Decimal, **facts: Fact) -> None:
        """Reserve the most that a call can cost, before it is sent.

        Args:
            key: What the call is known by in this account; every call has its own.
            bound: Dollars it costs at most.
            **facts: Anything else worth keeping about the call.

        Raises:
            OverBudget: Nothing is left, or, under `"hard"`, less than the bound. Nothing was
                reserved then.
            ValueError: The account is closed, the key is taken or the bound no amount of dollars.
        """
        dollars = _dollars("bound", bound)
        with self._table.transaction(is_durable=True):
            own = self._opened()
            if self._table.entry(own.id, key):
                raise ValueError(f"key: got {key!r}, which {own.name!r} holds; expected a new one")
            least = dollars if own.policy == "hard" else Decimal(0)
            check_fits(least, own, f"a call of at most ${dollars:f}")
            self._table.put(own.id, Entry("", key, Decimal(0), dollars, facts))

    def put(
        self, key: str, *, cost: float | Decimal, bound: float | Decimal = Decimal(0), **facts: Fact
    ) -> None:
        """Write down what a call cost, in place of what stands under its key.

        Writing the same again changes nothing. It is written whatever is left and also when the
        account is closed: the money is gone.

        Args:
            key: What the call is known by in this account.
            cost: Dollars billed.
            bound: The most that it may have cost beyond that, counted as spent.
            **facts: Anything else worth keeping about the call.

        Raises:
            ValueError: A number is no amount of dollars.
        """
        entry = Entry("", key, _dollars("cost", cost), _dollars("bound", bound), facts)
        with self._table.transaction(is_durable=True):
            self._table.put(self._number, entry)

    def close(self) -> None:
        """Give back what the account and those below it did not spend; a purse closes its file.

        Calls that have not ended keep their bound until they are put. Closing twice does nothing.
        """
        if self._db is not None:
            self._db.close()
            return
        with self._table.transaction():
            for below in reversed(self.accounts()):
                if not below.is_closed:
                    now = self._table.get(below.id)
                    self._table.change(now, budget=now.budget, is_closed=True)

    def close_child(self, name: str) -> None:
        """Close the child of a name as it would itself; nothing if there is none."""
        found = self._table.find(self._number, name)
        if found:
            self._with(found.id).close()

    def calls(self) -> list[Entry]:
        """The calls of the account and of all below it, account by account."""
        return [
            entry for account, path in self._tree() for entry in self._table.entries(account, path)
        ]

    def accounts(self) -> list[Account]:
        """The account and all below it as they stand, each before its children."""
        return [account for account, _ in self._tree()]

    def _tree(self) -> list[tuple[Account, str]]:
        """The accounts with their names from here on, each before its children."""
        with self._table.transaction():
            own = self._account()
            found, pending = [], [(own, own.name)]
            while pending:
                account, path = pending.pop()
                found.append((account, path))
                below = [(each, f"{path}/{each.name}") for each in self._table.below(account.id)]
                pending += reversed(below)
        return found

    def _account(self) -> Account:
        return self._table.get(self._number)

    def _opened(self) -> Account:
        account = self._account()
        if account.is_closed:
            raise ValueError(f"account {account.name!r} is closed; draw it from its parent again")
        return account

    def _with(self, number: int) -> "Purse":
        """Another account of the purse; the file is the purse's to close."""
        other = object.__new__(Purse)
        other._db, other._table, other._number = None, self._table, number
        return other


def _dollars(name: str, amount: float | Decimal, *, is_budget: bool = False) -> Decimal:
    try:
        dollars = Decimal(str(amount))
    except InvalidOperation:
        dollars = Decimal("NaN")
    if isinstance(amount, bool) or not dollars.is_finite() or dollars < 0:
        raise ValueError(f"{name}: got {amount!r}, expected finite dollars of at least 0")
    if is_budget and dollars == 0:
        raise ValueError(f"{name}: got {amount!r}, expected finite dollars above 0")
    return dollars
