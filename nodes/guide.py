"""Node: buy the guide call that the last step decided on."""

from langchain_core.runnables import RunnableConfig

from costada.controller.algorithm import fail_guide, open_cycle
from costada.controller.state import ControllerState, from_record, to_record
from costada.graph.state import SearchState
from costada.models.failures import ModelFailure
from costada.models.replies import answer_text
from costada.nodes.asking import CallKey, ask_model
from costada.nodes.candidates import load_candidate, shown
from costada.nodes.context import RunContext
from costada.nodes.tactics import TacticBatch, save_batch, tried_tactics
from costada.prompts.render import Prompt, guide_prompt
from costada.prompts.request import GuideRequest
from costada.prompts.tactics import Tactic, parse_tactics


def guide(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Return the controller with a new cycle of tactics, or with the failure to get any (B.4.3).

    The calls belong to the step that follows, which is charged for them.
    """
    controller, constants = from_record(state["controller"]), context.settings.constants
    iteration = controller.iteration + 1
    prompt = guide_prompt(_request(state, controller, iteration, context))
    tactics = _ask_for_tactics(prompt, state["run_id"], iteration, config, context)
    batch = TacticBatch(
        mode=str(controller.pending), baseline_score=controller.incumbent_score, tactics=tactics
    )
    save_batch(batch, state["run_id"], iteration, context)
    advised = open_cycle(controller, len(tactics), constants) if tactics else fail_guide(controller)
    return SearchState(controller=to_record(advised))


def _request(
    state: SearchState, controller: ControllerState, iteration: int, context: RunContext
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
    prompt: Prompt, run_id: str, iteration: int, config: RunnableConfig, context: RunContext
) -> tuple[Tactic, ...]:
    constants = context.settings.constants
    for attempt in range(1, constants.max_guide_calls + 1):
        key = CallKey(run_id, iteration, "guide", attempt)
        answer = ask_model(context.guide_model, prompt, key, config, context)
        if isinstance(answer, ModelFailure):
            continue
        tactics = parse_tactics(answer_text(answer), constants.tactics_per_guide)
        if tactics:
            return tactics
    return ()
