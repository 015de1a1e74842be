"""The accounts of purses and the calls that they pay for, as values and as rows of a database."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any

from costada.store.database import Database, any_of
from costada.store.rows import amount, record

ZERO = Decimal(0)

EXACT = Context(prec=100)
"""Context of all sums: the caller's own could round them."""

NO_PARENT = 0
"""Number of the parent of all purses, which has no row itself."""

ACCOUNTS = (
    "SELECT id, parent, name, policy, budget, spent, committed, is_closed FROM costada_account"
)
NAMED = f"{ACCOUNTS} WHERE parent = ? AND name = ?"

PATH = f"""
WITH RECURSIVE above (id, parent) AS (
    SELECT id, parent FROM costada_account WHERE id = ?
    UNION ALL SELECT up.id, up.parent FROM costada_account AS up JOIN above ON up.id = above.parent
)
{ACCOUNTS} WHERE id IN (SELECT id FROM above) ORDER BY id
"""  # noqa: S608
"""An account and those above it, the purse first: an account is younger than its parent."""

BELOW = """
WITH RECURSIVE below (id) AS (
    SELECT id FROM costada_account WHERE id = ?
    UNION ALL SELECT under.id FROM costada_account AS under JOIN below ON under.parent = below.id
)
"""
MAX_KEYS = 1000
"""Keys that one query asks for."""


class OverBudget(ValueError):
    """More was requested than an account has left; nothing was written."""


