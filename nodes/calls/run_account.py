"""The account of a run in the purse from which it draws its budget."""

import re
from threading import Lock

from costada.nodes.context import PerRun, RunContext
from costada.store.purse import OverBudget, Purse
from costada.store.run_store import RunStore
from costada.values.numbering import TicketNumber
from costada.values.usage import exactly

ENTRY = re.compile(r"ticket (?P<ticket>[0-9]+)")
"""The name of a step's entry."""

REPORTS = PerRun(Lock)
"""One at a time of a run's steps reports its cost."""


def open_account(run_id: str, context: RunContext) -> Purse | None:
    """Open the account of a run, or draw its budget again; `None` without a purse.

    Raises:
        ValueError: The purse has nothing left, or under a hard budget less than the graph's.
    """
    return context.purse and context.purse.child(run_id, context.budget)


def draw_budget(run_id: str, context: RunContext) -> float | None:
    """The budget that a run has drawn from its purse, `None` without one.

    Raises as `open_account` does.
    """
    account = open_account(run_id, context)
    return float(account.budget) if account else None


def entry_of(ticket: TicketNumber) -> str:
    """The name of a step's entry in the account of a run."""
    return f"ticket {ticket}"


def reported_tickets(account: Purse) -> set[TicketNumber]:
    """The tickets that have an entry in the account of a run."""
    found = (ENTRY.fullmatch(each.key) for each in account.calls())
    return {TicketNumber(int(each["ticket"])) for each in found if each}


def report_cost(
    account: Purse | None, run_id: str, ticket: TicketNumber, context: RunContext
) -> None:
    """Write what a step has cost so far into the run's account, replacing earlier reports."""
    if account is None:
        return
    # Held while the sum is read and written: an earlier sum must not replace a later one.
    with REPORTS.of(context.store, run_id):
        put_cost(account, context.store, run_id, ticket, counts_lost=context.counts_lost)


@exactly
def put_cost(
    account: Purse, store: RunStore, run_id: str, ticket: TicketNumber, *, counts_lost: bool
) -> None:
    """Make the entry of a step what its calls have cost so far; bounds count with `counts_lost`."""
    cost = store.ledger.step_cost(run_id, ticket, counts_lost=False)
    worst = store.ledger.step_cost(run_id, ticket, counts_lost=True)
    account.put(entry_of(ticket), cost=cost, bound=worst - cost if counts_lost else 0)


def extend_account(run_id: str, budget: float, context: RunContext) -> str:
    """Give a run a higher budget; returns why its purse refuses it, if it does."""
    try:
        account = open_account(run_id, context)
        if account:
            account.raise_to(budget)
    except OverBudget as error:
        return str(error)
    return ""


def close_account(run_id: str, context: RunContext) -> None:
    """Return to the purse what a run that is over did not spend."""
    if context.purse:
        context.purse.close_child(run_id)
