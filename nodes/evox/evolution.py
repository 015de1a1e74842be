"""What EvoX buys of the guide model: labels before the first step, later new strategies."""

from dataclasses import dataclass, replace

from langchain_core.runnables import RunnableConfig

from costada.controller.baselines.evox import (
    IMPROVEMENT_THRESHOLD,
    EvoX,
    ScoredStrategy,
    switch_interval,
)
from costada.controller.sampling import draws
from costada.evaluators.strategy_check import check_strategy
from costada.models.asking import ModelFailure
from costada.models.replies import answer_text
from costada.nodes.calls.asking import CallKey
from costada.nodes.calls.budget import ask_within_budget
from costada.nodes.context import RunContext
from costada.nodes.evox.strategies import (
    evox_of,
    population,
    population_row,
    strategy_layer,
    strategy_text,
)
from costada.nodes.state import SearchState
from costada.prompts.evox import (
    InsightRequest,
    LabelRequest,
    Labels,
    PopulationRow,
    SearchWindow,
    ShownStrategy,
    StrategyRequest,
    insight_prompt,
    label_prompt,
    parse_labels,
    parse_strategy,
    population_facts,
    population_text,
    strategy_prompt,
    trace_text,
)
from costada.prompts.render import Prompt
from costada.prompts.replies import Rejection
from costada.prompts.requests import FailedAttempt

MAX_STRATEGY_CALLS = 3
"""Calls one evolution may make until it yields a valid strategy."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the calls of one visit share; none of them begins when the budget is used up."""

    state: SearchState
    config: RunnableConfig
    context: RunContext
    iteration: int

    def ask(self, prompt: Prompt, attempt: int) -> str:
        """Return the text of an answer, empty if none came or could be paid for."""
        key = CallKey(self.state["run_id"], self.iteration, "guide", attempt)
        answer = ask_within_budget(
            self.context.guide_model,
            prompt,
            key,
            self.state,
            self.config,
            self.context,
            is_further=True,
        )
        return "" if isinstance(answer, ModelFailure) else answer_text(answer)


def ask_for_labels(
    state: SearchState, config: RunnableConfig, *, context: RunContext
) -> SearchState:
    """Return the advice behind the labels, bought once and charged to the first step."""
    controller = state["controller"]
    desk = Desk(state, config, context, controller.iteration + 1)
    return _with_labels(desk.ask(labels_prompt(state, context), 1), state, context)


def without_labels(state: SearchState, context: RunContext) -> SearchState:
    """Return the run as it begins when nobody says what the labels stand for."""
    return _with_labels("", state, context)


def labels_prompt(state: SearchState, context: RunContext) -> Prompt:
    """Return the messages that ask what the labels stand for."""
    problem = context.problem
    packages = tuple(dict.fromkeys(name.partition(".")[0] for name in problem.preload))
    return label_prompt(LabelRequest(problem.task, problem.evaluator_source, packages))


def _with_labels(reply: str, state: SearchState, context: RunContext) -> SearchState:
    labels: Labels = parse_labels(reply)
    put_text = context.store.put_text
    return SearchState(
        labels={"diverge": put_text(labels.diverge), "refine": put_text(labels.refine)},
        controller=evox_of(state).with_labels(),
    )


def evolve_strategy(
    state: SearchState, config: RunnableConfig, *, context: RunContext
) -> SearchState:
    """Return the controller with a new strategy, or with the one in use when none was valid.

    The calls belong to the step that has just been made, which is charged for them. One that uses
    up the budget is the last: no step is left for a strategy.
    """
    controller = evox_of(state)
    desk = Desk(state, config, context, controller.iteration + 1)
    request = _request(controller, desk)
    for attempt in range(2, MAX_STRATEGY_CALLS + 2):
        found = _new_strategy(desk.ask(strategy_prompt(request), attempt), context)
        if not isinstance(found, FailedAttempt):
            adopted = controller.adopt(context.store.put_text(found), context.constants)
            return SearchState(controller=adopted)
        request = replace(request, failure=found)
    return without_strategy(state, context)


def without_strategy(state: SearchState, context: RunContext) -> SearchState:
    """Return the controller with the strategy in use."""
    controller = evox_of(state)
    return SearchState(controller=controller.keep_strategy(context.constants))


def evolution_prompt(state: SearchState, context: RunContext) -> Prompt:
    """Return the messages that an evolution begins with: what does the history tell?"""
    controller = evox_of(state)
    return _evolving(controller, controller.iteration + 1, state, context).insight_prompt


@dataclass(frozen=True, slots=True)
class _Evolving:
    """What the prompts of one evolution show: the strategies, and the population."""

    task: str
    parent: ShownStrategy
    others: tuple[ShownStrategy, ...]
    statistics: str
    facts: dict[str, str]

    @property
    def insight_prompt(self) -> Prompt:
        return insight_prompt(InsightRequest(self.task, self.statistics, self.others, self.facts))


def _evolving(
    controller: EvoX, iteration: int, state: SearchState, context: RunContext
) -> _Evolving:
    rows = [population_row(row) for row in population(state, context)]
    rng = draws(state["run_seed"], iteration, "strategies")
    parent, others = controller.draw_strategies(rng, context.constants)
    return _Evolving(
        task=context.problem.task,
        parent=_shown(parent, rows, context),
        others=tuple(_shown(strategy, rows, context) for strategy in others),
        statistics=population_text(rows, iteration, IMPROVEMENT_THRESHOLD),
        facts=population_facts(rows, iteration, IMPROVEMENT_THRESHOLD),
    )


def _request(controller: EvoX, desk: Desk) -> StrategyRequest:
    context = desk.context
    evolving = _evolving(controller, desk.iteration, desk.state, context)
    insight = desk.ask(evolving.insight_prompt, 1)
    constants = context.settings.constants
    return StrategyRequest(
        task=context.problem.task,
        window=SearchWindow(
            iteration=desk.iteration + 1,
            max_iterations=constants.max_iterations,
            horizon=switch_interval(constants),
            threshold=IMPROVEMENT_THRESHOLD,
        ),
        insight=insight,
        statistics=evolving.statistics,
        parent=evolving.parent,
        context=evolving.others,
    )


def _shown(scored: ScoredStrategy, rows: list[PopulationRow], context: RunContext) -> ShownStrategy:
    return ShownStrategy(
        source=strategy_text(scored.strategy, context),
        score=scored.score,
        since=scored.since,
        until=scored.until,
        start=scored.start,
        end=scored.end,
        trace=trace_text(rows, scored.since, scored.until),
    )


def _new_strategy(reply: str, context: RunContext) -> str | FailedAttempt:
    """Return the text of a valid strategy, or what the next attempt is told."""
    read = parse_strategy(reply)
    if isinstance(read, Rejection):
        return FailedAttempt(read.reason)
    fault = check_strategy(read, strategy_layer(context))
    return read if fault is None else FailedAttempt(fault, read)
