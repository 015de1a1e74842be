"""Tactic batches on their way between the guide, the store and the prompts."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from costada.controller.contract import Controller
from costada.controller.guidance import is_active
from costada.graph.state import SearchState
from costada.nodes.context import RunContext, controller_of
from costada.prompts.tactics import Tactic, outcome_line

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
    controller = controller_of(state, context)
    if not is_active(controller.cycle):
        return controller, None
    used, index = controller.use_tactic()
    batch = _load_batch(state, context)
    return used, Assignment(batch.tactics[index], batch.mode)


def save_batch(batch: TacticBatch, run_id: str, iteration: int, context: RunContext) -> None:
    """Store what the guide gave in an iteration, also when that is nothing."""
    context.store.put_tactics(run_id, iteration, batch.model_dump())


def tried_tactics(run_id: str, iteration: int, context: RunContext) -> tuple[str, ...]:
    """Return one line per tactic tried before an iteration and how it went, oldest first.

    Of many tactics the last `MAX_TRIED` are told.
    """
    records = context.store.tactics(run_id, before=iteration, count=MAX_TRIED)
    lines = [
        line
        for given, record in records
        for line in _outcomes(TacticBatch.model_validate_json(record), run_id, given, context)
    ]
    return tuple(lines[-MAX_TRIED:])


def _load_batch(state: SearchState, context: RunContext) -> TacticBatch:
    records = context.store.tactics(state["run_id"], before=state["iteration"] + 1, count=1)
    return TacticBatch.model_validate_json(records[0][1])


def _outcomes(batch: TacticBatch, run_id: str, given: int, context: RunContext) -> list[str]:
    if not batch.tactics:
        return []
    end = context.store.end_of_batch(run_id, given)
    best = context.store.candidates.best_score(run_id, given, end)
    gain = 0.0 if best is None else best - batch.baseline_score
    return [outcome_line(tactic, gain) for tactic in batch.tactics]