@dataclass(frozen=True, slots=True)
class Account:
    """A snapshot of one account; all amounts are exact dollars.

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
        """Dollars it may still spend or lend, below 0 after an overshoot; 0 once it is closed."""
        return ZERO if self.is_closed else EXACT.subtract(self.budget, self.committed)

    @property
    def held(self) -> Decimal:
        """Dollars that its parent cannot give to another account."""
        return self.spent if self.is_closed else max(self.budget, self.spent)

    def check_fits(self, least: Decimal, what: str) -> None:
        """Raise `OverBudget` where less is left than is needed, or nothing at all."""
        if least > self.remaining or self.remaining <= 0:
            left = max(self.remaining, ZERO)
            raise OverBudget(f"{what}, but {self.name!r} has ${left:f} left of ${self.budget:f}")

    def lent(self, child: "Account | None", wanted: Decimal | None) -> Decimal:
        """Budget that a child gets: what is wanted, or as much of it as can be drawn.

        An open child never gets less than it has. Raises `OverBudget` as `Purse.child` does.
        """
        held, spent = (child.held, child.spent) if child else (ZERO, ZERO)
        least = child.budget if child else ZERO
        target = max(least, wanted) if wanted is not None else least or self.remaining
        needed, left, is_hard = max(target, spent) - held, self.remaining, self.policy == "hard"
        # It holds that much already: an open child its budget, a closed one what it has spent.
        if child and needed <= 0:
            return target
        # A spender at work keeps its budget where a crossing purse has no more to lend.
        if child and not child.is_closed and not is_hard and left <= 0:
            return child.budget
        self.check_fits(needed if is_hard else ZERO, f"budget: got {target:f}")
        return target if needed <= left else held + left


@dataclass(frozen=True, slots=True)
class Entry:
    """One call that an account paid for, or has reserved dollars for.

    Attributes:
        account: Names of the accounts on the way to the one that paid, joined by slashes.
        key: Identifies the call in that account.
        cost: Dollars billed.
        bound: The most that it may have cost beyond `cost`, 0 where the bill is known.
        facts: Further facts about the call.
    """

    account: str
    key: str
    cost: Decimal
    bound: Decimal
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class AccountRows:
    """The row of an account, those of its calls, and those of the accounts above and below it.

    Without a number it is no account: those drawn from it are the purses of the database.
    """

    database: Database
    number: int = NO_PARENT
    name: str = ""

    def at(self, account: Account) -> "AccountRows":
        """Those of another account of the database."""
        return AccountRows(self.database, account.id, account.name)

    def read(self) -> Account:
        """The account as it stands; raises `ValueError` if it is not there."""
        for account in _accounts(self.database, f"{ACCOUNTS} WHERE id = ?", (self.number,)):
            return account
        raise self._lost()

    def path(self, *, locks: bool = False) -> list[Account]:
        """The account and those above it, the purse first; raises as `read` does."""
        path = _accounts(self.database, PATH, (self.number,), locks=locks)
        if not path:
            raise self._lost()
        return path

    @contextmanager
    def locked(self, *, is_durable: bool = False) -> Iterator[list[Account]]:
        """A transaction with exact sums; yields the path, locked until it ends.

        Every transaction locks the account of the purse first, so all of them follow one another
        and none can deadlock.
        """
        with self.database.transaction(is_durable=is_durable), localcontext(EXACT):
            yield self.path(locks=True)

    def tree(self) -> list[tuple[Account, str]]:
        """The account and all below it, each before its children; raises as `read` does.

        Each comes with the names on the way to it, joined by slashes.
        """
        found: dict[int, tuple[Account, ...]] = {}
        below = f"{BELOW} {ACCOUNTS} WHERE id IN (SELECT id FROM below) ORDER BY id"  # noqa: S608
        for each in _accounts(self.database, below, (self.number,)):
            found[each.id] = (*found.get(each.parent, ()), each)
        if not found:
            raise self._lost()
        in_order = sorted(found.values(), key=lambda path: [each.id for each in path])
        return [(path[-1], "/".join(each.name for each in path)) for path in in_order]

    def _lost(self) -> ValueError:
        """The error of an account that is not there; `accept_loss` does not bring it back."""
        where = f" in {self.database.place}" if self.database.place else ""
        return ValueError(
            f"account {self.name!r}: the purse{where} has lost it, as after a failover or a"
            " restore; draw it from its parent again"
        )

    def children(self) -> list[Account]:
        """The accounts drawn from it, oldest first."""
        drawn = f"{ACCOUNTS} WHERE parent = ? ORDER BY id"
        return _accounts(self.database, drawn, (self.number,))

    def child(self, name: str) -> Account | None:
        """The account of a name drawn from it, `None` if there is none."""
        return next(iter(_accounts(self.database, NAMED, (self.number, name))), None)

    def add(self, name: str, policy: str, budget: Decimal) -> Account:
        """A new account below it, or one of this name that another client has added since."""
        self.database.write(
            "INSERT INTO costada_account"
            " (parent, name, policy, budget, spent, committed, is_closed)"
            " VALUES (?, ?, ?, ?, '0', '0', 0) ON CONFLICT (parent, name) DO NOTHING",
            (self.number, name, policy, f"{budget:f}"),
        )
        # On a server the insertion waits for a client that adds the same name. This query sees its
        # row, as every statement of a read-committed transaction has a snapshot of its own.
        return _accounts(self.database, NAMED, (self.number, name))[0]

    def change(self, path: Sequence[Account], *, budget: Decimal, is_closed: bool) -> None:
        """Give the last account another budget, open or close it; the others hold what it holds."""
        *above, account = path
        changed = replace(account, budget=budget, is_closed=is_closed)
        self._write_account(changed)
        self.book(above, ZERO, changed.held - account.held)

    def book(self, path: Sequence[Account], spent: Decimal, committed: Decimal) -> None:
        """Add dollars to the last account, and to those above what it holds beyond before."""
        for before in reversed(path):
            if not (spent or committed):
                return  # within what this account holds anyway, so those above see no difference
            after = replace(
                before, spent=before.spent + spent, committed=before.committed + committed
            )
            self._write_account(after)
            committed = after.held - before.held

    def _write_account(self, account: Account) -> None:
        money = [f"{each:f}" for each in (account.budget, account.spent, account.committed)]
        self.database.write(
            "UPDATE costada_account SET budget = ?, spent = ?, committed = ?, is_closed = ?"
            " WHERE id = ?",
            (*money, int(account.is_closed), account.id),
        )

    def recorded(self, keys: Sequence[str]) -> dict[str, Decimal]:
        """Dollars that are recorded under each of these keys under which something is."""
        found: dict[str, Decimal] = {}
        for start in range(0, len(keys), MAX_KEYS):
            wanted = keys[start : start + MAX_KEYS]
            for key, *money in self.database.rows(
                "SELECT key, cost, bound FROM costada_entry WHERE account = ?"  # noqa: S608
                f" AND key IN {any_of(wanted)}",
                (self.number, *wanted),
            ):
                found[key] = sum(map(amount, money), ZERO)
        return found

    def calls(self) -> list[Entry]:
        """The calls of the account and of all below it, as in `Purse.calls`."""
        found: dict[int, list[Entry]] = {}
        for number, key, cost, bound, facts in self.database.rows(
            f"{BELOW} SELECT account, key, cost, bound, facts FROM costada_entry"  # noqa: S608
            " WHERE account IN (SELECT id FROM below) ORDER BY rowid",
            (self.number,),
        ):
            entry = Entry("", key, amount(cost), amount(bound), record(facts))
            found.setdefault(number, []).append(entry)
        return [
            replace(entry, account=path)
            for account, path in self.tree()
            for entry in found.get(account.id, ())
        ]

    def entry(self, key: str) -> Entry | None:
        """What the account itself has recorded under a key, `None` if nothing."""
        found = self.database.rows(
            "SELECT cost, bound, facts FROM costada_entry WHERE account = ? AND key = ?",
            (self.number, key),
        )
        for cost, bound, facts in found:
            return Entry(self.name, key, amount(cost), amount(bound), record(facts))
        return None

    def write(self, entries: Sequence[Entry]) -> None:
        """Write calls in place of what is recorded under their keys."""
        self.database.engine.put_entries([*map(self._row, entries)])

    def draw(self, entry: Entry, *, begins: bool) -> bool:
        """Write and book a call at once, where the engine can."""
        row = self._row(entry)
        try:
            return self.database.engine.draw(row, begins=begins)
        except ValueError:
            self.path()  # says so where the account is not there
            raise

    def _row(self, entry: Entry) -> tuple[int | str, ...]:
        """A call as the columns of its table."""
        for name, value in entry.facts.items():
            if not isinstance(value, str | int | float | None):
                raise ValueError(
                    f"{name}: got {value!r}, expected a string, a number, true, false or None"
                )
        money = f"{entry.cost:f}", f"{entry.bound:f}"
        return self.number, entry.key, *money, json.dumps(entry.facts)


def paying_purses(database: Database) -> list[Account]:
    """The purses in a database that have an account for a run by its name there, as they stand."""
    return _accounts(
        database,
        f"{ACCOUNTS} WHERE parent = ? AND id IN (SELECT parent FROM costada_account"  # noqa: S608
        " WHERE name IN (SELECT name FROM costada_named)) ORDER BY id",
        (NO_PARENT,),
    )


def purses_in(file: Path) -> list[Account]:
    """The purses in a file, as they stand; raises as `Purse.existing` does."""
    if not file.is_file():
        raise ValueError(f"path: got {str(file)!r}, expected the file of a purse")
    with closing(Database(file, is_read_only=True)) as database:
        return AccountRows(database).children()


def _accounts(
    database: Database, query: str, values: Sequence[object], *, locks: bool = False
) -> list[Account]:
    return [*map(_account, database.rows(query, values, locks=locks))]


def _account(row: Sequence[Any]) -> Account:
    number, parent, name, policy, *money, is_closed = row
    budget, spent, committed = map(amount, money)
    return Account(number, parent, name, policy, budget, spent, committed, bool(is_closed))
