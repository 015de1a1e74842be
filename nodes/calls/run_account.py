"""The account of a run in the purse from which it draws its budget."""

import re
from collections.abc import Callable, Collection
from decimal import Decimal
from threading import Lock

from costada.nodes.calls.purse_slice import NOTHING, SLICE, PurseSlice
from costada.nodes.context import PerRun, RunContext
from costada.store.accounts import OverBudget
from costada.store.purse import Amounts, Purse
from costada.store.run_store import RunStore
from costada.values.numbering import TicketNumber
from costada.values.usage import exactly

ENTRY = re.compile(r"ticket (?P<ticket>[0-9]+)")
"""The name of a step's entry."""


class KnownAccount:
    """What this process knows of the account of a run.

    Attributes:
        lock: Held while a sum is read and written: an earlier one must not replace a later one.
        is_executing: Whether an execution of the graph goes on, which settles the account as it
            ends. Only then is a slice of it reserved.
        is_settled: Whether this execution has settled what a process that died may have left.
        slice: What is reserved, `None` if every cost is written at once.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.is_executing = self.is_settled = False
        self.slice: PurseSlice | None = None


ACCOUNTS = PerRun(KnownAccount)


def begin_execution(run_id: str, context: RunContext) -> None:
    """Let a run reserve slices of its account until `settle_account` or `close_account`."""
    known = ACCOUNTS.of(context.store, run_id)
    with known.lock:
        known.is_executing, known.is_settled, known.slice = True, False, None


def open_account(run_id: str, context: RunContext) -> Purse | None:
    """Open the account of a run, or draw its budget again; `None` without a purse.

    With a slice the account is open, and the purse is not asked.

    Raises:
        ValueError: The purse has nothing left, or under a hard budget less than the graph's.
    """
    if context.purse is None:
        return None
    known = ACCOUNTS.of(context.store, run_id)
    with known.lock:
        if known.slice:
            return known.slice.account
        account = context.purse.child(run_id, context.budget)
        _begin_slice(known, account, run_id, context)
        return account


def _begin_slice(known: KnownAccount, account: Purse, run_id: str, context: RunContext) -> None:
    """Settle the account, once in an execution, and reserve a slice.

    A process that died may have left a slice, and the purse may have lost entries in a failover.
    """
    if not known.is_executing or known.is_settled:
        return
    dollars = Decimal(str(context.settings.purse_slice or 0))
    reserve, settled = settle(
        account, context.store, run_id, counts_lost=context.counts_lost, reserve=dollars
    )
    known.slice = PurseSlice(account, dollars, settled, reserve) if dollars else None
    known.is_settled = True


def draw_budget(run_id: str, context: RunContext) -> float | None:
    """The budget that a run has drawn from its purse, `None` without one.

    Raises as `open_account` does.
    """
    account = open_account(run_id, context)
    if account is None or context.purse is None:
        return None
    if context.settings.purse_slice and account.budget < Decimal(str(context.budget)):
        account = context.purse.child(run_id, context.budget)  # there may be more by now
    return float(account.budget)


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
    """Write what a step has cost so far into the run's account, replacing earlier reports.

    With a slice it is written when the slice is used up.
    """
    if account is None:
        return
    known, counts_lost = ACCOUNTS.of(context.store, run_id), context.counts_lost
    with known.lock:
        _begin_slice(known, account, run_id, context)
        if known.slice is None:
            put_cost(account, context.store, run_id, ticket, counts_lost=counts_lost)
            return
        try:
            amounts = _amounts(context.store, run_id, ticket, counts_lost=counts_lost)
            known.slice.report(entry_of(ticket), amounts)
        except BaseException:  # raised again: the next report looks what the purse has
            known.is_settled, known.slice = False, None
            raise


def put_cost(
    account: Purse, store: RunStore, run_id: str, ticket: TicketNumber, *, counts_lost: bool
) -> None:
    """Make the entry of a step what its calls have cost so far; bounds count with `counts_lost`."""
    cost, bound = _amounts(store, run_id, ticket, counts_lost=counts_lost)
    account.put(entry_of(ticket), cost=cost, bound=bound)


@exactly
def _amounts(store: RunStore, run_id: str, ticket: TicketNumber, *, counts_lost: bool) -> Amounts:
    cost = store.ledger.step_cost(run_id, ticket, counts_lost=False)
    worst = store.ledger.step_cost(run_id, ticket, counts_lost=counts_lost)
    return cost, worst - cost


def has_slice(account: Purse) -> bool:
    """Whether dollars of the account are reserved for steps that are not settled."""
    entry = account.entry(SLICE)
    return entry is not None and entry.bound > 0


def settle(
    account: Purse,
    store: RunStore,
    run_id: str,
    *,
    counts_lost: bool,
    reserve: Decimal = NOTHING[0],
    lost: Collection[TicketNumber] = (),
) -> tuple[Decimal, dict[str, Amounts]]:
    """Make the entries of all steps what their calls have cost, and the slice what is to be left.

    An entry of a step stays that the call log does not know: the run file has lost it. Those of
    `lost` steps become 0, as another step is charged for them.

    Returns:
        What is reserved now, at most `reserve`, and the entries.
    """
    present = {each.key: (each.cost, each.bound) for each in account.calls()}
    recorded = {key: amounts for key, amounts in present.items() if ENTRY.fullmatch(key)}
    costs = {
        entry_of(ticket): (cost, bound if counts_lost else NOTHING[1])
        for ticket, (cost, bound) in store.ledger.step_costs(run_id).items()
    }
    entries = {**recorded, **{entry_of(each): NOTHING for each in lost}, **costs}
    changed = {
        key: amounts for key, amounts in entries.items() if amounts != recorded.get(key, NOTHING)
    }
    if not changed and not reserve and present.get(SLICE, NOTHING) == NOTHING:
        return NOTHING[0], entries
    return account.put_and_reserve(changed, SLICE, reserve), entries


def extend_account(run_id: str, budget: float, context: RunContext) -> str:
    """Give a run a higher budget; returns why its purse refuses it, if it does."""
    try:
        account = open_account(run_id, context)
        if account:
            account.raise_to(budget)
    except OverBudget as error:
        return str(error)
    return ""


def settle_account(
    run_id: str, context: RunContext, may_write: Callable[[], bool] = lambda: True
) -> None:
    """Make the account of a run exact as its execution ends; later costs are written at once.

    Where `may_write` says no, the slice counts until another execution settles it.
    """
    known = ACCOUNTS.of(context.store, run_id)
    with known.lock:
        last, known.slice, known.is_executing = known.slice, None, False
        if last and may_write():
            settle(last.account, context.store, run_id, counts_lost=context.counts_lost)


def close_account(run_id: str, context: RunContext) -> None:
    """Return to the purse what a run that is over did not spend."""
    if context.purse is None:
        return
    settle_account(run_id, context)
    if account := context.purse.below(run_id):
        if has_slice(account):  # of a process that died
            with ACCOUNTS.of(context.store, run_id).lock:
                settle(account, context.store, run_id, counts_lost=context.counts_lost)
        account.close()
