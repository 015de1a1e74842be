"""The attempts of a step: what each starts from, and its prompt."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from costada.controller.constants import Constants
from costada.controller.intensity import Action
from costada.controller.method import ParentRule
from costada.controller.methods import DEFAULT_METHOD, METHODS
from costada.evaluators.problem import Problem
from costada.models.reply_content import estimated_usage
from costada.nodes.calls.budget import EXPECTED_PROGRAM, prompt_tokens
from costada.nodes.context import RunContext, candidate_of, prompt_view
from costada.nodes.state import Attempt, SearchState, Step
from costada.prompts.render import Prompt, generation_prompt
from costada.prompts.requests import (
    FailedAttempt,
    GenerationRequest,
    ProgramView,
    PromptData,
    Siblings,
)
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
    """Every attempt that failed, the last one included."""
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
    prompt = generation_prompt(request, context.settings.prompt_order)
    # what the parent and the inspirations hold is stored already
    data = replace(request.data, program="", others=())
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
    programs = (candidate_of(each, state, context).program for each in ids)
    program, *others = (each.text if each.is_one_text else dict(each) for each in programs)
    data = PromptData(**json.loads(text(attempt.prompt_data)))
    data = replace(data, program=program, others=others)
    return Prompt(context.problem.task, text(attempt.prompt), data)
