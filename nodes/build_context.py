"""Node: draw a parent and its inspirations, and write the prompt of the next attempt."""

from costada.controller.method import Controller, ParentRule
from costada.nodes.candidates import save_prompt, shown
from costada.nodes.context import RunContext
from costada.nodes.evox.strategies import chosen_sources
from costada.nodes.guide import Assignment, take_tactic
from costada.nodes.sources import Sources, draw_sources
from costada.nodes.state import SearchState, StepRecord
from costada.prompts.render import generation_prompt
from costada.prompts.requests import FailedAttempt, GenerationRequest


def build_context(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the prompt of the next attempt, and the tactic use it takes, if any."""
    step = _with_failure(state["step"])
    controller, assignment = take_tactic(state, context)
    controller, sources = _sources(controller, assignment, state, context)
    request = _request(step, sources, assignment, controller, context)
    prompt, data = save_prompt(generation_prompt(request), context)
    attempt = StepRecord(
        **{
            **step,
            "attempt": step["attempt"] + 1,
            "parent": sources.parent.id,
            "inspirations": [candidate.id for candidate in sources.inspirations],
            "label": sources.label,
            "prompt": prompt,
            "prompt_data": data,
            "program": "",
            "changes": "",
            "candidate": "",
            "failure": "",
            "score": None,
            "objective": None,
        }
    )
    return SearchState(controller=controller, step=attempt)


def _with_failure(step: StepRecord) -> StepRecord:
    """Return the step with the attempt before among the failed ones, if there was one."""
    if not step["failure"]:
        return step
    return {**step, "failed": [*step["failed"], [step["failure"], step["program"]]]}


def _sources(
    controller: Controller,
    assignment: Assignment | None,
    state: SearchState,
    context: RunContext,
) -> tuple[Controller, Sources]:
    if controller.parents is ParentRule.POPULATION:
        return chosen_sources(state, context)
    is_guided = assignment is not None
    return controller, draw_sources(controller, state, is_guided=is_guided, context=context)


def _request(
    step: StepRecord,
    sources: Sources,
    assignment: Assignment | None,
    controller: Controller,
    context: RunContext,
) -> GenerationRequest:
    text = context.store.text
    failed = tuple(FailedAttempt(text(why), text(code) or None) for why, code in step["failed"])
    shows_all = controller.parents is ParentRule.POPULATION
    return GenerationRequest(
        task=context.problem.task,
        current=shown(sources.parent, context.problem),
        action=step["action"],
        others=tuple(shown(candidate, context.problem) for candidate in sources.inspirations),
        timeout=context.problem.limits.wall_seconds,
        entry_point=context.problem.entry_point,
        tactic=assignment.tactic if assignment else None,
        tactic_mode=assignment.mode if assignment else None,
        siblings=sources.siblings,
        failure=failed[-1] if failed and not shows_all else None,
        label=sources.wording,
        label_name=sources.label,
        previous=sources.previous,
        earlier_failures=failed if shows_all else (),
    )
