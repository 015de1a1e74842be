"""A purse: dollars that several spenders share, as a tree of accounts."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation, localcontext
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, TypeVar, get_args

from costada.store.address import POSTGRES
from costada.store.database import Database, any_of
from costada.store.outage import LONGEST_PAUSE, RowsChanged
from costada.store.rows import amount, record

__all__ = ["Account", "Entry", "OverBudget", "Purse"]

Found = TypeVar("Found")
Given = ParamSpec("Given")

Policy = Literal["crossing", "hard"]
Amounts = tuple[Decimal, Decimal]
"""Dollars billed, and the most that may have been billed beyond that."""

Fact = str | int | float | bool | None

COLUMNS = "id, parent, name, policy, budget, spent, committed, is_closed"
NO_PARENT = 0

PATH = f"""
WITH RECURSIVE above (id, parent) AS (
    SELECT id, parent FROM costada_account WHERE id = ?
    UNION ALL SELECT up.id, up.parent FROM costada_account AS up JOIN above ON up.id = above.parent
)
SELECT {COLUMNS} FROM costada_account WHERE id IN (SELECT id FROM above) ORDER BY id
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

ZERO = Decimal(0)

EXACT = Context(prec=100)
"""Context of all sums: the caller's own could round them."""

MAX_DOLLARS, MIN_DOLLARS = Decimal("1e20"), Decimal("1e-30")
"""What an amount stays below, and the smallest difference of two amounts."""


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


def _again_where_rows_changed(method: Callable[Given, Found]) -> Callable[Given, Found]:
    """A method that begins again where an outage of its database gave others time to write."""

    @wraps(method)
    def repeating(*given: Given.args, **named: Given.kwargs) -> Found:
        while True:
            with suppress(RowsChanged):
                return method(*given, **named)

    return repeating


