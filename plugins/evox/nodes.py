"""The nodes that EvoX puts in place of the paper's: strategies choose the parent, and evolve."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from langchain_core.runnables import RunnableConfig

from costada.controller.step import draws
from costada.evaluators.problem import layer_of
from costada.evaluators.sandbox.layers import Layer
from costada.models.asking import ModelFailure
from costada.models.replies import answer_text
from costada.nodes.approve_guide import ask_for_approval
from costada.nodes.attempts import AttemptContext, failed_attempts, next_attempt
from costada.nodes.calls.asking import ask_for_guide
from costada.nodes.context import (
    RunContext,
    SearchRuntime,
    candidate_of,
    population_of,
    repeatable_metrics,
    shown,
)
from costada.nodes.state import SearchState
from costada.nodes.steering import idea_of, steered, user_tactic
from costada.plugins.evox.controller import (
    IMPROVEMENT_THRESHOLD,
    LABELS,
    EvoX,
    ScoredStrategy,
    switch_interval,
)
from costada.plugins.evox.prompts import (
    Labels,
    SearchWindow,
    ShownStrategy,
    StrategyRequest,
    insight_prompt,
    label_prompt,
    label_text,
    parse_labels,
    parse_strategy,
    population_facts,
    population_text,
    strategy_prompt,
    trace_text,
)
from costada.plugins.evox.strategies import (
    Selection,
    StrategyRecord,
    check_strategy,
    initial_strategy,
    select_context,
)
from costada.prompts.render import Prompt
from costada.prompts.replies import Rejection
from costada.prompts.requests import (
    MAX_PREVIOUS,
    USER,
    FailedAttempt,
    GenerationRequest,
    PreviousAttempt,
)
from costada.store.call_log import CallKey
from costada.values.candidate import LandedCandidate
from costada.values.numbering import FIRST_TICKET, START, START_TICKET, next_iteration

RECENT_ITERATIONS = 100
"""How far back the previous attempts of a prompt may lie."""

MAX_STRATEGY_CALLS = 3
"""Calls one evolution may make until it yields a valid strategy."""


def build_context(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Let the strategy choose parent and inspirations, and write the prompt of the next attempt.

    All attempts of a step start from the same choice. An idea of a user is shown with it.
    """
    context = runtime.context
    idea = idea_of(state["step"], context)
    population = _population(state, context)
    controller, selection = _select(_evox_of(state), population, state, context)
    inspirations = [candidate_of(name, state, context) for name in selection.context_ids]
    chosen = AttemptContext(candidate_of(selection.parent_id, state, context), inspirations)
    advice = Labels(*map(context.store.text, controller.labels))
    request = GenerationRequest(
        task=context.problem.task,
        current=shown(chosen.parent, context.problem),
        action=state["step"].allocation.action.value,
        others=tuple(shown(each, context.problem) for each in inspirations),
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
    """Buy the labels before the first step, and later a new strategy.

    The labels are charged to the first step. An evolution is charged to the step that has just been
    made; when its calls use up the budget, no step is left for a new strategy.
    """
    context = runtime.context
    if _evox_of(state).pending == LABELS:
        key = CallKey(state["run"].id, FIRST_TICKET, "guide", 1)
        reply = _ask(_labels_prompt(context), key, state, config, context)
        return _with_labels(reply, state, context)
    return _evolve_strategy(state, config, context)


def approve_guide(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Ask the caller whether to buy the labels or a strategy; see `ask_for_approval`."""
    context = runtime.context
    if _evox_of(state).pending == LABELS:
        skip = partial(_with_labels, "")
        return ask_for_approval(_labels_prompt(context), skip, state, context)
    prompt, _ = _requests(state, context)
    return ask_for_approval(prompt, _keep_strategy, state, context)


def _evox_of(state: SearchState) -> EvoX:
    controller = state["controller"]
    if not isinstance(controller, EvoX):
        raise TypeError(f"controller: got {type(controller).__name__}, expected EvoX")
    return controller


def _population(state: SearchState, context: RunContext) -> list[LandedCandidate]:
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


NODES: Mapping[str, Callable[..., SearchState]] = {
    "build_context": steered(build_context),
    "guide": guide,
    "approve_guide": approve_guide,
}
"""Nodes of the graph that EvoX replaces, by name."""


def _layer(context: RunContext) -> Layer:
    """The sandbox of strategies: that of the problem's candidates."""
    return layer_of(context.problem) or Layer.AUTO


def _strategy_text(name: str, context: RunContext) -> str:
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
        source = _strategy_text(controller.strategy, context)
        choice = select_context(source, records, count, seed, _layer(context))
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


def _evolution_key(state: SearchState, call: int) -> CallKey:
    """The key of a call of the current step's evolution, which count from 1.

    With several steps in flight, the step of the first ticket may end so late that a strategy is
    bought in it. The labels are the first guide call of that ticket.
    """
    ticket = state["step"].ticket
    return CallKey(state["run"].id, ticket, "guide", call + (ticket == FIRST_TICKET))


def _ask(
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
    return {"controller": _evox_of(state).with_labels(*names)}


def _requests(state: SearchState, context: RunContext) -> tuple[Prompt, StrategyRequest]:
    """What an evolution asks: first for an insight, then for a strategy that rests on it."""
    controller, constants, task = _evox_of(state), context.constants, context.problem.task
    iteration = next_iteration(controller.iteration)
    rows = _population(state, context)

    def shown_strategy(scored: ScoredStrategy) -> ShownStrategy:
        return ShownStrategy(
            source=_strategy_text(scored.strategy, context),
            score=scored.score,
            since=scored.since,
            until=scored.until,
            start=scored.start,
            end=scored.end,
            trace=trace_text(rows, scored.since, scored.until),
        )

    rng = draws(state["run"].seed, iteration, "strategies")
    drawn, drawn_others = controller.draw_strategies(rng, constants)
    others = tuple(map(shown_strategy, drawn_others))
    statistics = population_text(rows, iteration, IMPROVEMENT_THRESHOLD)
    facts = population_facts(rows, iteration, IMPROVEMENT_THRESHOLD)
    window = SearchWindow(
        iteration=next_iteration(iteration),
        max_iterations=constants.max_iterations,
        horizon=switch_interval(constants),
        threshold=IMPROVEMENT_THRESHOLD,
    )
    order = context.settings.prompt_order
    return insight_prompt(task, statistics, others, facts, order), StrategyRequest(
        task=task,
        window=window,
        insight="",
        statistics=statistics,
        parent=shown_strategy(drawn),
        context=others,
    )


def _evolve_strategy(
    state: SearchState, config: RunnableConfig, context: RunContext
) -> SearchState:
    """Ask for an insight, then for a strategy, until one is valid or the calls are used up."""
    prompt, request = _requests(state, context)
    insight = _ask(prompt, _evolution_key(state, 1), state, config, context)
    request = replace(request, insight=insight)
    for call in range(2, MAX_STRATEGY_CALLS + 2):
        asked = strategy_prompt(request, context.settings.prompt_order)
        read = parse_strategy(_ask(asked, _evolution_key(state, call), state, config, context))
        if isinstance(read, Rejection):
            request = replace(request, failure=FailedAttempt(read.reason))
            continue
        fault = check_strategy(read, _layer(context))
        if fault is None:
            adopted = _evox_of(state).adopt(context.store.put_text(read), context.constants)
            return {"controller": adopted}
        request = replace(request, failure=FailedAttempt(fault, read))
    return _keep_strategy(state, context)


def _keep_strategy(state: SearchState, context: RunContext) -> SearchState:
    return {"controller": _evox_of(state).keep_strategy(context.constants)}
