"""Node: buy the guide call that was decided on."""

from langchain_core.runnables import RunnableConfig

from costada.controller.contract import LABELS, STRATEGY, Controller
from costada.graph.state import SearchState
from costada.models.failures import ModelFailure
from costada.models.replies import answer_text
from costada.nodes.affordable import ask_within_budget
from costada.nodes.asking import CallKey
from costada.nodes.candidates import load_candidate, shown
from costada.nodes.context import RunContext, controller_of
from costada.nodes.evolution import ask_for_labels, evolve_strategy
from costada.nodes.tactics import TacticBatch, save_batch, tried_tactics
from costada.prompts.render import Prompt, guide_prompt
from costada.prompts.request import GuideRequest
from costada.prompts.tactics import Tactic, parse_tactics

BUYERS = {LABELS: ask_for_labels, STRATEGY: evolve_strategy}
"""Who makes the calls that are no guide for tactics."""


def guide(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Return what the pending call brought: tactics, or what EvoX asks for."""
    buy = BUYERS.get(str(state["controller"]["pending"]), buy_tactics)
    return buy(state, config, context=context)


def buy_tactics(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Return the controller with a new cycle of tactics, or with the failure to get any (B.4.3).

    The calls belong to the step that follows, which is charged for them. A guide that a hard budget
    cannot pay for counts as one without a usable tactic, and the run goes on without it.
    """
    controller = controller_of(state, context)
    iteration = controller.iteration + 1
    prompt = guide_prompt(_request(state, controller, iteration, context))
    tactics = _ask_for_tactics(prompt, iteration, state, config, context)
    batch = TacticBatch(
        mode=str(controller.pending), baseline_score=controller.incumbent_score, tactics=tactics
    )
    save_batch(batch, state["run_id"], iteration, context)
    advised = controller.open_cycle(len(tactics)) if tactics else controller.fail_guide()
    return SearchState(controller=advised.record())


def _request(
    state: SearchState, controller: Controller, iteration: int, context: RunContext
) -> GuideRequest:
    problem = context.problem
    return GuideRequest(
        task=problem.task,
        evaluator_source=problem.evaluator_source,
        best=shown(load_candidate(state["best"], state, context)),
        mode=str(controller.pending),
        tried=tried_tactics(state["run_id"], iteration, context),
        timeout=problem.limits.wall_seconds,
        count=context.settings.constants.tactics_per_guide,
    )


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
