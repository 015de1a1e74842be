"""A run and the purse it draws from, under the run's id; without a purse none of this happens."""

from langchain_core.runnables import RunnableConfig

from costada.nodes.context import RunContext
from costada.nodes.state import SearchState
from costada.store.purse import OverBudget, Purse

PURSES = "__costada_purses"
"""Where a configuration keeps the purses of the runs that go on under it, by run id."""


def account_of(run_id: str, context: RunContext) -> Purse | None:
    """Return the account of a run, drawn or opened if need be, `None` without a purse.

    Raises:
        ValueError: The purse has nothing left, or under a hard budget less than the graph's.
    """
    return context.purse and context.purse.child(run_id, context.budget)


def drawn(run_id: str, context: RunContext) -> SearchState:
    """Return the budget that a run has from its purse by now; raises as `account_of` does."""
    account = account_of(run_id, context)
    return SearchState(granted_budget=float(account.budget)) if account else SearchState()


def report(account: Purse | None, run_id: str, iteration: int, context: RunContext) -> None:
    """Tell a run's account what an iteration has cost so far; telling it again changes nothing."""
    if account is None:
        return
    call_log = context.store.call_log
    cost = call_log.step_cost(run_id, iteration, counts_lost=False)
    worst = call_log.step_cost(run_id, iteration, counts_lost=True)
    is_counted = context.settings.lost_calls == "count"
    account.put(f"iteration {iteration}", cost=cost, bound=worst - cost if is_counted else 0)


def extend(run_id: str, budget: float, context: RunContext) -> str:
    """Give a run a higher budget, and return why its purse refuses it, nothing if it does not."""
    try:
        account = account_of(run_id, context)
        if account:
            account.raise_to(budget)
    except OverBudget as error:
        return str(error)
    return ""


def settle(run_id: str, context: RunContext) -> None:
    """Give back what a run that is over did not spend."""
    if context.purse:
        context.purse.close_child(run_id)


def note(run_id: str, config: RunnableConfig, context: RunContext) -> None:
    """Keep in mind that a run draws from its purse, for `give_back`."""
    purses = config.get("configurable", {}).get(PURSES)
    if run_id and context.purse and purses is not None:
        purses[run_id] = context.purse


def give_back(purses: dict[str, Purse]) -> None:
    """Give back what runs that were left did not spend; one that goes on draws it again."""
    for run_id, purse in purses.items():
        purse.close_child(run_id)
