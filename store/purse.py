"""One purse for many spenders: accounts drawn from one another, to any depth."""

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Literal, Self, get_args

from costada.store.accounts import NOBODY, Account, AccountTable, Entry
from costada.store.database import Database
from costada.store.lending import OverBudget, check_fits, granted_budget, wanted_budget

__all__ = ["Account", "Entry", "Ledger", "OverBudget"]

Policy = Literal["crossing", "hard"]
Fact = str | int | float | bool | None


class Ledger:
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
        name: str = "ledger",
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
        """Return what the account is called below its parent."""
        return self._account().name

    @property
    def policy(self) -> str:
        """Return `"crossing"` or `"hard"`, the same for all accounts of a purse."""
        return self._account().policy

    @property
    def budget(self) -> Decimal:
        """Return the dollars that the account may spend."""
        return self._account().budget

    @property
    def spent(self) -> Decimal:
        """Return the dollars spent by the account and all below it.

        Calls that have not ended, or whose bill is unknown, count at the most they can cost.
        """
        return self._account().spent

    @property
    def remaining(self) -> Decimal:
        """Return the dollars that are free to be spent or drawn, below 0 after an overshoot.

        That is the budget without the account's own calls, without what an open child may spend
        (its budget, or what it spent if that is more), and without what a closed one spent.
        """
        return self._account().remaining

    @property
    def is_exhausted(self) -> bool:
        """Return whether nothing is left."""
        return self.remaining <= 0

    def child(self, name: str, budget: float | Decimal | None = None) -> "Ledger":
        """Return an account that draws its budget from this one.

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
        """Return the calls of the account and of all below it, account by account."""
        return [
            entry for account, path in self._tree() for entry in self._table.entries(account, path)
        ]

    def accounts(self) -> list[Account]:
        """Return the account and all below it as they stand, each before its children."""
        return [account for account, _ in self._tree()]

    def _tree(self) -> list[tuple[Account, str]]:
        """Return the accounts with their names from here on, each before its children."""
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

    def _with(self, number: int) -> "Ledger":
        """Return another account of the purse; the file is the purse's to close."""
        other = object.__new__(Ledger)
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
