"""The account of a run in a purse, under the run's id; without a purse nothing happens here."""

import re
from threading import Lock

from costada.nodes.context import RunContext
from costada.nodes.per_run import PerRun
from costada.store.purse import OverBudget, Purse
from costada.values.numbering import TicketNumber
from costada.values.usage import exactly

ENTRY = re.compile(r"ticket (?P<ticket>[0-9]+)")
"""The name of a step's entry."""

REPORTS = PerRun(Lock)
"""Held while a cost is read and reported."""


def open_account(run_id: str, context: RunContext) -> Purse | None:
    """Open the account of a run, or draw its budget again; `None` without a purse.

    Raises:
        ValueError: The purse has nothing left, or under a hard budget less than the graph's.
    """
    return context.purse and context.purse.child(run_id, context.budget)


def draw_budget(run_id: str, context: RunContext) -> float | None:
    """The budget that a run has from its purse by now, `None` without one.

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


@exactly
def report_cost(
    account: Purse | None, run_id: str, ticket: TicketNumber, context: RunContext
) -> None:
    """Write what a step has cost so far into the run's account, replacing earlier reports."""
    if account is None:
        return
    call_log = context.store.call_log
    is_counted = context.settings.lost_calls == "count"
    with REPORTS.of(context.store, run_id):  # an earlier sum must not replace a later one
        cost = call_log.step_cost(run_id, ticket, counts_lost=False)
        worst = call_log.step_cost(run_id, ticket, counts_lost=True)
        account.put(entry_of(ticket), cost=cost, bound=worst - cost if is_counted else 0)


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
