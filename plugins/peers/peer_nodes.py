"""The nodes that the peers put in place of the paper's: they choose the parent, and remember.

What a method remembers is a text in the run's store, and the state holds its name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from costada.controller.step import draws
from costada.nodes.attempts import (
    AttemptContext,
    failed_attempts,
    idea_of,
    next_attempt,
    take_user_input,
)
from costada.nodes.context import (
    RunContext,
    SearchRuntime,
    candidate_of,
    prompt_view,
    repeatable_metrics,
)
from costada.nodes.state import SearchState, Step
from costada.nodes.tactic_batch import user_tactic
from costada.nodes.update_utility import update_utility
from costada.plugins.peers.peer import Peer
from costada.plugins.peers.peer_prompts import advice_text
from costada.plugins.peers.peer_search import NO_GAINS, Choice, Search
from costada.prompts.requests import MAX_PREVIOUS, USER, GenerationRequest, PreviousAttempt
from costada.store.candidates import SEED_ID
from costada.values.candidate import Candidate
from costada.values.evaluation import read_objectives
from costada.values.numbering import START, START_TICKET


def build_context(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Let the method choose what the next attempt starts from, and write its prompt.

    An idea of a user is shown with it.
    """
    context, step = runtime.context, state["step"]
    search = remembered(state, context)
    rng = draws(state["run"].seed, step.ticket, "parents")
    choice = search.choose(step.allocation.frontier, partial(_text_of, context), rng)
    controller = with_memory(state, search, context)
    return {"controller": controller, "step": _next_attempt(choice, state, context)}


def credit_and_remember(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Credit the step, and let the method take in the program of its last attempt.

    That may be invalid, as the peers keep those too.
    """
    update, context = update_utility(state, runtime), runtime.context
    if "controller" not in update:
        return update
    after: SearchState = {**state, **update}
    search = remembered(after, context)
    take_in(landed_candidate(after, context), search, after, context)
    return {**update, "controller": with_memory(after, search, context)}


def landed_candidate(state: SearchState, context: RunContext) -> Candidate | None:
    """The candidate of the step's last attempt, `None` if that has no program."""
    name = state["step"].attempt.candidate
    return candidate_of(name, state, context) if name else None


def take_in(
    landed: Candidate | None, search: Search, state: SearchState, context: RunContext
) -> None:
    """Let a method take in what the step brought."""
    step, text_of = state["step"], partial(_text_of, context)
    rng = draws(state["run"].seed, step.ticket, "memory")
    gains = _gains_of(landed, context) if landed else NO_GAINS
    search.land(step.allocation.frontier, landed, text_of, rng, gains)


CHOOSING: Mapping[str, Callable[..., SearchState]] = {
    "build_context": take_user_input(build_context)
}
"""The node that all peers replace, by name."""

NODES: Mapping[str, Callable[..., SearchState]] = {
    **CHOOSING,
    "update_utility": credit_and_remember,
}
"""The nodes that a peer without nodes of its own replaces, by name."""


def peer_of(state: SearchState) -> Peer:
    """The controller of a run that uses a peer."""
    controller = state["controller"]
    if not isinstance(controller, Peer):
        raise TypeError(f"controller: got {type(controller).__name__}, expected a Peer")
    return controller


def remembered(state: SearchState, context: RunContext) -> Search:
    """What the method remembers; before the first step, of the initial program."""
    peer = peer_of(state)
    if peer.memory:
        return peer.search.from_json(context.store.text(peer.memory))
    seed = candidate_of(SEED_ID, state, context)
    rng = draws(state["run"].seed, START_TICKET, "memory")
    return peer.search.begin(seed, partial(_text_of, context), rng, _gains_of(seed, context))


def with_memory(state: SearchState, search: Search, context: RunContext) -> Peer:
    """The controller with the name of what the method remembers now."""
    return replace(peer_of(state), memory=context.store.put_text(search.to_json()))


def _gains_of(candidate: Candidate, context: RunContext) -> dict[str, float]:
    """The values of the objectives that a candidate has, with the sign that makes more better."""
    return {
        each.name: each.gain(candidate.metrics[each.metric])
        for each in read_objectives(context.problem.objectives)
        if each.metric in candidate.metrics
    }


def _text_of(context: RunContext, name: str) -> str:
    return context.store.program(name).text


def _next_attempt(choice: Choice, state: SearchState, context: RunContext) -> Step:
    problem, step = context.problem, state["step"]
    parent = candidate_of(choice.parent, state, context)
    others = [candidate_of(name, state, context) for name in choice.shown]
    previous = [candidate_of(name, state, context) for name in choice.previous]
    failed, idea = failed_attempts(state, context), idea_of(step, context)
    request = GenerationRequest(
        task=problem.task,
        current=prompt_view(parent, problem),
        action=step.allocation.action.value,
        others=tuple(prompt_view(each, problem) for each in others),
        timeout=problem.limits.wall_seconds,
        entry_point=problem.entry_point,
        tactic=user_tactic(idea) if idea else None,
        tactic_mode=USER if idea else None,
        failure=failed[-1] if failed else None,
        label=advice_text(choice),
        previous=_previous_attempts(previous, state, context),
        form=problem.form,
    )
    return next_attempt(state, AttemptContext(parent, others), request, context, label=choice.mode)


def _previous_attempts(
    candidates: Sequence[Candidate], state: SearchState, context: RunContext
) -> tuple[PreviousAttempt, ...]:
    """Some candidates as attempts, at most `MAX_PREVIOUS`; the initial program is none."""
    made = [each for each in candidates if each.parent_id is not None][:MAX_PREVIOUS]
    iterations = {START_TICKET: START, **context.store.iterations(state["run"].id)}
    return tuple(
        PreviousAttempt(
            iteration=iterations[each.ticket],
            score=each.score,
            parent_score=candidate_of(str(each.parent_id), state, context).score,
            changes=each.changes,
            metrics=repeatable_metrics(each, context.problem),
        )
        for each in made
    )
