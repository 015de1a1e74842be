"""Node: credit the step, keep its candidate, and maintain the frontiers."""

from collections.abc import Sequence
from dataclasses import replace

from costada.controller.archive import Archive
from costada.controller.example_front import JudgedCandidate, example_front
from costada.controller.pareto import Point, front_with
from costada.controller.step import tell_step
from costada.nodes.context import (
    RunContext,
    SearchRuntime,
    archives_of,
    balance_of,
    candidate_of,
    example_front_of,
    front_of,
    judged_on_all,
    num_archives,
    result_of,
)
from costada.nodes.state import ArchiveVersion, SearchState
from costada.store.candidates import FRONT
from costada.values.candidate import Candidate
from costada.values.evaluation import Objective, read_objectives


def update_utility(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Credit the step (u_t, r_t, Sec. 4.2 and 4.3) and update the archives.

    A guide that is charged after the last step, as the run stops, changes nothing here.
    """
    context = runtime.context
    step, before = state["step"], state["controller"]
    if step.credit is not None:
        return {}
    archives = archives_of(state, context)
    attempt, flight, version = step.attempt, state["flight"], state["archives"]
    candidate = None if attempt.failure else candidate_of(attempt.candidate, state, context)
    booked = tell_step(
        before,
        archives,
        step.allocation,
        candidate,
        step.cost,
        balance_of(state, context),
        state["run"].seed,
        context.constants,
        is_guided=step.is_guided,
    )
    _save_changes(archives, booked.archives, state, context)
    if candidate is not None:
        extend_front(candidate, state, context)
    is_better = booked.controller.incumbent_score > before.incumbent_score
    if candidate is not None and not is_better:
        # The first program of a run without an initial one is its best, whatever its score.
        is_better = candidate_of(state["best"], state, context).program.is_empty
    landed = (step.ticket, flight.guide_ticket)
    open_tickets = tuple(each for each in flight.open_tickets if each not in landed)
    updated: SearchState = {
        "archives": ArchiveVersion(version.seq + 1, num_archives(booked.controller)),
        "best": attempt.candidate if is_better else state["best"],
        "controller": booked.controller,
        "flight": replace(flight, open_tickets=open_tickets),
        "step": replace(step, credit=booked.credit),
    }
    if candidate is not None and is_better and is_result(candidate, state, context):
        updated["result"] = candidate.id
    return updated


def is_result(incumbent: Candidate, state: SearchState, context: RunContext) -> bool:
    """Whether a new incumbent is what the run returns, in a run with validation examples.

    The mean score on these decides, and among equal ones that on the examples.
    """
    if not context.problem.validation:
        return False
    known = result_of(state, context).validation_score
    own = incumbent.validation_score
    return own is not None and (known is None or own >= known)


def _save_changes(
    before: tuple[Archive, ...], after: tuple[Archive, ...], state: SearchState, context: RunContext
) -> None:
    """Store the archives that a step changed, as the next version, and their migrants."""
    table, run_id, iteration = context.store.candidates, state["run"].id, state["step"].iteration
    # Written before any checkpoint names this version. Until one does, nobody reads it, and a node
    # that is executed again after a crash writes the same rows over these.
    seq = state["archives"].seq + 1
    for frontier, archive in enumerate(after):
        if archive in before[frontier : frontier + 1]:
            table.note_unchanged(run_id, frontier, seq)
            continue
        for member in archive.members:
            if member.migrated_in == iteration:
                table.put(run_id, member)
        members = [member.id for member in archive.members]
        table.put_archive(run_id, frontier, seq, members)


def extend_front(candidate: Candidate, state: SearchState, context: RunContext) -> None:
    """Offer a valid candidate to the front, and store that as the next `archive_seq`.

    The front is over the examples of a data set, else over the objectives; no problem has both.
    """
    if context.problem.examples:
        front = example_front_of(state, context)
        newcomers = judged_on_all([candidate], context.problem)
        before, after = _ids(front), _ids(example_front([*front, *newcomers]))
    elif context.problem.objectives:
        objectives = read_objectives(context.problem.objectives)
        points = known = _points(front_of(state, context), objectives)
        for newcomer in _points([candidate], objectives):
            points = front_with(known, newcomer)
        before, after = _ids(known), _ids(points)
    else:
        return
    if after != before:
        context.store.candidates.put_archive(
            state["run"].id, FRONT, state["archives"].seq + 1, after
        )


def _ids(front: Sequence[Point] | Sequence[JudgedCandidate]) -> list[str]:
    return [each.id for each in front]


def _points(candidates: Sequence[Candidate], objectives: Sequence[Objective]) -> tuple[Point, ...]:
    """The candidates as points among objectives; one judged without them has no place there."""
    return tuple(
        Point(each.id, tuple(goal.gain(each.metrics[goal.metric]) for goal in objectives))
        for each in candidates
        if all(goal.metric in each.metrics for goal in objectives)
    )
