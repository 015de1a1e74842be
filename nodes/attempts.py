"""The attempts of a step: what each starts from and carries out, and its prompt.

An attempt follows a tactic of a guide or an idea of a user, or is a program that a user submitted.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from costada.controller.allocation import Action
from costada.controller.constants import Constants
from costada.controller.method import ParentRule
from costada.controller.methods import DEFAULT_METHOD, METHODS
from costada.evaluators.problem import Problem
from costada.models.asking import ModelFailure
from costada.models.reply_content import estimated_usage
from costada.nodes.calls.bounds import EXPECTED_PROGRAM, prompt_tokens
from costada.nodes.calls.paid_calls import ModelUnavailable
from costada.nodes.context import (
    Node,
    RunContext,
    SearchRuntime,
    candidate_of,
    prompt_view,
    unjudged_of,
)
from costada.nodes.generator_command import is_command
from costada.nodes.state import Attempt, SearchState, SteeredBy, Step
from costada.prompts.changes import invalid_program_reason
from costada.prompts.render import Prompt, generation_prompt
from costada.prompts.requests import (
    FailedAttempt,
    GenerationRequest,
    ProgramView,
    PromptData,
    Siblings,
)
from costada.store.user_inputs import InputKind
from costada.values.candidate import Candidate


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What an attempt starts from: a parent (p^par), and the inspirations (context set)."""

    parent: Candidate
    inspirations: Sequence[Candidate] = ()
    siblings: Siblings | None = None


def first_prompt(problem: Problem) -> Prompt:
    """The prompt of a first attempt, without what an evaluation would add."""
    request = GenerationRequest(
        task=problem.task,
        current=ProgramView(problem.start.source, 0.0, {}, {}),
        action=Action.EXPLORATION.value,
        others=(),
        timeout=problem.limits.wall_seconds,
        entry_point=problem.entry_point,
        form=problem.form,
    )
    return generation_prompt(request)


def ordinary_input(
    problem: Problem,
    constants: Constants,
    method: str = DEFAULT_METHOD,
    shortest: int = EXPECTED_PROGRAM,
) -> int:
    """Expected input tokens of an attempt in the middle of a run.

    The first prompt holds the task and the initial program. Later ones show inspirations as well,
    and no program is expected to have fewer tokens than `shortest`. Of several files, an
    inspiration shows those that it changed.
    """
    tokens = prompt_tokens(first_prompt(problem))
    if METHODS[method].start(0.0, constants).parents is ParentRule.SEED:
        return tokens
    seed = estimated_usage(problem.start.values(), "").input_tokens
    grown = max(seed, shortest)
    inspiration = grown if problem.form.is_one_text else min(grown, EXPECTED_PROGRAM)
    return tokens - seed + grown + constants.num_inspirations * inspiration


def failed_attempts(state: SearchState, context: RunContext) -> tuple[FailedAttempt, ...]:
    """The attempts of the step that failed so far, oldest first."""
    store, found = context.store, []
    for each in _failed(state["step"]):
        source = store.program(each.program).source if each.program else None
        failed = FailedAttempt(store.text(each.failure), source)
        if each.candidate:
            view = prompt_view(candidate_of(each.candidate, state, context), context.problem)
            # Where every number is 0, they only repeat that the program failed.
            metrics = view.metrics if any(view.metrics.values()) else {}
            failed = replace(failed, metrics=metrics, artifacts=view.artifacts)
        found.append(failed)
    return tuple(found)


def _failed(step: Step) -> tuple[Attempt, ...]:
    """Every failed attempt of the step, including the current one."""
    return (*step.earlier, step.attempt) if step.attempt.failure else step.earlier


def next_attempt(
    state: SearchState,
    chosen: AttemptContext,
    request: GenerationRequest,
    context: RunContext,
    *,
    label: str = "",
) -> Step:
    """The step with its next attempt, whose prompt is stored."""
    step, put_text = state["step"], context.store.put_text
    if is_command(context.settings.generator):
        problem = context.problem
        edited = problem.candidate_name if problem.form.is_one_text else "."
        request = replace(request, edited_file=edited)
    prompt = generation_prompt(request, context.settings.prompt_order)
    # what the parent and the inspirations hold is stored already
    data = replace(request.data, program="", others=(), other_scores=())
    attempt = Attempt(
        number=step.attempt.number + 1,
        first_call=step.num_requested + 1,
        parent=chosen.parent.id,
        inspirations=tuple(candidate.id for candidate in chosen.inspirations),
        label=label,
        prompt=put_text(prompt.user),
        prompt_data=put_text(json.dumps(asdict(data))),
    )
    return replace(step, attempt=attempt, earlier=_failed(step))


