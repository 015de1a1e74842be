"""Node: draw a parent and its inspirations, and write the prompt of the next attempt."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from costada.controller.constants import Constants
from costada.controller.intensity import Action
from costada.controller.method import ParentRule
from costada.controller.methods import DEFAULT_METHOD, METHODS
from costada.controller.step import draw_attempt
from costada.evaluators.problem import Problem
from costada.models.replies import estimated_usage
from costada.nodes.calls.budget import EXPECTED_PROGRAM, prompt_tokens
from costada.nodes.context import RunContext, archives_of, candidate_of, shown
from costada.nodes.guide import take_tactic
from costada.nodes.model_choice import choose_model
from costada.nodes.parallel.tickets import allocation_of
from costada.nodes.state import SearchState, StepRecord
from costada.nodes.steering import is_submission, submitted, with_input
from costada.prompts.render import Prompt, generation_prompt
from costada.prompts.requests import (
    USER,
    FailedAttempt,
    GenerationRequest,
    ShownProgram,
    Siblings,
)
from costada.store.candidates import SEED_ID
from costada.values.candidate import Candidate
from costada.values.prompt_data import PromptData


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What an attempt starts from: a parent (p^par), and the inspirations (context set)."""

    parent: Candidate
    inspirations: Sequence[Candidate] = ()
    siblings: Siblings | None = None


def build_context(state: SearchState, *, context: RunContext) -> SearchState:
    """Write the prompt of the next attempt; an active cycle assigns it a tactic.

    An idea of a user comes first, and leaves the cycle as it is. A program of a user needs no
    prompt. With several models the router chooses who makes the attempt. Where that model refuses,
    the same attempt is another one's.
    """
    if state["step"]["is_refused"]:
        return SearchState(step=choose_again(state, context))
    state = with_input(state, context)
    if is_submission(state["step"]):
        return SearchState(step=submitted(state, context))
    controller, assignment = take_tactic(state, context)
    drawn = _draw_context(state, context, is_guided=assignment is not None)
    failed = failed_attempts(state, context)
    request = GenerationRequest(
        task=context.problem.task,
        current=shown(drawn.parent, context.problem),
        action=state["step"]["action"],
        others=tuple(shown(each, context.problem) for each in drawn.inspirations),
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
    step["is_guided"] = step["is_guided"] or follows_guide
    return SearchState(controller=controller, step=step)


def first_prompt(problem: Problem) -> Prompt:
    """The prompt of a first attempt, without what an evaluation would add."""
    request = GenerationRequest(
        task=problem.task,
        current=ShownProgram(problem.start.source, 0.0, {}, {}),
        action=Action.EXPLORATION.value,
        others=(),
        timeout=problem.limits.wall_seconds,
        entry_point=problem.entry_point,
        form=problem.form,
    )
    return generation_prompt(request)


def ordinary_input(problem: Problem, constants: Constants, method: str = DEFAULT_METHOD) -> int:
    """Expected input tokens of an attempt in the middle of a run.

    The first prompt holds the task and the initial program. Later ones show inspirations as well,
    and no program is expected to be shorter than `EXPECTED_PROGRAM`. Of several files, an
    inspiration shows those that it changed.
    """
    tokens = prompt_tokens(first_prompt(problem))
    if METHODS[method].start(0.0, constants).parents is ParentRule.SEED:
        return tokens
    seed = estimated_usage(problem.start.values(), "").input_tokens
    grown = max(seed, EXPECTED_PROGRAM)
    inspiration = grown if problem.form.is_one_text else EXPECTED_PROGRAM
    return tokens - seed + grown + constants.num_inspirations * inspiration


def _draw_context(state: SearchState, context: RunContext, *, is_guided: bool) -> AttemptContext:
    """Draw what the attempt starts from; a guided one starts from the incumbent."""
    if state["controller"].parents is ParentRule.SEED:
        return AttemptContext(candidate_of(SEED_ID, state, context))
    step, archives = state["step"], archives_of(state, context)
    parent, inspirations = draw_attempt(
        archives,
        allocation_of(step),
        step["number"],
        step["attempt"] + 1,
        state["run_seed"],
        context.constants,
        incumbent=candidate_of(state["best"], state, context) if is_guided else None,
    )
    siblings = archives[step["frontier"]].children_of(parent.id)
    scores = tuple(each.score for each in siblings)
    return AttemptContext(parent, inspirations, Siblings(parent.score, scores) if scores else None)


def failed_attempts(state: SearchState, context: RunContext) -> tuple[FailedAttempt, ...]:
    """The attempts of the step that failed so far, oldest first."""
    store, found = context.store, []
    for why, name, evaluated in _failed(state["step"]):
        failed = FailedAttempt(store.text(why), store.program(name).source if name else None)
        if evaluated:
            view = shown(candidate_of(evaluated, state, context), context.problem)
            # Where every number is 0, they only repeat that the program failed.
            metrics = view.metrics if any(view.metrics.values()) else {}
            failed = replace(failed, metrics=metrics, artifacts=view.artifacts)
        found.append(failed)
    return tuple(found)


def _failed(step: StepRecord) -> list[list[str]]:
    """Failure, program and candidate of every attempt that failed, the last one included."""
    last = [step["failure"], step["program"], step["candidate"]]
    return [*step["failed"], *([last] if step["failure"] else [])]


def next_attempt(
    state: SearchState,
    chosen: AttemptContext,
    request: GenerationRequest,
    context: RunContext,
    *,
    label: str = "",
) -> StepRecord:
    """The step with its next attempt, whose prompt is stored, and the model that makes it."""
    step, put_text = state["step"], context.store.put_text
    prompt = generation_prompt(request, context.settings.prompt_order)
    # what the parent and the inspirations hold is stored already
    data = replace(request.data, program="", others=())
    begun: StepRecord = {
        **step,
        "attempt": step["attempt"] + 1,
        "first_call": (step["requests"] or step["attempt"]) + 1,
        "parent": chosen.parent.id,
        "inspirations": [candidate.id for candidate in chosen.inspirations],
        "label": label,
        "prompt": put_text(prompt.user),
        "prompt_data": put_text(json.dumps(asdict(data))),
        "program": "",
        "changes": "",
        "candidate": "",
        "failure": "",
        "failed": _failed(step),
        "score": None,
        "objective": None,
    }
    return choose_model(begun, prompt, state, context) if context.has_choice else begun


def choose_again(state: SearchState, context: RunContext) -> StepRecord:
    """The step with another model for the attempt that the last one refused."""
    return choose_model(state["step"], load_prompt(state, context), state, context)


def load_prompt(state: SearchState, context: RunContext) -> Prompt:
    """The prompt of the step's attempt, with what it was made of."""
    step, text = state["step"], context.store.text
    ids = (step["parent"], *step["inspirations"])
    programs = (candidate_of(each, state, context).program for each in ids)
    program, *others = (each.text if each.is_one_text else dict(each) for each in programs)
    data = PromptData(**json.loads(text(step["prompt_data"])))
    data = replace(data, program=program, others=others)
    return Prompt(context.problem.task, text(step["prompt"]), data)
