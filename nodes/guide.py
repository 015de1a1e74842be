"""Node: buy the guide call that was decided on."""

from dataclasses import dataclass
from functools import partial

from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, ConfigDict

from costada.controller.baselines.evox import LABELS, STRATEGY
from costada.controller.guidance import is_active
from costada.controller.method import Controller, Guided
from costada.models.asking import ModelFailure
from costada.models.replies import answer_text
from costada.nodes.calls.asking import CallKey
from costada.nodes.calls.budget import ask_within_budget
from costada.nodes.candidates import load_candidate, shown
from costada.nodes.context import RunContext
from costada.nodes.evox.evolution import (
    ask_for_labels,
    evolution_prompt,
    evolve_strategy,
    labels_prompt,
    without_labels,
    without_strategy,
)
from costada.nodes.state import SearchState
from costada.prompts.render import Prompt, guide_prompt
from costada.prompts.requests import GuideRequest
from costada.prompts.tactics import Tactic, TriedTactic, parse_tactics

MAX_TRIED = 10
"""Tactics whose outcomes a guide is told."""


class TacticBatch(BaseModel):
    """What one guide gave: its mode, the incumbent's score then, and its tactics."""

    model_config = ConfigDict(frozen=True)

    mode: str
    baseline_score: float
    tactics: tuple[Tactic, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The tactic an attempt is to carry out, and the mode of the guide that gave it."""

    tactic: Tactic
    mode: str


def take_tactic(state: SearchState, context: RunContext) -> tuple[Controller, Assignment | None]:
    """Return the controller after one use of the current tactic, and that tactic, if any."""
    controller = state["controller"]
    if not isinstance(controller, Guided) or not is_active(controller.cycle):
        return controller, None
    used, index = controller.use_tactic()
    batch = _load_batch(state, context)
    return used, Assignment(batch.tactics[index], batch.mode)


def save_batch(batch: TacticBatch, run_id: str, iteration: int, context: RunContext) -> None:
    """Store what the guide gave in an iteration, also when that is nothing."""
    context.store.put_tactics(run_id, iteration, batch.model_dump())


def tried_tactics(run_id: str, iteration: int, context: RunContext) -> tuple[TriedTactic, ...]:
    """Tactics tried before an iteration and how they went, oldest first.

    Of many tactics the last `MAX_TRIED` are told.
    """
    records = context.store.tactics(run_id, before=iteration, count=MAX_TRIED)
    tried = [
        each
        for given, record in records
        for each in _outcomes(TacticBatch.model_validate_json(record), run_id, given, context)
    ]
    return tuple(tried[-MAX_TRIED:])


def _load_batch(state: SearchState, context: RunContext) -> TacticBatch:
    records = context.store.tactics(state["run_id"], before=state["iteration"] + 1, count=1)
    return TacticBatch.model_validate_json(records[0][1])


def _outcomes(
    batch: TacticBatch, run_id: str, given: int, context: RunContext
) -> list[TriedTactic]:
    if not batch.tactics:
        return []
    end = context.store.end_of_batch(run_id, given)
    best = context.store.candidates.best_score(run_id, given, end)
    gain = 0.0 if best is None else best - batch.baseline_score
    return [TriedTactic(tactic, gain) for tactic in batch.tactics]


BUYERS = {LABELS: ask_for_labels, STRATEGY: evolve_strategy}
"""Who makes the calls that are no guide for tactics."""

FIRST_PROMPTS = {LABELS: labels_prompt, STRATEGY: evolution_prompt}
"""What they ask first."""

WITHOUT = {LABELS: without_labels, STRATEGY: without_strategy}
"""How the run goes on without them."""


def guide(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Return what the pending call brought: tactics, or what EvoX asks for."""
    buy = BUYERS.get(str(state["controller"].pending), buy_tactics)
    return buy(state, config, context=context)


def buy_tactics(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Return the controller with a new cycle of tactics, or with the failure to get any (B.4.3).

    The calls belong to the step that follows, which is charged for them. A guide that a hard budget
    cannot pay for counts as one without a usable tactic, and the run goes on without it.
    """
    iteration = state["controller"].iteration + 1
    prompt = _tactics_prompt(state, context)
    tactics = _ask_for_tactics(prompt, iteration, state, config, context)
    return _advised(tactics, state, context)


def first_prompt(state: SearchState, context: RunContext) -> Prompt:
    """Return the messages that the pending call begins with."""
    write = FIRST_PROMPTS.get(str(state["controller"].pending), _tactics_prompt)
    return write(state, context)


def go_without(state: SearchState, context: RunContext) -> SearchState:
    """Return what the run goes on with when the pending call is not made: as if it had failed."""
    skip = WITHOUT.get(str(state["controller"].pending), partial(_advised, ()))
    return skip(state, context)


def _advised(tactics: tuple[Tactic, ...], state: SearchState, context: RunContext) -> SearchState:
    controller = state["controller"]
    iteration = controller.iteration + 1
    batch = TacticBatch(
        mode=str(controller.pending), baseline_score=controller.incumbent_score, tactics=tactics
    )
    save_batch(batch, state["run_id"], iteration, context)
    if not isinstance(controller, Guided):
        raise TypeError(f"controller: got {type(controller).__name__}, expected a guided method")
    if not tactics:
        return SearchState(controller=controller.fail_guide())
    return SearchState(controller=controller.open_cycle(len(tactics), context.constants))


def _tactics_prompt(state: SearchState, context: RunContext) -> Prompt:
    problem, controller = context.problem, state["controller"]
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
