"""Node: draw a parent and its inspirations, and write the prompt of the next attempt."""

from dataclasses import replace

from costada.controller.method import ParentRule
from costada.controller.step import draw_attempt
from costada.nodes.attempts import AttemptContext, failed_attempts, next_attempt
from costada.nodes.context import RunContext, SearchRuntime, archives_of, candidate_of, prompt_view
from costada.nodes.state import SearchState
from costada.nodes.tactic_cycle import take_tactic
from costada.prompts.requests import USER, GenerationRequest, Siblings
from costada.store.candidates import SEED_ID


def build_context(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Draw a parent and its inspirations, and write the prompt of the next attempt (Alg. 1).

    An active cycle assigns the attempt a tactic; an idea of a user takes precedence and uses up
    none.
    """
    context = runtime.context
    controller, assignment = take_tactic(state, context)
    drawn = _draw_context(state, context, is_guided=assignment is not None)
    failed = failed_attempts(state, context)
    request = GenerationRequest(
        task=context.problem.task,
        current=prompt_view(drawn.parent, context.problem),
        action=state["step"].allocation.action.value,
        others=tuple(prompt_view(each, context.problem) for each in drawn.inspirations),
        timeout=context.problem.limits.wall_seconds,
        entry_point=context.problem.entry_point,
        tactic=assignment.tactic if assignment else None,
        tactic_mode=assignment.mode if assignment else None,
        siblings=drawn.siblings,
        failure=failed[-1] if failed else None,
        form=context.problem.form,
    )
    step = next_attempt(state, drawn, request, context)
    follows_guide = assignment is not None and assignment.mode != USER
    step = replace(step, is_guided=step.is_guided or follows_guide)
    return {"controller": controller, "step": step}


def _draw_context(state: SearchState, context: RunContext, *, is_guided: bool) -> AttemptContext:
    """Draw what the attempt starts from; a guided one starts from the incumbent."""
    if state["controller"].parents is ParentRule.SEED:
        return AttemptContext(candidate_of(SEED_ID, state, context))
    step, archives = state["step"], archives_of(state, context)
    parent, inspirations = draw_attempt(
        archives,
        step.allocation,
        step.ticket,
        step.attempt.number + 1,
        state["run"].seed,
        context.constants,
        incumbent=candidate_of(state["best"], state, context) if is_guided else None,
    )
    siblings = archives[step.allocation.frontier].children_of(parent.id)
    scores = tuple(each.score for each in siblings)
    return AttemptContext(parent, inspirations, Siblings(parent.score, scores) if scores else None)
