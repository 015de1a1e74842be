"""A run of the command line that draws its budget from a purse that others draw from as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from costada.runs.folder import RunFolder
from costada.runs.plan import Plan
from costada.runs.stored_run import StoredRun
from costada.store.address import check_database, is_database
from costada.store.purse import OverBudget, Policy, Purse

EXPECTED = "FILE#NAME or postgresql://USER@HOST/DATABASE#NAME"


@dataclass(frozen=True, slots=True)
class PurseAddress:
    """A purse by its name in a file or a Postgres database."""

    place: str  # file, or address without a password
    name: str

    @classmethod
    def read(cls, text: str) -> Self:
        """The address that a user wrote; raises `ValueError` if it is malformed."""
        place, _, name = text.rpartition("#")
        if not place or not name:
            raise ValueError(f"--purse: got an address without a name, expected {EXPECTED}")
        if is_database(place):
            check_database(place)
        return cls(place, name)

    def __str__(self) -> str:
        return f"{self.place}#{self.name}"

    @property
    def dsn(self) -> str | None:
        """The database, `None` for a file."""
        return self.place if is_database(self.place) else None

    @property
    def path(self) -> Path | None:
        """The file, `None` for a database."""
        return None if self.dsn else Path(self.place)

    def begun(self, total: float, policy: Policy) -> Purse:
        """The purse with these dollars, new or as it is; raises as `Purse` does."""
        return Purse(total, name=self.name, policy=policy, path=self.path, dsn=self.dsn)

    def opened(self) -> Purse:
        """The purse, which exists; raises as `Purse.existing` does."""
        return Purse.existing(self.name, path=self.path, dsn=self.dsn)


def account_name(folder: RunFolder) -> str:
    """What a purse calls the account of a run."""
    return folder.address.run if isinstance(folder, StoredRun) else str(folder.path.absolute())


@contextmanager
def paid_from(address: PurseAddress | None, plan: Plan, folder: RunFolder) -> Iterator[Plan]:
    """The plan of a run with the budget that a purse gives it: what it asks for or what is left.

    After the block, unspent money returns to the purse, unless the run was interrupted.

    Raises:
        OverBudget: Nothing is left.
        ValueError: There is no such purse.
        OSError: Its file or server cannot be used.
    """
    if address is None:
        yield plan
        return
    with address.opened() as purse:
        name = account_name(folder)
        try:
            account = purse.child(name, plan.budget)
        except OverBudget:
            account = purse.child(name)
        yield replace(plan, purse=account, budget=float(account.budget))
        if _has_ended(account):
            account.close()


def _has_ended(account: Purse) -> bool:
    """Whether the run has returned its own account, as it does at its end."""
    return all(below.is_closed for below in account.accounts()[1:])