class Purse:
    """An account of dollars, and the accounts drawn from it.

    With a path it is kept in an SQLite file, which survives the death of a process and may be open
    in several at once; with a dsn it is kept in Postgres, for processes on several machines;
    without either it is in memory. Once it is open, it waits for a server that is away: as long as
    the run that it pays for, or an hour. It may be used from any thread. All amounts that it
    returns are exact dollars; of an amount that it is given, digits beyond 30 decimal places are
    rounded up.

    A child's budget is taken from what its parent has left, and what it did not spend comes back
    when it is closed. Under the policy `"hard"` no call begins whose worst case does not fit, so
    no account spends more than its budget, however many spend at once. Under `"crossing"` a call
    begins as long as anything is left, and the one that crosses the budget completes.
    """

    def __init__(
        self,
        budget: float | Decimal,
        *,
        policy: Policy = "crossing",
        path: str | Path | None = None,
        dsn: str | None = None,
        name: str = "purse",
    ) -> None:
        """Open a purse. Reopens an existing purse of the same name in the same place.

        Args:
            budget: Dollars; more than it was raises it.
            policy: Whether the call that crosses the budget completes, or does not begin.
            path: An SQLite file, best one of its own.
            dsn: Address of a Postgres database, `postgresql://USER@HOST/DATABASE`; needs the extra
                `postgres`. Give a path, a dsn or neither.
            name: Tells several purses of one file or database apart.

        Raises:
            ValueError: An argument is invalid, the budget is lower than the purse had, its policy
                another one, or the file or database is damaged or not one of CostAda.
            OSError: The file cannot be opened or written, or the server cannot be reached.
        """
        dollars = _dollars("budget", budget, is_budget=True)
        if policy not in get_args(Policy):
            raise ValueError(f"policy: got {policy!r}, expected 'crossing' or 'hard'")
        _check_text("name", name)
        self._db, self._owns_file = _database(_place(path, dsn)), True
        self._open(name, policy, dollars)

    @_again_where_rows_changed
    def _open(self, name: str, policy: Policy, dollars: Decimal) -> None:
        """Find or create the account of the purse."""
        # One transaction: another process may open the same purse with another budget meanwhile.
        with self._writing():
            own = self._find(NO_PARENT, name) or self._add(NO_PARENT, name, policy, dollars)
            if own.policy != policy:
                raise ValueError(f"policy: got {policy!r}, expected {own.policy!r} as it was")
            self._number, self._known_name = own.id, name
            self.raise_to(dollars)

    @classmethod
    def existing(cls, name: str, *, path: str | Path | None = None, dsn: str | None = None) -> Self:
        """Open a purse as it is.

        Raises:
            ValueError: There is no purse of this name, or an argument is invalid.
            OSError: The file cannot be opened, or the server cannot be reached.
        """
        place = _place(path, dsn)
        # `Database` would create the file of a mistyped path.
        if not isinstance(place, str) and not (place and place.is_file()):
            raise ValueError(f"path: got {str(path)!r}, expected the file of a purse")
        purse = cls.__new__(cls)
        purse._db, purse._owns_file = _database(place), True
        found = purse._find(NO_PARENT, name)
        if found is None:
            purse.close()
            raise ValueError(f"name: got {name!r}, expected the name of a purse there")
        purse._number, purse._known_name = found.id, name
        return purse

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Name of the account below its parent."""
        return self._account().name

    @property
    def root(self) -> str:
        """Name of the purse that the account is drawn from, directly or not."""
        return self._path(self._number)[0].name

    @property
    def policy(self) -> str:
        """`"crossing"` or `"hard"`, the same for all accounts of a purse."""
        return self._account().policy

    @property
    def is_shared(self) -> bool:
        """Whether processes on other machines can have it open."""
        return self._db.engine.is_shared

    @property
    def budget(self) -> Decimal:
        """Dollars that the account may spend."""
        return self._account().budget

    @property
    def spent(self) -> Decimal:
        """Dollars spent by the account and all below it.

        Calls that have not ended, or whose bill is unknown, count at the most they can cost.
        """
        return self._account().spent

    @property
    def remaining(self) -> Decimal:
        """Dollars that are free to be spent or drawn, below 0 after an overshoot.

        That is the budget without the account's own calls, without what an open child may spend
        (its budget, or what it spent if that is more), and without what a closed one spent.
        """
        return self._account().remaining

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left."""
        return self.remaining <= 0

    @_again_where_rows_changed
    def child(self, name: str, budget: float | Decimal | None = None) -> "Purse":
        """An account that draws its budget from this one.

        The same name again is the same account. If it was closed it is opened with the budget it
        had; a higher budget is drawn like a first one.

        Args:
            name: Unique among the children of this account.
            budget: Dollars; all that is left when not given. Where less is left, a purse with the
                policy `"crossing"` lends what there is.

        Raises:
            OverBudget: Nothing is left, or, under `"hard"`, less than was asked for.
            ValueError: The name or the budget is invalid, or this account is closed.
        """
        wanted = None if budget is None else _dollars("budget", budget, is_budget=True)
        _check_text("name", name)
        with self._writing():
            path = self._locked()
            own = _opened(path)
            found = self._find(own.id, name)
            granted = own.lent(found, wanted)
            if found is None:
                found = self._add(own.id, name, own.policy, granted)
                self._book(path, ZERO, granted)
            elif found.is_closed or granted != found.budget:
                self._change([*path, found], budget=granted, is_closed=False)
        return self._with(found)

    @_again_where_rows_changed
    def raise_to(self, budget: float | Decimal) -> None:
        """Give the account a higher budget, drawn from its parent; a closed one is opened again.

        Raises:
            OverBudget: The parent has less left, under either policy.
            ValueError: The budget is invalid or lower than before, or the parent is closed.
        """
        dollars = _dollars("budget", budget, is_budget=True)
        with self._writing():
            path = self._locked()
            own = path[-1]
            if dollars < own.budget:
                raise ValueError(
                    f"budget: got {dollars:f}, expected at least {own.budget:f}, which {own.name!r}"
                    " has; it can be raised, not lowered"
                )
            if above := path[:-1]:
                lender = _opened(above)
                needed = max(dollars, own.spent) - own.held
                if needed > 0:
                    lender.check_fits(needed, f"budget: got {dollars:f}")
            if own.is_closed or dollars != own.budget:
                self._change(path, budget=dollars, is_closed=False)

    @_again_where_rows_changed
    def begin(self, key: str, bound: float | Decimal, **facts: Fact) -> None:
        """Reserve the most that a call can cost, before it is sent.

        Args:
            key: Identifies the call in this account; every call has its own.
            bound: Dollars it costs at most.
            **facts: Anything else worth keeping about the call.

        Raises:
            OverBudget: Nothing is left, or, under `"hard"`, less than the bound. Nothing was
                reserved then.
            ValueError: The account is closed, the key exists, the bound is not an amount, or a fact
                is not a plain value.
        """
        _check_text("key", key)
        dollars = _dollars("bound", bound)
        entry = Entry("", key, ZERO, dollars, facts)
        # Postgres does what follows in one round trip; where it cannot decide, nothing is written.
        if self._draw(entry, begins=True):
            return
        # Durable: were a reservation lost with the power, others could spend its dollars again
        # while the provider bills the request.
        with self._writing(is_durable=True):
            path = self._locked()
            own = _opened(path)
            if self._recorded(key) is not None:
                raise ValueError(f"key: got {key!r}, which {own.name!r} holds; expected a new one")
            least = dollars if own.policy == "hard" else ZERO
            own.check_fits(least, f"a call of at most ${dollars:f}")
            self._write_entry(entry)
            self._book(path, dollars, dollars)

    @_again_where_rows_changed
    def put(
        self, key: str, *, cost: float | Decimal, bound: float | Decimal = ZERO, **facts: Fact
    ) -> None:
        """Record what a call cost, in place of what is recorded under its key.

        Recording the same again changes nothing. It is recorded whatever is left and also when the
        account is closed: the money is gone.

        Args:
            key: Identifies the call in this account.
            cost: Dollars billed.
            bound: The most that it may have cost beyond that, counted as spent.
            **facts: Anything else worth keeping about the call.

        Raises:
            ValueError: A number is not an amount of dollars, or a fact is not a plain value.
        """
        _check_text("key", key)
        entry = Entry("", key, _dollars("cost", cost), _dollars("bound", bound), facts)
        if self._draw(entry, begins=False):
            return
        with self._writing(is_durable=True):
            path = self._locked()
            added = entry.cost + entry.bound - (self._recorded(key) or ZERO)
            self._write_entry(entry)
            self._book(path, added, added)

    @_again_where_rows_changed
    def put_and_reserve(
        self, calls: Mapping[str, Amounts], key: str, reserve: float | Decimal
    ) -> Decimal:
        """Record what several calls cost, and reserve dollars for further ones, all at once.

        The calls are recorded as by `put`. What was reserved under the key before is free again.

        Args:
            calls: The cost and the bound of each call by its key.
            key: Identifies the reservation in this account.
            reserve: Dollars to reserve, or as many of them as the account has left.

        Returns:
            What is reserved now.

        Raises:
            ValueError: A number is not an amount of dollars.
        """
        entries = [
            Entry("", each, _dollars("cost", cost), _dollars("bound", bound), {})
            for each, (cost, bound) in calls.items()
        ]
        wanted = _dollars("reserve", reserve)
        with self._writing(is_durable=True):
            path = self._locked()
            own, known = path[-1], self._recorded_of([key, *calls])
            before = known.pop(key, None)
            added = sum((each.cost + each.bound for each in entries), -sum(known.values(), ZERO))
            left = own.remaining + (before or ZERO) - added
            granted = ZERO if own.is_closed else max(ZERO, min(wanted, left))
            if granted or before is not None:
                entries.append(Entry("", key, ZERO, granted, {}))
            self._db.engine.put_entries([self._row(each) for each in entries])
            added += granted - (before or ZERO)
            self._book(path, added, added)
        return granted

    @_again_where_rows_changed
    def accept_loss(self) -> None:
        """Go on with what the database has, where it has lost writes of this process.

        Each use of the purse raises `LostWrites` before: calls that were made may be missing.
        """
        self._db.engine.accept_loss()

    def close(self) -> None:
        """Give back what the account and those below it did not spend; a purse closes its file.

        Calls that have not ended keep their bound until they are put. Closing twice does nothing.
        """
        if self._owns_file:
            self._db.close()
            return
        with self._writing():
            self._locked()
            # children first: what an account gives back depends on what those below it hold
            for below in reversed(self.accounts()):
                if not below.is_closed:
                    # Read again: closing those below it has changed what it holds.
                    path = self._path(below.id)
                    self._change(path, budget=path[-1].budget, is_closed=True)

    def found(self, name: str) -> Account | None:
        """The child of a name as it stands, `None` if there is none."""
        return self._find(self._number, name)

    def below(self, name: str) -> "Purse | None":
        """The account of a name below this one, at any depth and as it stands, open or closed."""
        child = self._find(self._number, name)
        found = child or next((each for each in self.accounts()[1:] if each.name == name), None)
        return self._with(found) if found else None

    def drawn_from(self, name: str) -> set[str]:
        """The names of the accounts drawn from the child of a name; none if there is no child."""
        found = self._find(self._number, name)
        below = "SELECT name FROM costada_account WHERE parent = ?"
        return {str(each) for (each,) in self._db.rows(below, (found.id,))} if found else set()

    def close_child(self, name: str) -> None:
        """Close the child of a name, if there is one."""
        found = self._find(self._number, name)
        if found:
            self._with(found).close()

    def calls(self) -> list[Entry]:
        """The calls of the account and of all below it, account by account.

        Those of one account come in the order in which they were last written.
        """
        found: dict[int, list[Entry]] = {}
        for number, key, cost, bound, facts in self._db.rows(
            f"{BELOW} SELECT account, key, cost, bound, facts FROM costada_entry"  # noqa: S608
            " WHERE account IN (SELECT id FROM below) ORDER BY rowid",
            (self._number,),
        ):
            entry = Entry("", key, amount(cost), amount(bound), record(facts))
            found.setdefault(number, []).append(entry)
        return [
            replace(entry, account=path)
            for account, path in self._tree()
            for entry in found.get(account.id, ())
        ]

    def entry(self, key: str) -> Entry | None:
        """What the account itself has recorded under a key, `None` if nothing."""
        found = self._db.rows(
            "SELECT cost, bound, facts FROM costada_entry WHERE account = ? AND key = ?",
            (self._number, key),
        )
        for cost, bound, facts in found:
            return Entry(self.name, key, amount(cost), amount(bound), record(facts))
        return None

    def accounts(self) -> list[Account]:
        """The account and all below it as they stand, each before its children."""
        return [account for account, _ in self._tree()]

    @contextmanager
    def _writing(self, *, is_durable: bool = False) -> Iterator[None]:
        """A transaction whose sums are exact."""
        with self._db.transaction(is_durable=is_durable), localcontext(EXACT):
            yield

    def _draw(self, entry: Entry, *, begins: bool) -> bool:
        """Write and book an entry at once, where the engine can."""
        row = self._row(entry)
        try:
            return self._db.engine.draw(row, begins=begins)
        except ValueError:
            self._path(self._number)  # says so where the account is not there
            raise

    def _tree(self) -> list[tuple[Account, str]]:
        """The accounts with their names from here on, each before its children."""
        below: dict[int, list[Account]] = {}
        for each in self._accounts(
            f"{BELOW} SELECT {COLUMNS} FROM costada_account"  # noqa: S608
            " WHERE id IN (SELECT id FROM below) ORDER BY id DESC",
            (self._number,),
        ):
            below.setdefault(each.parent if each.id != self._number else NO_PARENT, []).append(each)
        if not below:
            raise self._lost()
        found, (own,) = [], below[NO_PARENT]
        pending = [(own, own.name)]
        while pending:
            account, path = pending.pop()
            found.append((account, path))
            pending += [(each, f"{path}/{each.name}") for each in below.get(account.id, ())]
        return found

    def _with(self, account: Account) -> "Purse":
        """Another account of the purse, which does not close the file."""
        other = object.__new__(Purse)
        other._db, other._owns_file = self._db, False
        other._number, other._known_name = account.id, account.name
        return other

    def _account(self) -> Account:
        own = f"SELECT {COLUMNS} FROM costada_account WHERE id = ?"  # noqa: S608
        for account in self._accounts(own, (self._number,)):
            return account
        raise self._lost()

    def _lost(self) -> ValueError:
        """The error of an account that is not there; `accept_loss` does not bring it back."""
        where = f" in {self._db.place}" if self._db.place else ""
        return ValueError(
            f"account {self._known_name!r}: the purse{where} has lost it, as after a failover or a"
            " restore; draw it from its parent again"
        )

    def _locked(self) -> list[Account]:
        """The account and those above it, the purse first, locked until the transaction ends.

        Every transaction locks the account of the purse first, so all of them follow one another
        and none can deadlock.
        """
        return self._path(self._number, locks=True)

    def _path(self, number: int, *, locks: bool = False) -> list[Account]:
        path = self._accounts(PATH, (number,), locks=locks)
        if not path:
            raise self._lost()
        return path

    def _find(self, parent: int, name: str) -> Account | None:
        return next(iter(self._named(parent, name)), None)

    def _named(self, parent: int, name: str) -> list[Account]:
        named = f"SELECT {COLUMNS} FROM costada_account WHERE parent = ? AND name = ?"  # noqa: S608
        return self._accounts(named, (parent, name))

    def _accounts(
        self, query: str, values: Sequence[object], *, locks: bool = False
    ) -> list[Account]:
        return [*map(_account, self._db.rows(query, values, locks=locks))]

    def _add(self, parent: int, name: str, policy: str, budget: Decimal) -> Account:
        """A new account, or one of this name that another client has added since."""
        self._db.write(
            "INSERT INTO costada_account"
            " (parent, name, policy, budget, spent, committed, is_closed)"
            " VALUES (?, ?, ?, ?, '0', '0', 0) ON CONFLICT (parent, name) DO NOTHING",
            (parent, name, policy, f"{budget:f}"),
        )
        # On a server the insertion waits for a client that adds the same name. This query sees its
        # row, as every statement of a read-committed transaction has a snapshot of its own.
        return self._named(parent, name)[0]

    def _change(self, path: Sequence[Account], *, budget: Decimal, is_closed: bool) -> None:
        """Give the last account another budget, open or close it; the others hold what it holds."""
        *above, account = path
        changed = replace(account, budget=budget, is_closed=is_closed)
        self._write_account(changed)
        self._book(above, ZERO, changed.held - account.held)

    def _book(self, path: Sequence[Account], spent: Decimal, committed: Decimal) -> None:
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
        self._db.write(
            "UPDATE costada_account SET budget = ?, spent = ?, committed = ?, is_closed = ?"
            " WHERE id = ?",
            (*money, int(account.is_closed), account.id),
        )

    def _recorded(self, key: str) -> Decimal | None:
        """Dollars that are recorded under a key, `None` if nothing is."""
        found = self._db.rows(
            "SELECT cost, bound FROM costada_entry WHERE account = ? AND key = ?",
            (self._number, key),
        )
        return sum(map(amount, found[0]), ZERO) if found else None

    def _recorded_of(self, keys: Sequence[str]) -> dict[str, Decimal]:
        """Dollars that are recorded under each of these keys under which something is."""
        found: dict[str, Decimal] = {}
        for start in range(0, len(keys), MAX_KEYS):
            wanted = keys[start : start + MAX_KEYS]
            for key, *money in self._db.rows(
                "SELECT key, cost, bound FROM costada_entry WHERE account = ?"  # noqa: S608
                f" AND key IN {any_of(wanted)}",
                (self._number, *wanted),
            ):
                found[key] = sum(map(amount, money), ZERO)
        return found

    def _write_entry(self, entry: Entry) -> None:
        """Write a call in place of what is recorded under its key."""
        self._db.put_row("costada_entry", self._row(entry))

    def _row(self, entry: Entry) -> tuple[int | str, ...]:
        """A call as the columns of its table."""
        for name, value in entry.facts.items():
            if not isinstance(value, str | int | float | None):
                raise ValueError(
                    f"{name}: got {value!r}, expected a string, a number, true, false or None"
                )
        money = f"{entry.cost:f}", f"{entry.bound:f}"
        return self._number, entry.key, *money, json.dumps(entry.facts)


