"""Node: buy the guide call that was decided on."""

from functools import partial

from langchain_core.runnables import RunnableConfig

from costada.controller.contract import LABELS, STRATEGY
from costada.graph.state import SearchState
from costada.models.failures import ModelFailure
from costada.models.replies import answer_text
from costada.nodes.affordable import ask_within_budget
from costada.nodes.asking import CallKey
from costada.nodes.candidates import load_candidate, shown
from costada.nodes.context import RunContext, controller_of
from costada.nodes.evolution import (
    ask_for_labels,
    evolution_prompt,
    evolve_strategy,
    labels_prompt,
    without_labels,
    without_strategy,
)
from costada.nodes.tactics import TacticBatch, save_batch, tried_tactics
from costada.prompts.render import Prompt, guide_prompt
from costada.prompts.request import GuideRequest
from costada.prompts.tactics import Tactic, parse_tactics

BUYERS = {LABELS: ask_for_labels, STRATEGY: evolve_strategy}
"""Who makes the calls that are no guide for tactics."""

FIRST_PROMPTS = {LABELS: labels_prompt, STRATEGY: evolution_prompt}
"""What they ask first."""

WITHOUT = {LABELS: without_labels, STRATEGY: without_strategy}
"""How the run goes on without them."""


def guide(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Return what the pending call brought: tactics, or what EvoX asks for."""
    buy = BUYERS.get(str(state["controller"]["pending"]), buy_tactics)
    return buy(state, config, context=context)


def buy_tactics(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Return the controller with a new cycle of tactics, or with the failure to get any (B.4.3).

    The calls belong to the step that follows, which is charged for them. A guide that a hard budget
    cannot pay for counts as one without a usable tactic, and the run goes on without it.
    """
    iteration = controller_of(state, context).iteration + 1
    prompt = _tactics_prompt(state, context)
    tactics = _ask_for_tactics(prompt, iteration, state, config, context)
    return _advised(tactics, state, context)


def first_prompt(state: SearchState, context: RunContext) -> Prompt:
    """Return the messages that the pending call begins with."""
    write = FIRST_PROMPTS.get(str(state["controller"]["pending"]), _tactics_prompt)
    return write(state, context)


def go_without(state: SearchState, context: RunContext) -> SearchState:
    """Return what the run goes on with when the pending call is not made: as if it had failed."""
    skip = WITHOUT.get(str(state["controller"]["pending"]), partial(_advised, ()))
    return skip(state, context)


def _advised(tactics: tuple[Tactic, ...], state: SearchState, context: RunContext) -> SearchState:
    controller = controller_of(state, context)
    iteration = controller.iteration + 1
    batch = TacticBatch(
        mode=str(controller.pending), baseline_score=controller.incumbent_score, tactics=tactics
    )
    save_batch(batch, state["run_id"], iteration, context)
    advised = controller.open_cycle(len(tactics)) if tactics else controller.fail_guide()
    return SearchState(controller=advised.record())


def _tactics_prompt(state: SearchState, context: RunContext) -> Prompt:
    problem, controller = context.problem, controller_of(state, context)
    request = GuideRequest(
        task=problem.task,
        evaluator_source=problem.evaluator_source,
        best=shown(load_candidate(state["best"], state, context), problem),
        mode=str(controller.pending),
        tried=tried_tactics(state["run_id"], controller.iteration + 1, context),
        timeout=problem.limits.wall_seconds,
        count=context.settings.constants.tactics_per_guide,
    )
    return guide_prompt(request)


def _ask_for_tactics(
    prompt: Prompt,
    iteration: int,
    state: SearchState,
    config: RunnableConfig,
    context: RunContext,
) -> tuple[Tactic, ...]:
    constants = context.settings.constants
    for attempt in range(1, constants.max_guide_calls + 1):
        key = CallKey(state["run_id"], iteration, "guide", attempt)
        answer = ask_within_budget(context.guide_model, prompt, key, state, config, context)
        if isinstance(answer, ModelFailure):
            continue
        tactics = parse_tactics(answer_text(answer), constants.tactics_per_guide)
        if tactics:
            return tactics
    return ()
