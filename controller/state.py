"""All that Algorithm 1 carries from one iteration to the next, and its plain record."""

from dataclasses import dataclass
from typing import TypedDict

from costada.controller.frontier import Frontier
from costada.controller.guidance import GuidanceCycle, Mode


@dataclass(frozen=True, slots=True)
class ControllerState:
    """The controller between two steps of Algorithm 1.

    Attributes:
        budget: Dollars the run may spend (B).
        spent: Dollars spent according to the ledger (C_t).
        iteration: Iterations completed (t).
        frontiers: Statistics of each frontier, by index.
        incumbent_score: Best score of the run (y_t).
        stagnation: Steps in a row without meaningful progress (nu_t, B.4.1).
        low_yield_cost: Dollars in a row that earned nothing (L_t, B.4.1).
        guidance_proven: Whether guidance has ever succeeded (Z_t, B.4.3).
        mode_override: Correction of the next guide's mode (o_t, B.4.3).
        consolidation_left: Steps still held to exploit one frontier (w_t, B.4.4).
        held_frontier: Index of that frontier, None before the first success (kappa_t, B.4.4).
        cycle: Batch of tactics under way (G_t, B.4.3).
        pending: Mode of the guide to call in the next step, None for no guide.
        guide_failed: Whether the step under way paid for a guide without a usable tactic.
    """

    budget: float
    spent: float
    iteration: int
    frontiers: tuple[Frontier, ...]
    incumbent_score: float
    stagnation: int = 0
    low_yield_cost: float = 0.0
    guidance_proven: bool = False
    mode_override: Mode | None = None
    consolidation_left: int = 0
    held_frontier: int | None = None
    cycle: GuidanceCycle | None = None
    pending: Mode | None = None
    guide_failed: bool = False


class FrontierRecord(TypedDict):
    """A `Frontier` in JSON types."""

    best_score: float
    smoothed_utility: float
    allocation_estimate: float
    visits: int


class CycleRecord(TypedDict):
    """A `GuidanceCycle` in JSON types."""

    mode: str
    baseline_score: float
    uses_left: list[int]
    next_tactic: int
    is_guided: bool
    has_succeeded: bool


class ControllerRecord(TypedDict):
    """A `ControllerState` in JSON types."""

    budget: float
    spent: float
    iteration: int
    frontiers: list[FrontierRecord]
    incumbent_score: float
    stagnation: int
    low_yield_cost: float
    guidance_proven: bool
    mode_override: str | None
    consolidation_left: int
    held_frontier: int | None
    cycle: CycleRecord | None
    pending: str | None
    guide_failed: bool


def to_record(state: ControllerState) -> ControllerRecord:
    """Return the state as plain JSON values; `from_record` gives back an equal state."""
    return ControllerRecord(
        budget=state.budget,
        spent=state.spent,
        iteration=state.iteration,
        frontiers=[_frontier_record(frontier) for frontier in state.frontiers],
        incumbent_score=state.incumbent_score,
        stagnation=state.stagnation,
        low_yield_cost=state.low_yield_cost,
        guidance_proven=state.guidance_proven,
        mode_override=_mode_name(state.mode_override),
        consolidation_left=state.consolidation_left,
        held_frontier=state.held_frontier,
        cycle=None if state.cycle is None else _cycle_record(state.cycle),
        pending=_mode_name(state.pending),
        guide_failed=state.guide_failed,
    )


def from_record(record: ControllerRecord) -> ControllerState:
    """Return the state a record describes.

    Raises:
        ValueError: A mode is not one of `Mode`.
    """
    return ControllerState(
        budget=record["budget"],
        spent=record["spent"],
        iteration=record["iteration"],
        frontiers=tuple(Frontier(**frontier) for frontier in record["frontiers"]),
        incumbent_score=record["incumbent_score"],
        stagnation=record["stagnation"],
        low_yield_cost=record["low_yield_cost"],
        guidance_proven=record["guidance_proven"],
        mode_override=_mode("mode_override", record["mode_override"]),
        consolidation_left=record["consolidation_left"],
        held_frontier=record["held_frontier"],
        cycle=None if record["cycle"] is None else _cycle(record["cycle"]),
        pending=_mode("pending", record["pending"]),
        guide_failed=record["guide_failed"],
    )


def _frontier_record(frontier: Frontier) -> FrontierRecord:
    return FrontierRecord(
        best_score=frontier.best_score,
        smoothed_utility=frontier.smoothed_utility,
        allocation_estimate=frontier.allocation_estimate,
        visits=frontier.visits,
    )


def _cycle_record(cycle: GuidanceCycle) -> CycleRecord:
    return CycleRecord(
        mode=cycle.mode.value,
        baseline_score=cycle.baseline_score,
        uses_left=list(cycle.uses_left),
        next_tactic=cycle.next_tactic,
        is_guided=cycle.is_guided,
        has_succeeded=cycle.has_succeeded,
    )


def _cycle(record: CycleRecord) -> GuidanceCycle:
    return GuidanceCycle(
        mode=_known_mode("cycle.mode", record["mode"]),
        baseline_score=record["baseline_score"],
        uses_left=tuple(record["uses_left"]),
        next_tactic=record["next_tactic"],
        is_guided=record["is_guided"],
        has_succeeded=record["has_succeeded"],
    )


def _mode_name(mode: Mode | None) -> str | None:
    return None if mode is None else mode.value


def _mode(field: str, name: str | None) -> Mode | None:
    return None if name is None else _known_mode(field, name)


def _known_mode(field: str, name: str) -> Mode:
    if name not in set(Mode):
        raise ValueError(f"{field}: got {name!r}, expected one of {[mode.value for mode in Mode]}")
    return Mode(name)