def paying_purses(database: Database) -> list[Account]:
    """The purses in a database that have an account for a run by its name there, as they stand."""
    return [
        _account(row)
        for row in database.rows(
            f"SELECT {COLUMNS} FROM costada_account WHERE parent = ? AND id IN (SELECT parent"  # noqa: S608
            " FROM costada_account WHERE name IN (SELECT name FROM costada_named)) ORDER BY id",
            (NO_PARENT,),
        )
    ]


def purses_in(file: Path) -> list[Account]:
    """The purses in a file, as they stand; raises as `Purse.existing` does."""
    if not file.is_file():
        raise ValueError(f"path: got {str(file)!r}, expected the file of a purse")
    query = f"SELECT {COLUMNS} FROM costada_account WHERE parent = ? ORDER BY id"  # noqa: S608
    with closing(Database(file, is_read_only=True)) as database:
        return [*map(_account, database.rows(query, (NO_PARENT,)))]


def _account(row: Sequence[Any]) -> Account:
    number, parent, name, policy, *money, is_closed = row
    budget, spent, committed = map(amount, money)
    return Account(number, parent, name, policy, budget, spent, committed, bool(is_closed))


def _opened(path: Sequence[Account]) -> Account:
    """The last account; raises `ValueError` if it is closed."""
    account = path[-1]
    if account.is_closed:
        raise ValueError(f"account {account.name!r} is closed; draw it from its parent again")
    return account


