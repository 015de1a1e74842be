"""All that AdaEvolve carries from one iteration to the next, and its plain record."""

from dataclasses import dataclass, replace
from math import inf
from typing import TypedDict

from costada.controller.baselines.adaevolve_frontier import AdaEvolveFrontier
from costada.controller.baselines.progress import Progress
from costada.controller.baselines.spawning import NEVER_SPAWNED, PRESETS
from costada.controller.guidance import GuidanceCycle, Mode


@dataclass(frozen=True, slots=True)
class AdaEvolveState:
    """AdaEvolve between two steps; nothing in it is money.

    Attributes:
        progress: Steps and scores of the run.
        frontiers: Statistics of each frontier, by index.
        global_best: Best score booked on any frontier, which rewards are relative to (gbest).
        history: Whether each of the last entered candidates became the incumbent (h).
        last_spawn: Iteration in which a frontier was last added.
        cycle: Batch of tactics under way.
        is_guide_pending: Whether the next step begins with a guide.
    """

    progress: Progress
    frontiers: tuple[AdaEvolveFrontier, ...]
    global_best: float
    history: tuple[bool, ...]
    last_spawn: int = NEVER_SPAWNED
    cycle: GuidanceCycle | None = None
    is_guide_pending: bool = False


def booked(state: AdaEvolveState, index: int, frontier: AdaEvolveFrontier) -> AdaEvolveState:
    """Return the state with new statistics of one frontier; they may raise the global best."""
    return replace(
        state,
        frontiers=(*state.frontiers[:index], frontier, *state.frontiers[index + 1 :]),
        global_best=max(state.global_best, frontier.best_score),
    )


class AdaEvolveFrontierRecord(TypedDict):
    """An `AdaEvolveFrontier` in JSON types; a best score of -inf is None."""

    best_score: float | None
    signal: float
    improvements: int
    evaluations: int
    visits: int
    reward: float
    decayed_visits: float
    preset: str | None


class BatchRecord(TypedDict):
    """A `GuidanceCycle` of AdaEvolve in JSON types: its mode is always breakthrough."""

    baseline_score: float
    uses_left: list[int]
    next_tactic: int
    is_guided: bool


class AdaEvolveRecord(TypedDict):
    """An `AdaEvolveState` in JSON types."""

    iteration: int
    pending: str | None
    incumbent_score: float
    stagnation: int
    frontiers: list[AdaEvolveFrontierRecord]
    global_best: float
    history: list[bool]
    last_spawn: int
    cycle: BatchRecord | None


def to_record(state: AdaEvolveState) -> AdaEvolveRecord:
    """Return the state as plain JSON values; `from_record` gives back an equal state."""
    return AdaEvolveRecord(
        iteration=state.progress.iteration,
        pending=Mode.BREAKTHROUGH.value if state.is_guide_pending else None,
        incumbent_score=state.progress.incumbent_score,
        stagnation=state.progress.stagnation,
        frontiers=[_frontier_record(frontier) for frontier in state.frontiers],
        global_best=state.global_best,
        history=list(state.history),
        last_spawn=state.last_spawn,
        cycle=None if state.cycle is None else _batch_record(state.cycle),
    )


def from_record(record: AdaEvolveRecord) -> AdaEvolveState:
    """Return the state a record describes.

    Raises:
        ValueError: A preset or the pending mode is unknown.
    """
    if record["pending"] not in (None, Mode.BREAKTHROUGH):
        raise ValueError(f"pending: got {record['pending']!r}, expected 'breakthrough' or None")
    return AdaEvolveState(
        progress=Progress(record["iteration"], record["incumbent_score"], record["stagnation"]),
        frontiers=tuple(map(_frontier, record["frontiers"])),
        global_best=record["global_best"],
        history=tuple(record["history"]),
        last_spawn=record["last_spawn"],
        cycle=None if record["cycle"] is None else _batch(record["cycle"]),
        is_guide_pending=record["pending"] is not None,
    )


def _frontier_record(frontier: AdaEvolveFrontier) -> AdaEvolveFrontierRecord:
    return AdaEvolveFrontierRecord(
        best_score=None if frontier.best_score == -inf else frontier.best_score,
        signal=frontier.signal,
        improvements=frontier.improvements,
        evaluations=frontier.evaluations,
        visits=frontier.visits,
        reward=frontier.reward,
        decayed_visits=frontier.decayed_visits,
        preset=frontier.preset,
    )


def _frontier(record: AdaEvolveFrontierRecord) -> AdaEvolveFrontier:
    if record["preset"] is not None and record["preset"] not in PRESETS:
        raise ValueError(f"preset: got {record['preset']!r}, expected one of {list(PRESETS)}")
    return AdaEvolveFrontier(
        best_score=-inf if record["best_score"] is None else record["best_score"],
        signal=record["signal"],
        improvements=record["improvements"],
        evaluations=record["evaluations"],
        visits=record["visits"],
        reward=record["reward"],
        decayed_visits=record["decayed_visits"],
        preset=record["preset"],
    )


def _batch_record(cycle: GuidanceCycle) -> BatchRecord:
    return BatchRecord(
        baseline_score=cycle.baseline_score,
        uses_left=list(cycle.uses_left),
        next_tactic=cycle.next_tactic,
        is_guided=cycle.is_guided,
    )


def _batch(record: BatchRecord) -> GuidanceCycle:
    return GuidanceCycle(
        mode=Mode.BREAKTHROUGH,
        baseline_score=record["baseline_score"],
        uses_left=tuple(record["uses_left"]),
        next_tactic=record["next_tactic"],
        is_guided=record["is_guided"],
    )
