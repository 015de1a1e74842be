"""Node: draw a parent and its inspirations, and write the prompt of the next attempt."""

from costada.graph.state import SearchState, StepRecord
from costada.nodes.candidates import shown
from costada.nodes.context import RunContext
from costada.nodes.sources import Sources, draw_sources
from costada.nodes.tactics import Assignment, take_tactic
from costada.prompts.render import generation_prompt
from costada.prompts.request import FailedAttempt, GenerationRequest


def build_context(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the prompt of the next attempt, and the tactic use it takes, if any."""
    controller, assignment = take_tactic(state, context)
    sources = draw_sources(state, is_guided=assignment is not None, context=context)
    request = _request(state["step"], sources, assignment, context)
    prompt = context.store.put_text(generation_prompt(request).user)
    step = StepRecord(
        **{
            **state["step"],
            "attempt": state["step"]["attempt"] + 1,
            "parent": sources.parent.id,
            "prompt": prompt,
            "program": "",
            "changes": "",
            "candidate": "",
            "failure": "",
            "score": None,
            "objective": None,
        }
    )
    return SearchState(controller=controller, step=step)


def _request(
    step: StepRecord, sources: Sources, assignment: Assignment | None, context: RunContext
) -> GenerationRequest:
    failure = context.store.text(step["failure"])
    code = context.store.text(step["program"])
    return GenerationRequest(
        task=context.problem.task,
        current=shown(sources.parent),
        action=step["action"],
        others=tuple(shown(candidate) for candidate in sources.inspirations),
        timeout=context.problem.limits.wall_seconds,
        entry_point=context.problem.entry_point,
        tactic=assignment.tactic if assignment else None,
        tactic_mode=assignment.mode if assignment else None,
        siblings=sources.siblings,
        failure=FailedAttempt(failure, code or None) if failure else None,
    )
