"""Tactics: what a guide is asked, what it gave, and how its tactics went."""

from operator import itemgetter

from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, ConfigDict

from costada.controller.method import is_guided
from costada.models.asking import ModelFailure
from costada.models.reply_content import answer_text
from costada.nodes.calls.paid_calls import ask_for_guide
from costada.nodes.context import RunContext, candidate_of, prompt_view
from costada.nodes.state import SearchState
from costada.prompts.render import Prompt, guide_prompt
from costada.prompts.requests import GuideRequest
from costada.prompts.tactics import Tactic, TriedTactic, parse_tactics
from costada.store.call_log import CallKey
from costada.values.numbering import Iteration, TicketNumber, next_iteration
from costada.values.roles import GUIDE

MAX_TRIED = 10
"""Tactics whose outcomes a guide is shown."""


class TacticBatch(BaseModel):
    """What one guide gave: its mode, the incumbent's score then, and its tactics."""

    model_config = ConfigDict(frozen=True)

    mode: str
    baseline_score: float
    tactics: tuple[Tactic, ...]


def user_tactic(idea: str) -> Tactic:
    """An idea of a user as a tactic."""
    return Tactic(
        idea=idea, description="The user leaves the details to you.", approach_type="user"
    )


def buy_tactics(
    prompt: Prompt,
    number: TicketNumber,
    state: SearchState,
    config: RunnableConfig,
    context: RunContext,
) -> tuple[Tactic, ...]:
    """Ask the guide model until it gives usable tactics; empty when it gives none.

    A guide that a hard budget cannot pay for counts as one without a usable tactic.
    """
    constants = context.constants
    for attempt in range(1, constants.max_guide_calls + 1):
        key = CallKey(state["run"].id, number, GUIDE, attempt)
        answer = ask_for_guide(prompt, key, state, config, context)
        if isinstance(answer, ModelFailure):
            continue
        if tactics := parse_tactics(answer_text(answer), constants.tactics_per_guide):
            return tactics
    return ()


def tactics_prompt(state: SearchState, context: RunContext) -> Prompt:
    """The messages that ask for tactics in the pending mode."""
    problem, controller = context.problem, state["controller"]
    request = GuideRequest(
        task=problem.task,
        evaluator_source=problem.evaluator_source,
        best=prompt_view(candidate_of(state["best"], state, context), problem),
        mode=str(controller.pending),
        tried=tried_tactics(state, context),
        timeout=problem.limits.wall_seconds,
        count=context.constants.tactics_per_guide,
        form=problem.form,
    )
    return guide_prompt(request, context.settings.prompt_order)


def accept_tactics(
    tactics: tuple[Tactic, ...], state: SearchState, context: RunContext
) -> SearchState:
    """Store the tactics of a guide and open their cycle, or note that it gave none."""
    controller = state["controller"]
    if not is_guided(controller):
        raise TypeError(f"controller: got {type(controller).__name__}, expected a guided method")
    mode, score = str(controller.pending), controller.incumbent_score
    batch = TacticBatch(mode=mode, baseline_score=score, tactics=tactics)
    context.store.put_tactics(
        state["run"].id, next_iteration(controller.iteration), batch.model_dump()
    )
    if not tactics:
        return {"controller": controller.fail_guide()}
    return {"controller": controller.open_cycle(len(tactics), context.constants)}


def tried_tactics(state: SearchState, context: RunContext) -> tuple[TriedTactic, ...]:
    """The last `MAX_TRIED` tactics tried so far and how they went, oldest first.

    Ideas of users are among them.
    """
    store, tried, run_id = context.store, list[tuple[Iteration, TriedTactic]](), state["run"].id
    iteration = next_iteration(state["controller"].iteration)
    # not that of the context: a resumed run asks what it asked before
    parallel = state["flight"].parallel
    batches = {
        given: TacticBatch.model_validate_json(record)
        for given, record in store.tactics(run_id, before=iteration, count=MAX_TRIED)
    }
    scores = store.candidates.best_of_batches(
        run_id, [*batches], before=iteration, parallel=parallel
    )
    for (given, batch), best in zip(batches.items(), scores, strict=True):
        gain = 0.0 if best is None else best - batch.baseline_score
        tried += [(given, TriedTactic(tactic, gain)) for tactic in batch.tactics]
    for step, idea, gain in store.inputs.outcomes(run_id, before=iteration, count=MAX_TRIED):
        tried.append((step, TriedTactic(user_tactic(idea), gain)))
    tried.sort(key=itemgetter(0))
    return tuple(tactic for _, tactic in tried[-MAX_TRIED:])
