"""All that EvoX carries from one iteration to the next, and its plain record."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import TypedDict, cast

from costada.controller.contract import LABELS

INITIAL_STRATEGY = ""
"""Name of the strategy that every run begins with."""

NUM_CONTEXT_STRATEGIES = 2
"""Strategies shown beside the one to improve on."""


@dataclass(frozen=True, slots=True)
class ScoredStrategy:
    """A strategy whose time at work is over.

    Attributes:
        strategy: Name of its text; "" for the initial one.
        score: What its window was worth (J).
        since: Iterations completed when it came into use.
        until: Iterations completed when it was scored.
        start: Best score when its window began.
        end: Best score when its window ended.
    """

    strategy: str
    score: float
    since: int
    until: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class EvoXState:
    """EvoX between two steps.

    Attributes:
        iteration: Iterations completed (t).
        incumbent_score: Best score of the run (y_t).
        window_start: Best score when the window of the active strategy began.
        last_score: Best score at the last test for stagnation; None before the first.
        stagnation: Iterations in a row without an improvement above the threshold.
        active: Name of the strategy in use; "" for the initial one.
        active_since: Iterations completed when it came into use.
        is_scored: Whether its window is over, so that it is not scored again.
        fallback: Name of the strategy to return to; None if there is none.
        scored: The strategies with a score, oldest first.
        has_evolved: Whether the step under way has had its evolution.
        has_fallen_back: Whether a strategy failed in the step under way.
        pending: The call to buy next.
    """

    iteration: int
    incumbent_score: float
    window_start: float
    last_score: float | None = None
    stagnation: int = 0
    active: str = INITIAL_STRATEGY
    active_since: int = 0
    is_scored: bool = False
    fallback: str | None = None
    scored: tuple[ScoredStrategy, ...] = ()
    has_evolved: bool = False
    has_fallen_back: bool = False
    pending: str | None = LABELS


class ScoredRecord(TypedDict):
    """A `ScoredStrategy` in JSON types."""

    strategy: str
    score: float
    since: int
    until: int
    start: float
    end: float


class EvoXRecord(TypedDict):
    """An `EvoXState` in JSON types."""

    iteration: int
    incumbent_score: float
    window_start: float
    last_score: float | None
    stagnation: int
    active: str
    active_since: int
    is_scored: bool
    fallback: str | None
    scored: list[ScoredRecord]
    has_evolved: bool
    has_fallen_back: bool
    pending: str | None


def to_record(state: EvoXState) -> EvoXRecord:
    """Return the state as plain JSON values; `from_record` gives back an equal state."""
    values = asdict(state)
    return cast(EvoXRecord, {**values, "scored": list(values["scored"])})


def from_record(record: EvoXRecord) -> EvoXState:
    """Return the state a record describes."""
    return EvoXState(
        iteration=record["iteration"],
        incumbent_score=record["incumbent_score"],
        window_start=record["window_start"],
        last_score=record["last_score"],
        stagnation=record["stagnation"],
        active=record["active"],
        active_since=record["active_since"],
        is_scored=record["is_scored"],
        fallback=record["fallback"],
        scored=tuple(ScoredStrategy(**each) for each in record["scored"]),
        has_evolved=record["has_evolved"],
        has_fallen_back=record["has_fallen_back"],
        pending=record["pending"],
    )


def best_strategy(scored: Sequence[ScoredStrategy]) -> ScoredStrategy:
    """Return the strategy with the highest score, the oldest on a tie.

    Raises:
        ValueError: No strategy has a score.
    """
    if not scored:
        raise ValueError("scored: got none, expected at least one strategy with a score")
    return max(scored, key=lambda each: each.score)


def draw_context(
    scored: Sequence[ScoredStrategy], parent: ScoredStrategy, rng: Random
) -> tuple[ScoredStrategy, ...]:
    """Return the strategies shown beside the parent, drawn from the others with a score.

    A text that was in use more than once counts once, with its best score.
    """
    ranked = sorted(scored, key=lambda each: each.score)
    others = {each.strategy: each for each in ranked if each.strategy != parent.strategy}
    drawn = rng.sample(sorted(others), min(NUM_CONTEXT_STRATEGIES, len(others)))
    return tuple(others[name] for name in drawn)
