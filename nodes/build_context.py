"""Node: draw a parent and its inspirations, and write the prompt of the next attempt."""

from dataclasses import replace

from costada.controller.example_front import draw_from_front
from costada.controller.guidance import is_active
from costada.controller.method import Controller, ParentRule, is_guided
from costada.controller.step import draw_attempt, draws
from costada.nodes.attempts import AttemptContext, failed_attempts, idea_of, next_attempt
from costada.nodes.context import (
    RunContext,
    SearchRuntime,
    archives_of,
    candidate_of,
    example_front_of,
    prompt_view,
)
from costada.nodes.state import SearchState
from costada.nodes.tactic_batch import TacticBatch, user_tactic
from costada.prompts.requests import USER, GenerationRequest, Siblings
from costada.prompts.tactics import Tactic
from costada.store.candidates import SEED_ID
from costada.values.candidate import Candidate
from costada.values.numbering import next_iteration


def build_context(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Draw a parent and its inspirations, and write the prompt of the next attempt (Alg. 1).

    An active cycle assigns the attempt a tactic; an idea of a user takes precedence and uses up
    none.
    """
    context = runtime.context
    controller, tactic, mode = _take_tactic(state, context)
    drawn = _draw_context(state, context, is_guided=tactic is not None)
    failed = failed_attempts(state, context)
    request = GenerationRequest(
        task=context.problem.task,
        current=prompt_view(drawn.parent, context.problem),
        action=state["step"].allocation.action.value,
        others=tuple(prompt_view(each, context.problem) for each in drawn.inspirations),
        timeout=context.problem.limits.wall_seconds,
        entry_point=context.problem.entry_point,
        tactic=tactic,
        tactic_mode=mode,
        siblings=drawn.siblings,
        failure=failed[-1] if failed else None,
        form=context.problem.form,
    )
    step = next_attempt(state, drawn, request, context)
    follows_guide = tactic is not None and mode != USER
    step = replace(step, is_guided=step.is_guided or follows_guide)
    return {"controller": controller, "step": step}


def _take_tactic(
    state: SearchState, context: RunContext
) -> tuple[Controller, Tactic | None, str | None]:
    """The idea of a user, or one use of the current tactic; with the guide's mode, or `USER`."""
    controller, step = state["controller"], state["step"]
    if idea := idea_of(step, context):
        return controller, user_tactic(idea), USER
    if not is_guided(controller) or not is_active(controller.cycle):
        return controller, None, None
    after_next = next_iteration(next_iteration(controller.iteration))
    used, index = controller.use_tactic(is_first=not step.is_guided)
    ((_, record),) = context.store.tactics(state["run"].id, after_next, count=1)
    batch = TacticBatch.model_validate_json(record)
    return used, batch.tactics[index], batch.mode


def _draw_context(state: SearchState, context: RunContext, *, is_guided: bool) -> AttemptContext:
    """Draw what the attempt starts from; a guided one starts from the incumbent."""
    chosen = candidate_of(state["best"], state, context) if is_guided else None
    if chosen is None and context.settings.parents == "pareto":
        chosen = _draw_from_examples(state, context)
    if state["controller"].parents is ParentRule.SEED:
        return AttemptContext(chosen or candidate_of(SEED_ID, state, context))
    step, archives = state["step"], archives_of(state, context)
    parent, inspirations = draw_attempt(
        archives,
        step.allocation,
        step.ticket,
        step.attempt.number + 1,
        state["run"].seed,
        context.constants,
        chosen=chosen,
    )
    siblings = archives[step.allocation.frontier].children_of(parent.id)
    scores = tuple(each.score for each in siblings)
    return AttemptContext(parent, inspirations, Siblings(parent.score, scores) if scores else None)


def _draw_from_examples(state: SearchState, context: RunContext) -> Candidate | None:
    """A parent from the front over the examples; None while no candidate was judged on all."""
    step, front = state["step"], example_front_of(state, context)
    rng = draws(state["run"].seed, step.ticket, f"parent of attempt {step.attempt.number + 1}")
    return candidate_of(draw_from_front(front, rng), state, context) if front else None
