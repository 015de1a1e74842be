"""Node: credit the step, keep its candidate, and maintain the frontiers."""

from costada.controller.archive import Archive
from costada.controller.credit import Credit
from costada.controller.method import Controller, PaidStep, ParentRule
from costada.controller.sampling import draws
from costada.nodes.allocate_frontier import allocation_of
from costada.nodes.candidates import load_archives, load_candidate, save_changes
from costada.nodes.context import RunContext, controller_of
from costada.nodes.state import CreditRecord, SearchState


def update_utility(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the controller after the step's credit (u_t, r_t, Sec. 4.2 and 4.3).

    A step is credited once, also when a call bought after that is charged to it.
    """
    step, before = state["step"], controller_of(state, context)
    if step["is_credited"]:
        return SearchState()
    archives = _archives(before, state, context)
    grown = _with_candidate(archives, state, context)
    credited, earned = before.credit(allocation_of(step), _paid(state, archives, grown))
    rng = draws(state["run_seed"], state["iteration"], "maintenance")
    controller, changed = credited.maintain(grown, rng)
    save_changes(archives, changed, state, context)
    is_better = controller.incumbent_score > before.incumbent_score
    return SearchState(
        archive_seq=state["archive_seq"] + 1,
        best=step["candidate"] if is_better else state["best"],
        controller=controller.record(),
        credit=_credit_record(earned),
        step={**step, "is_credited": True},
    )


def _credit_record(earned: Credit) -> CreditRecord:
    return CreditRecord(
        local_gain=earned.local_gain,
        global_gain=earned.global_gain,
        cost_divisor=earned.cost_divisor,
        utility=earned.utility,
        allocation_reward=earned.allocation_reward,
    )


def _archives(
    controller: Controller, state: SearchState, context: RunContext
) -> tuple[Archive, ...]:
    """Return the archives of a method that draws its parents from them, else none."""
    is_drawing = controller.parents is ParentRule.ARCHIVE
    return load_archives(controller, state, context) if is_drawing else ()


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


def _paid(
    state: SearchState, archives: tuple[Archive, ...], grown: tuple[Archive, ...]
) -> PaidStep:
    step = state["step"]
    is_refused = bool(archives) and grown[step["frontier"]] is archives[step["frontier"]]
    return PaidStep(
        score=None if step["failure"] else step["score"],
        is_kept=not step["failure"] and not is_refused,
        cost=step["cost"],
        spent=state["spent"],
    )
