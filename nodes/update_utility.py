"""Node: credit the step, keep its candidate, and migrate when it is time."""

from costada.controller.algorithm import credit, raise_bests
from costada.controller.archive import Archive
from costada.controller.migration import migrate
from costada.controller.state import from_record, to_record
from costada.graph.state import CreditRecord, SearchState
from costada.nodes.allocate_frontier import allocation_of
from costada.nodes.candidates import load_archives, load_candidate, save_changes
from costada.nodes.context import RunContext


def update_utility(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the controller after the step's credit (u_t, r_t, Sec. 4.2 and 4.3)."""
    constants, step = context.settings.constants, state["step"]
    before = from_record(state["controller"])
    score = None if step["failure"] else step["score"]
    controller, earned = credit(
        before, allocation_of(step), score, step["cost"], constants, state["spent"]
    )
    archives = load_archives(state, context)
    changed = migrate(_with_candidate(archives, state, context), state["iteration"], constants)
    save_changes(archives, changed, state, context)
    is_better = controller.incumbent_score > before.incumbent_score
    return SearchState(
        archive_seq=state["archive_seq"] + 1,
        best=step["candidate"] if is_better else state["best"],
        controller=to_record(raise_bests(controller, [a.best.score for a in changed])),
        credit=CreditRecord(
            local_gain=earned.local_gain,
            global_gain=earned.global_gain,
            cost_divisor=earned.cost_divisor,
            utility=earned.utility,
            allocation_reward=earned.allocation_reward,
        ),
    )


def _with_candidate(
    archives: tuple[Archive, ...], state: SearchState, context: RunContext
) -> tuple[Archive, ...]:
    step = state["step"]
    if step["failure"]:
        return archives
    candidate = load_candidate(step["candidate"], state, context)
    return tuple(
        archive.insert(candidate) if frontier == step["frontier"] else archive
        for frontier, archive in enumerate(archives)
    )
