"""Node: credit the step, keep its candidate, and maintain the frontiers."""

from costada.controller.archive import Archive
from costada.controller.step import tell_step
from costada.nodes.context import RunContext, archives_of, balance_of, candidate_of
from costada.nodes.parallel.tickets import allocation_of
from costada.nodes.pareto_front import extend_front
from costada.nodes.state import SearchState


def update_utility(state: SearchState, *, context: RunContext) -> SearchState:
    """Credit the step (u_t, r_t, Sec. 4.2 and 4.3) and update the archives.

    A step is credited once, also when a call bought after that is charged to it.
    """
    step, before = state["step"], state["controller"]
    if step["is_credited"]:
        return SearchState()
    archives = archives_of(state, context)
    candidate = None if step["failure"] else candidate_of(step["candidate"], state, context)
    booked = tell_step(
        before,
        archives,
        allocation_of(step),
        candidate,
        step["cost"],
        balance_of(state, context),
        state["run_seed"],
        context.constants,
        is_guided=step["is_guided"],
    )
    _save_changes(archives, booked.archives, state, context)
    if candidate is not None:
        extend_front(candidate, state, context)
    is_better = booked.controller.incumbent_score > before.incumbent_score
    return SearchState(
        archive_seq=state["archive_seq"] + 1,
        best=step["candidate"] if is_better else state["best"],
        controller=booked.controller,
        credit=booked.credit,
        open=[each for each in state["open"] if each not in (step["number"], state["prepared"])],
        step={**step, "is_credited": True},
    )


def _save_changes(
    before: tuple[Archive, ...], after: tuple[Archive, ...], state: SearchState, context: RunContext
) -> None:
    """Store the archives that a step changed, as the next `archive_seq`, and their migrants."""
    table, run_id, iteration = context.store.candidates, state["run_id"], state["iteration"]
    for frontier, archive in enumerate(after):
        if archive in before[frontier : frontier + 1]:
            table.pass_over(run_id, frontier, state["archive_seq"] + 1)
            continue
        for member in archive.members:
            if member.migrated_in == iteration:
                table.put(run_id, member)
        members = [member.id for member in archive.members]
        table.put_archive(run_id, frontier, state["archive_seq"] + 1, members)
