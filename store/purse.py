"""A purse: dollars that several spenders share, as a tree of accounts."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import wraps
from pathlib import Path
from typing import Literal, ParamSpec, Self, TypeVar, get_args

from costada.store.accounts import EXACT, ZERO, Account, AccountRows, Entry
from costada.store.address import POSTGRES
from costada.store.database import Database
from costada.store.outage import LONGEST_PAUSE, RowsChanged

Found = TypeVar("Found")
Given = ParamSpec("Given")

Policy = Literal["crossing", "hard"]
Amounts = tuple[Decimal, Decimal]
"""Dollars billed, and the most that may have been billed beyond that."""

Fact = str | int | float | bool | None

MAX_DOLLARS, MIN_DOLLARS = Decimal("1e20"), Decimal("1e-30")
"""What an amount stays below, and the smallest difference of two amounts."""


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
        self._owns_file = True
        self._open(_purses(_place(path, dsn)), name, policy, dollars)

    @_again_where_rows_changed
    def _open(self, purses: AccountRows, name: str, policy: Policy, dollars: Decimal) -> None:
        """Find or create the account of the purse."""
        # One transaction: another process may open the same purse with another budget meanwhile.
        with purses.database.transaction():
            own = purses.child(name) or purses.add(name, policy, dollars)
            if own.policy != policy:
                raise ValueError(f"policy: got {policy!r}, expected {own.policy!r} as it was")
            self._rows = purses.at(own)
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
        purses = _purses(place)
        found = purses.child(name)
        if found is None:
            purses.database.close()
            raise ValueError(f"name: got {name!r}, expected the name of a purse there")
        purse = cls.__new__(cls)
        purse._rows, purse._owns_file = purses.at(found), True
        return purse

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Name of the account below its parent."""
        return self._rows.read().name

    @property
    def root(self) -> str:
        """Name of the purse that the account is drawn from, directly or not."""
        return self._rows.path()[0].name

    @property
    def policy(self) -> str:
        """`"crossing"` or `"hard"`, the same for all accounts of a purse."""
        return self._rows.read().policy

    @property
    def is_shared(self) -> bool:
        """Whether processes on other machines can have it open."""
        return self._rows.database.engine.is_shared

    @property
    def budget(self) -> Decimal:
        """Dollars that the account may spend."""
        return self._rows.read().budget

    @property
    def spent(self) -> Decimal:
        """Dollars spent by the account and all below it.

        Calls that have not ended, or whose bill is unknown, count at the most they can cost.
        """
        return self._rows.read().spent

    @property
    def remaining(self) -> Decimal:
        """Dollars that are free to be spent or drawn, below 0 after an overshoot.

        That is the budget without the account's own calls, without what an open child may spend
        (its budget, or what it spent if that is more), and without what a closed one spent.
        """
        return self._rows.read().remaining

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
        with self._rows.locked() as path:
            own = _opened(path)
            found = self._rows.child(name)
            granted = own.lent(found, wanted)
            if found is None:
                found = self._rows.add(name, own.policy, granted)
                self._rows.book(path, ZERO, granted)
            elif found.is_closed or granted != found.budget:
                self._rows.change([*path, found], budget=granted, is_closed=False)
        return self._with(found)

    @_again_where_rows_changed
    def raise_to(self, budget: float | Decimal) -> None:
        """Give the account a higher budget, drawn from its parent; a closed one is opened again.

        Raises:
            OverBudget: The parent has less left, under either policy.
            ValueError: The budget is invalid or lower than before, or the parent is closed.
        """
        dollars = _dollars("budget", budget, is_budget=True)
        with self._rows.locked() as path:
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
                self._rows.change(path, budget=dollars, is_closed=False)

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
        if self._rows.draw(entry, begins=True):
            return
        # Durable: were a reservation lost with the power, others could spend its dollars again
        # while the provider bills the request.
        with self._rows.locked(is_durable=True) as path:
            own = _opened(path)
            if self._rows.recorded([key]):
                raise ValueError(f"key: got {key!r}, which {own.name!r} holds; expected a new one")
            least = dollars if own.policy == "hard" else ZERO
            own.check_fits(least, f"a call of at most ${dollars:f}")
            self._rows.write([entry])
            self._rows.book(path, dollars, dollars)

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
        if self._rows.draw(entry, begins=False):
            return
        with self._rows.locked(is_durable=True) as path:
            added = entry.cost + entry.bound - sum(self._rows.recorded([key]).values(), ZERO)
            self._rows.write([entry])
            self._rows.book(path, added, added)

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
        with self._rows.locked(is_durable=True) as path:
            own, known = path[-1], self._rows.recorded([key, *calls])
            before = known.pop(key, None)
            added = sum((each.cost + each.bound for each in entries), -sum(known.values(), ZERO))
            left = own.remaining + (before or ZERO) - added
            granted = ZERO if own.is_closed else max(ZERO, min(wanted, left))
            if granted or before is not None:
                entries.append(Entry("", key, ZERO, granted, {}))
            self._rows.write(entries)
            added += granted - (before or ZERO)
            self._rows.book(path, added, added)
        return granted

    @_again_where_rows_changed
    def accept_loss(self) -> None:
        """Go on with what the database has, where it has lost writes of this process.

        Each use of the purse raises `LostWrites` before: calls that were made may be missing.
        """
        self._rows.database.engine.accept_loss()

    def close(self) -> None:
        """Give back what the account and those below it did not spend; a purse closes its file.

        Calls that have not ended keep their bound until they are put. Closing twice does nothing.
        """
        if self._owns_file:
            self._rows.database.close()
            return
        with self._rows.locked():
            # children first: what an account gives back depends on what those below it hold
            for below in reversed(self.accounts()):
                if not below.is_closed:
                    # Read again: closing those below it has changed what it holds.
                    path = self._rows.at(below).path()
                    self._rows.change(path, budget=path[-1].budget, is_closed=True)

    def found(self, name: str) -> Account | None:
        """The child of a name as it stands, `None` if there is none."""
        return self._rows.child(name)

    def below(self, name: str) -> "Purse | None":
        """The account of a name below this one, at any depth and as it stands, open or closed."""
        child = self._rows.child(name)
        found = child or next((each for each in self.accounts()[1:] if each.name == name), None)
        return self._with(found) if found else None

    def drawn_from(self, name: str) -> set[str]:
        """The names of the accounts drawn from the child of a name; none if there is no child."""
        found = self._rows.child(name)
        return {each.name for each in self._rows.at(found).children()} if found else set()

    def close_child(self, name: str) -> None:
        """Close the child of a name, if there is one."""
        found = self._rows.child(name)
        if found:
            self._with(found).close()

    def calls(self) -> list[Entry]:
        """The calls of the account and of all below it, account by account.

        Those of one account come in the order in which they were last written.
        """
        return self._rows.calls()

    def entry(self, key: str) -> Entry | None:
        """What the account itself has recorded under a key, `None` if nothing."""
        return self._rows.entry(key)

    def accounts(self) -> list[Account]:
        """The account and all below it as they stand, each before its children."""
        return [account for account, _ in self._rows.tree()]

    def _with(self, account: Account) -> "Purse":
        """Another account of the purse, which does not close the file."""
        other = object.__new__(Purse)
        other._rows, other._owns_file = self._rows.at(account), False
        return other


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


def _purses(place: Path | str | None) -> AccountRows:
    """The purses of a database, which waits for its server once it is open."""
    return AccountRows(Database(place, longest_pause=LONGEST_PAUSE))


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