def load_prompt(state: SearchState, context: RunContext) -> Prompt:
    """The prompt of the step's attempt, with what it was made of."""
    attempt, text = state["step"].attempt, context.store.text
    ids = (attempt.parent, *attempt.inspirations)
    candidates = [candidate_of(each, state, context) for each in ids]
    programs = (each.program for each in candidates)
    program, *others = (each.text if each.is_one_text else dict(each) for each in programs)
    scores = [each.score for each in candidates[1:]]
    data = PromptData(**json.loads(text(attempt.prompt_data)))
    data = replace(data, program=program, others=others, other_scores=scores)
    return Prompt(context.problem.task, text(attempt.prompt), data)


def with_refusal(step: Step, failure: ModelFailure, context: RunContext) -> Step:
    """The step after its model refused the attempt, which another model may make."""
    reason = context.store.put_text(failure.reason)
    refusal = reason if isinstance(failure, ModelUnavailable) else ""
    attempt = replace(step.attempt, failure=reason, is_refused=True, refusal=refusal)
    return replace(step, attempt=attempt, refused=(*step.refused, attempt.model))


SUBMITTED = "submitted by a user"
"""Summary of the changes of a program that a user submitted."""


def with_input(state: SearchState, context: RunContext) -> SearchState:
    """The state after the step took the oldest waiting user input, if there is one.

    A step takes its input when its first attempt is prepared; all its attempts carry it out.
    """
    step = state["step"]
    if step.attempt.number or step.steered:
        return state
    taken = context.store.inputs.take(state["run"].id, step.ticket)
    if taken is None:
        return state
    text = taken.text
    if taken.kind is InputKind.TACTIC:
        text = context.store.put_text(text)
    steered = SteeredBy(number=taken.number, kind=taken.kind.value, text=text)
    return {**state, "step": replace(step, steered=steered)}


def take_user_input(build_context: Node) -> Node:
    """Let a step take the input of a user before a node writes the prompt of its first attempt.

    User-submitted programs skip prompting.
    """

    def take_input_and_build(state: SearchState, runtime: SearchRuntime) -> SearchState:
        state = with_input(state, runtime.context)
        if state["step"].is_submission:
            return {"step": with_submission(state, runtime.context)}
        return {"step": state["step"], **build_context(state, runtime)}

    return take_input_and_build


def idea_of(step: Step, context: RunContext) -> str | None:
    """The idea of a user that the step carries out, `None` without one."""
    if step.steered is None or step.is_submission:
        return None
    return context.store.text(step.steered.text)


def with_submission(state: SearchState, context: RunContext) -> Step:
    """The step with a program that is there as its only attempt, which asks no model.

    The parent of a user's program is the incumbent, which the page compares it with. One that the
    problem does not allow is a failed attempt.
    """
    step, store, problem = state["step"], context.store, context.problem
    if waiting := unjudged_of(step, context):
        attempt = Attempt(
            number=1,
            parent=waiting.parent,
            inspirations=waiting.inspirations,
            label=waiting.label,
            program=waiting.program,
            changes=waiting.changes,
            log=waiting.log,
        )
        return replace(step, attempt=attempt)
    name = step.steered.text if step.steered else ""
    program, start = store.program(name), problem.start
    fault = None
    if program.is_one_text != start.is_one_text:
        expected = "one text" if start.is_one_text else "several files"
        fault = f"The submitted program is not {expected}, as programs of this problem are."
    elif not program.is_one_text:
        fault = invalid_program_reason(dict(program), start, problem.form)
    attempt = Attempt(
        number=1,
        parent=state["best"],
        program="" if fault else name,
        changes=store.put_text(SUBMITTED) if step.is_users_program else "",
        failure=store.put_text(fault or ""),
    )
    return replace(step, attempt=attempt)