def _place(path: str | Path | None, dsn: str | None) -> Path | str | None:
    """Where a purse is kept, as `Database` takes it.

    An address may hold a password, so messages never repeat one.

    Raises:
        ValueError: Both are given, or one of them names no such place.
    """
    if path is not None and dsn is not None:
        raise ValueError(f"dsn: got one with path {str(path)!r}, expected only one of the two")
    if path == "":
        raise ValueError("path: got an empty string, expected a file, or None for memory")
    if str(path).startswith(POSTGRES):
        raise ValueError("path: got the address of a Postgres database, expected a file or dsn=")
    if dsn is not None and (not isinstance(dsn, str) or not dsn):
        raise ValueError(
            f"dsn: got {'an empty string' if dsn == '' else f'a {type(dsn).__name__}'}, expected"
            " 'postgresql://USER@HOST/DATABASE'"
        )
    return Path(path) if path is not None else dsn


def _database(place: Path | str | None) -> Database:
    """The database of a purse, which waits for its server once it is open."""
    return Database(place, longest_pause=LONGEST_PAUSE)


def _check_text(field: str, text: object) -> None:
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"{field}: got {text!r}, expected a string of at least one character")


def _dollars(name: str, amount: float | Decimal, *, is_budget: bool = False) -> Decimal:
    try:
        dollars = Decimal(str(amount))
    except InvalidOperation:
        dollars = Decimal("NaN")
    if isinstance(amount, bool) or not dollars.is_finite() or dollars < 0:
        raise ValueError(f"{name}: got {amount!r}, expected finite dollars of at least 0")
    if is_budget and dollars == 0:
        raise ValueError(f"{name}: got {amount!r}, expected finite dollars above 0")
    if dollars >= MAX_DOLLARS:
        raise ValueError(f"{name}: got {amount!r}, expected less than {MAX_DOLLARS} dollars")
    exponent = dollars.as_tuple().exponent
    if isinstance(exponent, int) and exponent < MIN_DOLLARS.adjusted():
        # Up: a bound that was rounded down would let a call cost more than it reserved.
        dollars = dollars.quantize(MIN_DOLLARS, ROUND_CEILING, EXACT)
    return dollars or ZERO
