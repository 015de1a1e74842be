"""The Pareto front of a run with several objectives, kept in the store from step to step."""

from collections.abc import Sequence

from costada.controller.pareto import Point, front_with
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState
from costada.store.candidates import FRONT
from costada.values.candidate import Candidate
from costada.values.evaluation import FrontMember, Objective, objective_values, read_objectives


def front_of(state: SearchState, context: RunContext) -> list[Candidate]:
    """The candidates on the Pareto front, oldest first; none with one objective."""
    if not context.problem.objectives:
        return []
    return context.store.candidates.front(state["run"].id, state["archives"].seq)


def front_members(front: Sequence[Candidate], context: RunContext) -> list[FrontMember]:
    """What a caller sees of the front."""
    objectives = read_objectives(context.problem.objectives)
    return [
        FrontMember(
            candidate_id=each.id,
            score=each.score,
            objectives=objective_values(objectives, each.metrics),
        )
        for each in front
    ]


def extend_front(candidate: Candidate, state: SearchState, context: RunContext) -> None:
    """Offer a valid candidate to the front, and store that as the next `archive_seq`."""
    if not context.problem.objectives:
        return
    objectives = read_objectives(context.problem.objectives)
    before = after = _points(front_of(state, context), objectives)
    for newcomer in _points([candidate], objectives):
        after = front_with(before, newcomer)
    if after != before:
        members = [each.id for each in after]
        context.store.candidates.put_archive(
            state["run"].id, FRONT, state["archives"].seq + 1, members
        )


def _points(candidates: Sequence[Candidate], objectives: Sequence[Objective]) -> tuple[Point, ...]:
    """The candidates as points among objectives; one judged without them has no place there."""
    return tuple(
        Point(each.id, tuple(goal.gain(each.metrics[goal.metric]) for goal in objectives))
        for each in candidates
        if all(goal.metric in each.metrics for goal in objectives)
    )
