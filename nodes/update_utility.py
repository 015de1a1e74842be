"""Node: credit the step, keep its candidate, and maintain the frontiers."""

from costada.controller.step import tell_step
from costada.nodes.allocate_frontier import allocation_of
from costada.nodes.candidates import load_archives, load_candidate, save_changes
from costada.nodes.context import RunContext, balance_of
from costada.nodes.state import SearchState


def update_utility(state: SearchState, *, context: RunContext) -> SearchState:
    """The controller after the step's credit (u_t, r_t, Sec. 4.2 and 4.3).

    A step is credited once, also when a call bought after that is charged to it.
    """
    step, before = state["step"], state["controller"]
    if step["is_credited"]:
        return SearchState()
    archives = load_archives(state, context)
    booked = tell_step(
        before,
        archives,
        allocation_of(step),
        None if step["failure"] else load_candidate(step["candidate"], state, context),
        step["cost"],
        balance_of(state, context),
        state["run_seed"],
        context.constants,
    )
    save_changes(archives, booked.archives, state, context)
    is_better = booked.controller.incumbent_score > before.incumbent_score
    return SearchState(
        archive_seq=state["archive_seq"] + 1,
        best=step["candidate"] if is_better else state["best"],
        controller=booked.controller,
        credit=booked.credit,
        step={**step, "is_credited": True},
    )
