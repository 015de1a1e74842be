"""Node: charge every call of the step to the ledger."""

from costada.controller.ledger import remaining
from costada.graph.state import SearchState
from costada.nodes.context import RunContext, budget_of


def charge_ledger(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the step cost (c_t) and the account after it (C_t, B - C_t, Sec. 3.1)."""
    charge = context.store.ledger.charge(
        state["run_id"],
        state["iteration"],
        counts_lost=context.settings.lost_calls == "count",
    )
    spent = float(charge.spent)
    return SearchState(
        spent=spent,
        remaining=max(0.0, remaining(budget_of(state, context), spent)),
        step={**state["step"], "cost": float(charge.cost), "guide_calls": charge.guide_calls},
    )
