"""The nodes that EvoX puts in place of the paper's: a strategy chooses the parent."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter

from langchain_core.runnables import RunnableConfig

from costada.controller.step import draws
from costada.evaluators.problem import layer_of
from costada.evaluators.sandbox.layers import Layer
from costada.models.asking import ModelFailure
from costada.models.reply_content import answer_text
from costada.nodes.approve_guide import ask_for_approval
from costada.nodes.attempts import (
    AttemptContext,
    failed_attempts,
    idea_of,
    next_attempt,
    take_user_input,
)
from costada.nodes.calls.paid_calls import ask_for_guide
from costada.nodes.context import (
    RunContext,
    SearchRuntime,
    candidate_of,
    population_of,
    prompt_view,
    repeatable_metrics,
)
from costada.nodes.state import SearchState
from costada.nodes.tactic_batch import user_tactic
from costada.plugins.evox.controller import EvoX
from costada.plugins.evox.prompts import (
    Labels,
    label_prompt,
    label_text,
    parse_labels,
)
from costada.plugins.evox.strategies import (
    Selection,
    StrategyRecord,
    initial_strategy,
    select_context,
)
from costada.prompts.render import Prompt
from costada.prompts.requests import (
    MAX_PREVIOUS,
    USER,
    GenerationRequest,
    PreviousAttempt,
)
from costada.store.call_log import CallKey
from costada.values.candidate import LandedCandidate
from costada.values.numbering import FIRST_TICKET, START, START_TICKET, next_iteration
from costada.values.roles import GUIDE

RECENT_ITERATIONS = 100
"""How far back the previous attempts of a prompt may lie."""


def build_context(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Let the strategy choose parent and inspirations, and write the prompt of the next attempt.

    All attempts of a step start from the same choice. An idea of a user is shown with it.
    """
    context = runtime.context
    idea = idea_of(state["step"], context)
    population = landed_candidates(state, context)
    controller, selection = _select(evox_of(state), population, state, context)
    inspirations = [candidate_of(name, state, context) for name in selection.context_ids]
    chosen = AttemptContext(candidate_of(selection.parent_id, state, context), inspirations)
    advice = Labels(*map(context.store.text, controller.labels))
    request = GenerationRequest(
        task=context.problem.task,
        current=prompt_view(chosen.parent, context.problem),
        action=state["step"].allocation.action.value,
        others=tuple(prompt_view(each, context.problem) for each in inspirations),
        timeout=context.problem.limits.wall_seconds,
        entry_point=context.problem.entry_point,
        tactic=user_tactic(idea) if idea else None,
        tactic_mode=USER if idea else None,
        label=label_text(selection.label, advice),
        label_name=selection.label,
        previous=_previous_attempts(population, state, context),
        earlier_failures=failed_attempts(state, context),
        form=context.problem.form,
    )
    step = next_attempt(state, chosen, request, context, label=selection.label)
    return {"controller": controller, "step": step}


def guide(state: SearchState, runtime: SearchRuntime, config: RunnableConfig) -> SearchState:
    """Buy the labels before the first step, which is charged for them."""
    context = runtime.context
    key = CallKey(state["run"].id, FIRST_TICKET, GUIDE, 1)
    reply = ask_guide_model(_labels_prompt(context), key, state, config, context)
    return _with_labels(reply, state, context)


def approve_guide(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Ask the caller whether to buy the labels; see `ask_for_approval`."""
    context = runtime.context
    skip = partial(_with_labels, "")
    return ask_for_approval(_labels_prompt(context), skip, state, context)


NODES: Mapping[str, Callable[..., SearchState]] = {
    "build_context": take_user_input(build_context),
    "guide": guide,
    "approve_guide": approve_guide,
}
"""Nodes of the graph that EvoX replaces, by name."""


def evox_of(state: SearchState) -> EvoX:
    """The controller of a run that uses EvoX."""
    controller = state["controller"]
    if not isinstance(controller, EvoX):
        raise TypeError(f"controller: got {type(controller).__name__}, expected EvoX")
    return controller


def landed_candidates(state: SearchState, context: RunContext) -> list[LandedCandidate]:
    """The initial program and all valid candidates that have landed, in the order of landing."""
    step = state["step"]
    # the row of a step that buys an evolution is written when that is paid
    iterations = {
        START_TICKET: START,
        step.ticket: step.iteration,
        **context.store.iterations(state["run"].id),
    }
    landed = population_of(state, context)
    rows = [LandedCandidate(each, iterations[each.ticket]) for each in landed]
    return sorted(rows, key=attrgetter("iteration"))


def layer_for(context: RunContext) -> Layer:
    """The sandbox of strategies: that of the problem's candidates."""
    return layer_of(context.problem) or Layer.AUTO


def strategy_text(name: str, context: RunContext) -> str:
    """The text of a strategy, by its name."""
    return context.store.text(name) or initial_strategy()


def _select(
    controller: EvoX, population: Sequence[LandedCandidate], state: SearchState, context: RunContext
) -> tuple[EvoX, Selection]:
    """The choice of the strategy in use; one that fails is replaced by the one before it."""
    records = [
        StrategyRecord(
            id=each.id,
            code=each.program.text,
            score=each.score,
            metrics=repeatable_metrics(each, context.problem),
            error=each.error,
            parent_id=each.parent_id,
            iteration=row.iteration,
            generation=each.generation,
        )
        for row in population
        for each in (row.candidate,)
    ]
    count = context.constants.num_inspirations
    seed = draws(state["run"].seed, state["step"].ticket, "strategy").getrandbits(32)
    while True:
        source = strategy_text(controller.strategy, context)
        choice = select_context(source, records, count, seed, layer_for(context))
        if isinstance(choice, Selection):
            return controller, choice
        if not controller.strategy:
            raise RuntimeError(f"the initial strategy failed: {choice.reason}")
        controller = controller.fall_back()


def _previous_attempts(
    population: Sequence[LandedCandidate], state: SearchState, context: RunContext
) -> tuple[PreviousAttempt, ...]:
    """The best of the recent candidates, the best first."""
    first = next_iteration(state["controller"].iteration) - RECENT_ITERATIONS
    recent = [row for row in population if row.candidate.parent_id and row.iteration >= first]
    recent.sort(key=lambda row: (-row.candidate.score, -row.iteration))
    return tuple(
        PreviousAttempt(
            iteration=row.iteration,
            score=each.score,
            parent_score=candidate_of(str(each.parent_id), state, context).score,
            changes=each.changes,
            metrics=repeatable_metrics(each, context.problem),
        )
        for row in recent[:MAX_PREVIOUS]
        for each in (row.candidate,)
    )


def ask_guide_model(
    prompt: Prompt, key: CallKey, state: SearchState, config: RunnableConfig, context: RunContext
) -> str:
    """Ask the guide model; the answer is empty if none came or the budget is used up."""
    answer = ask_for_guide(prompt, key, state, config, context, is_further=True)
    return "" if isinstance(answer, ModelFailure) else answer_text(answer)


def _labels_prompt(context: RunContext) -> Prompt:
    problem = context.problem
    packages = tuple(dict.fromkeys(name.partition(".")[0] for name in problem.preload))
    return label_prompt(problem.task, problem.evaluator_source, packages, problem.form)


def _with_labels(reply: str, state: SearchState, context: RunContext) -> SearchState:
    """Store the labels of a reply; an empty one holds none."""
    labels, put_text = parse_labels(reply), context.store.put_text
    names = put_text(labels.diverge), put_text(labels.refine)
    return {"controller": evox_of(state).with_labels(*names)}
