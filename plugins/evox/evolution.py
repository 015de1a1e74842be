"""The small graph of EvoX between the last attempt of a step and its charge: strategies evolve.

`review_strategy` asks whether a new strategy is due, `approve_strategy` asks the caller, and
`evolve_strategy` buys it. Its calls belong to the step, which is charged for them once.
"""

from dataclasses import replace

from langchain_core.runnables import RunnableConfig

from costada.controller.step import draws
from costada.nodes.approve_guide import approved_purchase, ask_for_approval
from costada.nodes.context import RunContext, SearchRuntime
from costada.nodes.state import SearchState
from costada.nodes.step_end import as_charged, why_it_stops
from costada.plugins.evox.controller import (
    IMPROVEMENT_THRESHOLD,
    ScoredStrategy,
    switch_interval,
)
from costada.plugins.evox.nodes import (
    ask_guide_model,
    evox_of,
    landed_candidates,
    layer_for,
    strategy_text,
)
from costada.plugins.evox.prompts import (
    SearchWindow,
    ShownStrategy,
    StrategyRequest,
    insight_prompt,
    parse_strategy,
    population_facts,
    population_text,
    strategy_prompt,
    trace_text,
)
from costada.plugins.evox.strategies import check_strategy
from costada.prompts.render import Prompt
from costada.prompts.requests import FailedAttempt
from costada.prompts.whole_texts import Rejection
from costada.store.call_log import CallKey
from costada.values.numbering import FIRST_TICKET, next_iteration
from costada.values.roles import GUIDE

MAX_STRATEGY_CALLS = 3
"""Calls one evolution may make until it yields a valid strategy."""


def review_strategy(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Let the controller judge the strategy by the step, unless it is the last one of the run."""
    context, attempt = runtime.context, state["step"].attempt
    if why_it_stops(as_charged(state, context), context):
        return {}
    score = None if attempt.failure else attempt.score
    return {"controller": evox_of(state).review(score, context.constants)}


def approve_strategy(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Ask the caller whether to buy a strategy; see `ask_for_approval`.

    The question counts the cost and the score of the step, which is charged and told later.
    """
    context, controller = runtime.context, evox_of(state)
    prompt, _ = _requests(_with_landed_step(state), context)
    told = replace(controller, incumbent_score=controller.best_score)
    then: SearchState = {**as_charged(state, context), "controller": told}
    return ask_for_approval(prompt, lambda *_: _keep_strategy(state, context), then, context)


def evolve_strategy(
    state: SearchState, runtime: SearchRuntime, config: RunnableConfig
) -> SearchState:
    """Ask for an insight, then for a strategy, until one is valid or the calls are used up."""
    context = runtime.context
    prompt, request = _requests(_with_landed_step(state), context)
    insight = ask_guide_model(prompt, _evolution_key(state, 1), state, config, context)
    request = replace(request, insight=insight)
    for call in range(2, MAX_STRATEGY_CALLS + 2):
        asked = strategy_prompt(request, context.settings.prompt_order)
        key = _evolution_key(state, call)
        read = parse_strategy(ask_guide_model(asked, key, state, config, context))
        if isinstance(read, Rejection):
            request = replace(request, failure=FailedAttempt(read.reason))
            continue
        fault = check_strategy(read, layer_for(context))
        if fault is None:
            adopted = evox_of(state).adopt(context.store.put_text(read), context.constants)
            return {"controller": adopted}
        request = replace(request, failure=FailedAttempt(fault, read))
    return _keep_strategy(state, context)


INNER = approved_purchase(
    {
        "review_strategy": review_strategy,
        "approve_strategy": approve_strategy,
        "evolve_strategy": evolve_strategy,
    },
    edge="evolution",
)


def _with_landed_step(state: SearchState) -> SearchState:
    """The state in which the candidate of the step counts as landed."""
    flight, ticket = state["flight"], state["step"].ticket
    open_tickets = tuple(each for each in flight.open_tickets if each != ticket)
    return {**state, "flight": replace(flight, open_tickets=open_tickets)}


def _evolution_key(state: SearchState, call: int) -> CallKey:
    """The key of a call of the current step's evolution, which count from 1.

    With several steps in flight, the step of the first ticket may end so late that a strategy is
    bought in it. The labels are the first guide call of that ticket.
    """
    ticket = state["step"].ticket
    return CallKey(state["run"].id, ticket, GUIDE, call + (ticket == FIRST_TICKET))


def _requests(state: SearchState, context: RunContext) -> tuple[Prompt, StrategyRequest]:
    """What an evolution asks: first for an insight, then for a strategy that rests on it."""
    controller, constants, task = evox_of(state), context.constants, context.problem.task
    iteration = next_iteration(controller.iteration)
    rows = landed_candidates(state, context)

    def shown_strategy(scored: ScoredStrategy) -> ShownStrategy:
        return ShownStrategy(
            source=strategy_text(scored.strategy, context),
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


def _keep_strategy(state: SearchState, context: RunContext) -> SearchState:
    return {"controller": evox_of(state).keep_strategy(context.constants)}
