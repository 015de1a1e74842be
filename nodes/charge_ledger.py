"""Node: charge every call of the step to the ledger."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from costada.controller.credit import remaining
from costada.nodes.calls.run_account import open_account, report_cost
from costada.nodes.context import RunContext, SearchRuntime, budget_of
from costada.nodes.state import Flight, SearchState, has_current_step
from costada.store.run_store import RunStore
from costada.values.numbering import START, START_TICKET, Iteration, TicketNumber, next_iteration
from costada.values.roles import JUDGING, ROLES
from costada.values.usage import exactly


def _judged(by_role: Mapping[str, Decimal]) -> dict[str, float]:
    """The dollars of a step by role; none if its evaluation cost nothing."""
    known = {role: float(by_role[role]) for role in (*ROLES, *by_role) if role in by_role}
    return known if any(role in JUDGING for role in known) else {}


MIN_DOLLARS = 1e-9
"""Smaller differences are rounding errors of a state, which holds floats."""


def spent_by_ledger(state: SearchState, store: RunStore) -> float:
    """Dollars spent: a provider's bill may have returned some since the last charge."""
    iteration = next_iteration(state["controller"].iteration)
    return float(store.ledger.spent(state["run"].id, iteration))


def charged_with(
    ticket: TicketNumber, landed: Mapping[TicketNumber, Iteration], flight: Flight
) -> Iteration | None:
    """The iteration that was charged for a ticket, `None` before it is charged.

    Args:
        ticket: The ticket.
        landed: The iteration as which each ticket landed whose iteration has ended.
        flight: The tickets as of the last checkpoint.
    """
    if ticket == START_TICKET:
        return START
    last = max(landed.values(), default=START)
    if ticket in landed:
        return landed[ticket]
    if ticket == flight.guide_ticket:
        return next_iteration(last)  # alone, as the run stopped; otherwise it has no charge
    if ticket in flight.open_tickets or ticket > flight.last_ticket:
        return None
    return last  # a guide that landed as the run stopped, before the last step in flight


@exactly
def _in_doubt(state: SearchState, context: RunContext) -> tuple[float, float]:
    """Dollars in doubt of the iterations that have ended, and of a guide whose step is to come."""
    if not context.counts_lost:
        return 0.0, 0.0
    run_id, flight = state["run"].id, state["flight"]
    landed = context.store.iterations(run_id)
    ended = guide = Decimal(0)
    for ticket, dollars in context.store.ledger.in_doubt(run_id).items():
        if ticket == flight.guide_ticket != START_TICKET:
            guide += dollars
        elif charged_with(ticket, landed, flight) is not None:
            ended += dollars
    return float(ended), float(guide)


def settled_account(state: SearchState, context: RunContext) -> SearchState:
    """What a provider's bill has changed in the account since the last charge; often nothing."""
    account, spent = state["account"], spent_by_ledger(state, context.store)
    ended, guide = _in_doubt(state, context)
    changes = abs(spent - state["spent"]), abs(ended + guide - state.get("in_doubt", 0.0))
    if max(changes) < MIN_DOLLARS:
        return {}
    settled = SearchState(
        spent=spent,
        remaining=max(0.0, remaining(budget_of(state, context), spent)),
        in_doubt=ended + guide,
    )
    if state["flight"].guide_ticket:
        # It was charged alone, and is charged again with its step.
        settled["account"] = replace(account, doubtful=(account.doubtful[0], guide))
    return settled


def charge_ledger(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Charge the step's calls (c_t) and update the account (C_t, B - C_t, Sec. 3.1).

    If the run stops, no step follows a guide that has landed: it is charged with this step, or
    alone if there is none.
    """
    context = runtime.context
    run_id, step, account = state["run"].id, state["step"], state["account"]
    iteration = next_iteration(state["controller"].iteration)
    tickets = [ticket for ticket in (state["flight"].guide_ticket,) if ticket]
    if has_current_step(state):
        tickets.append(step.ticket)
    # The sum comes from the journal and is never added up here: a node that is executed again after
    # a crash charges the same.
    charge = context.store.ledger.charge(
        run_id, iteration, tickets, counts_lost=context.counts_lost
    )
    for ticket in tickets:
        report_cost(open_account(run_id, context), run_id, ticket, context)
    spent, in_doubt = float(charge.spent), float(charge.in_doubt)
    # An iteration may be charged twice: for a guide alone as the run stops, and with its step if
    # the run continues. What was in doubt then is part of what is in doubt now.
    last, dollars = account.doubtful
    before = state.get("in_doubt", 0.0) - (dollars if last == iteration else 0.0)
    has_changed = abs(float(charge.spent - charge.cost) - state["spent"]) >= MIN_DOLLARS
    if has_changed and last != iteration:
        before, _ = _in_doubt(state, context)  # a bill has settled requests of the killed run
    return {
        "spent": spent,
        "in_doubt": before + in_doubt,
        "remaining": max(0.0, remaining(budget_of(state, context), spent)),
        "account": replace(account, doubtful=(iteration, in_doubt)),
        "step": replace(
            step,
            cost=float(charge.cost),
            guide_calls=charge.guide_calls,
            dollars_by_role=_judged(charge.by_role),
        ),
    }
