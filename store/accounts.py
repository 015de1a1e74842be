"""The accounts of a purse and the calls they paid for, each change one transaction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from costada.store.bounds import amount, record
from costada.store.database import Database

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
        """Return the dollars it may still spend or lend, below 0 after an overshoot.

        A closed account has nothing left: it gave that back.
        """
        return Decimal(0) if self.is_closed else self.budget - self.committed

    @property
    def held(self) -> Decimal:
        """Return the dollars that the account above cannot give to anybody else."""
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
        """Return an account."""
        found = self._db.rows(
            f"SELECT {COLUMNS} FROM costada_account WHERE id = ?",  # noqa: S608
            (number,),
        )
        return _account(found[0])

    def find(self, parent: int, name: str) -> Account | None:
        """Return the account of a name below another, `None` if there is none."""
        found = self._db.rows(
            f"SELECT {COLUMNS} FROM costada_account WHERE parent = ? AND name = ?",  # noqa: S608
            (parent, name),
        )
        return _account(found[0]) if found else None

    def below(self, parent: int) -> list[Account]:
        """Return the accounts drawn from one, oldest first."""
        found = self._db.rows(
            f"SELECT {COLUMNS} FROM costada_account WHERE parent = ? ORDER BY id",  # noqa: S608
            (parent,),
        )
        return [_account(row) for row in found]

    def add(self, parent: int, name: str, policy: str, budget: Decimal) -> Account:
        """Return a new account, whose whole budget the one above holds for it from now on."""
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
        """Return what an account holds under a key, `None` if nothing; `account` is left empty."""
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
        """Return the calls of an account in the order in which they were last written."""
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
