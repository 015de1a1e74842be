"""A run of the command line that draws its budget from a shared purse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Self

from costada.runs.folder import RunFolder
from costada.runs.resume import lost_steps
from costada.runs.stored_run import StoredRun
from costada.store.accounts import OverBudget
from costada.store.address import (
    check_database,
    check_path,
    is_database,
    is_there,
    shown_address,
    split_address,
)
from costada.store.purse import Policy, Purse
from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from costada.runs.plan import Plan

EXPECTED = "FILE#NAME or postgresql://USER@HOST/DATABASE#NAME"
NANODOLLAR = Decimal("1e-9")


@dataclass(frozen=True, slots=True)
class PurseAddress:
    """A purse by its name in a file or a Postgres database."""

    place: str  # file, or address of a database
    name: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse an address; raises `ValueError` if it is malformed."""
        place, _, name = text.rpartition("#")
        if is_database(text):
            place, name = split_address(text, "address")
            check_database(place, "address")
        else:
            check_path(text, "address")
        if not place or not name:
            raise ValueError(f"got an address without a name, expected {EXPECTED}")
        return cls(place, name)

    def __str__(self) -> str:
        return f"{self.place}#{self.name}"

    @property
    def shown(self) -> str:
        """The address without its password, as messages show it."""
        return f"{shown_address(self.place) if self.dsn else self.place}#{self.name}"

    @property
    def dsn(self) -> str | None:
        """The database, `None` for a file."""
        return self.place if is_database(self.place) else None

    @property
    def path(self) -> Path | None:
        """The file, `None` for a database."""
        return None if self.dsn else Path(self.place)

    def create(self, total: float, policy: Policy) -> Purse:
        """Create the purse with these dollars, or reopen it; raises as `Purse` does."""
        return Purse(total, name=self.name, policy=policy, path=self.path, dsn=self.dsn)

    def open(self) -> Purse:
        """Open the existing purse; raises as `Purse.existing` does."""
        return Purse.existing(self.name, path=self.path, dsn=self.dsn)


def account_name(folder: RunFolder) -> str:
    """What a purse calls the account of a run, the first of this name."""
    return folder.address.run if isinstance(folder, StoredRun) else str(folder.path.resolve())


FURTHER_ACCOUNT = re.compile(r" \(\d+\)$")
"""Ends the name of a further account of runs that share a name, such as ` (2)`."""


@contextmanager
def paid_from(address: PurseAddress | None, plan: Plan, folder: RunFolder) -> Iterator[Plan]:
    """The plan of a run with the budget that a purse grants: what it asks for, or what is left.

    After the block, unspent money of a run that has ended or failed returns to the purse. An
    interrupted run keeps it, so that it can be resumed.

    Raises:
        OverBudget: Nothing is left, or less than `Plan.least_budget`.
        ValueError: There is no such purse.
        OSError: Its file or server cannot be used.
    """
    from costada.runs.runner import saved_state

    if address is None:
        yield plan
        return
    with address.open() as purse:
        account = _draw_account(purse, _own_account(purse, folder), plan)
        is_interrupted = False
        try:
            # Rounded down, as the nearest float may be more than the account can lend.
            granted = float(account.budget.quantize(NANODOLLAR, ROUND_FLOOR))
            # Another run of its name that had more may have failed before it began.
            yield replace(plan, purse=account, budget=min(granted, plan.budget))
            # Not reached if the run raises: a failed run returns its money, as a finished one does.
            state = saved_state(folder)
            is_interrupted = not (state and state.get("stop_reason"))
        finally:
            # Another process that works on the run has the same account.
            if not is_interrupted and not folder.is_running:
                account.close()


def settle_slices(purse: Purse, name: str, folder: RunFolder) -> None:
    """Settle what a process that died has left reserved for a run; the caller holds the run.

    What the run file has lost stays reserved until the run is resumed.

    Args:
        purse: Pays for the run.
        name: The account of the run in the purse.
        folder: The run.
    """
    # Here: the help of commands that take a purse would load the libraries of the graph.
    from costada.nodes.calls.run_account import has_slice, settle

    accounts = {each: purse.below(each) for each in purse.drawn_from(name)}
    for run_id, account in accounts.items():
        if account is None or not has_slice(account):
            continue
        counts_lost = folder.load().lost_calls == "count"
        with RunStore.at(folder.database, is_read_only=True) as store:
            is_whole = lost_steps(folder, store, counts_lost=counts_lost) is None
            if is_whole and run_id in store.run_ids():
                settle(account, store, run_id, counts_lost=counts_lost)


def return_money(address: PurseAddress, folder: StoredRun) -> None:
    """Return to a purse what a run did not spend that nobody resumes; raises as `hold` does."""
    with address.open() as purse, folder.hold_in_database():
        account = _own_account(purse, folder)
        settle_slices(purse, account, folder)
        purse.close_child(account)


def _own_account(purse: Purse, folder: RunFolder) -> str:
    """The first name of an account that no other run has drawn from.

    Runs of one name in several databases, and of one path on several machines, are different runs.
    Each draws an account named by its id.
    """
    name, number, run_id = account_name(folder), 1, ""
    if is_there(folder.database) and folder.claimed_at is not None:
        with RunStore.at(folder.database, is_read_only=True) as store:
            run_id = store.last_run()
    own = name
    while (drawn := purse.drawn_from(own)) and run_id not in drawn:
        number += 1
        own = f"{name} ({number})"
    return own


def _draw_account(purse: Purse, name: str, plan: Plan) -> Purse:
    """The account of a run with its budget; raises as `paid_from` does."""
    try:
        account = purse.child(name, plan.budget)
    except OverBudget:
        found, left = purse.found(name), purse.remaining
        if left <= 0:
            raise
        # A hard purse grants the whole amount or nothing.
        # A budget is that of the whole account, so what it holds already is part of it.
        account = purse.child(name, left + found.held if found else left)
    budget, least = account.budget, max(plan.least_budget, NANODOLLAR)
    if budget < least:
        account.close()
        raise OverBudget(
            f"--purse: {purse.name!r} has ${budget:f} left, expected at least ${least:f}"
        )
    return account
