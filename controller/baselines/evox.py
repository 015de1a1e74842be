"""EvoX: one population, searched by a strategy that the model rewrites; blind to cost."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import floor, log1p, sqrt
from random import Random
from typing import ClassVar, Self, TypedDict, cast

from costada.controller.allocation import Allocation
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights
from costada.controller.baselines.progress import CostBlind
from costada.controller.constants import Constants
from costada.controller.credit import Credit, normalized_gain
from costada.controller.frontier import higher_score
from costada.controller.guidance import GuidanceCycle
from costada.controller.intensity import Action
from costada.controller.intervention import Intervention
from costada.controller.method import LABELS, STRATEGY, Evidence, PaidStep, ParentRule, Record

IMPROVEMENT_THRESHOLD = 0.01
"""Rise of the best score within one iteration that counts as progress."""

SWITCH_SHARE = 0.1
"""Part of all iterations that may pass without progress before the strategy is replaced."""


def switch_interval(constants: Constants) -> int:
    """Return the stagnant iterations after which the strategy evolves, at least 1 (s)."""
    return max(1, floor(SWITCH_SHARE * constants.max_iterations))


def strategy_stagnation(previous: int, last_score: float | None, score: float) -> int:
    """Return the iterations in a row that raised the best score by the threshold or less.

    Args:
        previous: The count before this iteration.
        last_score: Best score after the iteration before; None after the first one.
        score: Best score after this iteration.
    """
    if last_score is None or score - last_score > IMPROVEMENT_THRESHOLD:
        return 0
    return previous + 1


def window_score(start: float, end: float, horizon: int) -> float:
    """Return what a strategy is worth, at least 0 (J).

    Args:
        start: Best score when the strategy came into use.
        end: Best score since; one below the start counts as the start.
        horizon: The switch interval, however long the window was (s).
    """
    rise = max(start, end) - start
    return rise * (1.0 + log1p(max(0.0, start))) / sqrt(horizon)


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


@dataclass(frozen=True, slots=True)
class EvoX(CostBlind):
    """The controller of EvoX: it decides when a new strategy is due, and scores the old ones.

    Strategies are known by the names of their texts. A run begins with the initial strategy and
    buys the labels first. Where the search stagnates, `intervene` asks for the STRATEGY call in
    the same step; `adopt` or `keep_strategy` tells what came of it.
    """

    state: EvoXState
    constants: Constants

    parents: ClassVar[ParentRule] = ParentRule.POPULATION

    @classmethod
    def start(cls, seed_score: float, budget: float, constants: Constants) -> Self:
        """Return the controller before the first step; the budget means nothing to it."""
        return cls(EvoXState(0, seed_score, seed_score), constants)

    @classmethod
    def load(cls, record: Record, constants: Constants) -> Self:
        """Return the controller that a record describes."""
        return cls(from_record(cast(EvoXRecord, record)), constants)

    def record(self) -> Record:
        """Return the controller in JSON types."""
        return to_record(self.state)

    @property
    def iteration(self) -> int:
        """Return the iterations completed (t)."""
        return self.state.iteration

    @property
    def incumbent_score(self) -> float:
        """Return the best score of the run (y_t)."""
        return self.state.incumbent_score

    @property
    def pending(self) -> str | None:
        """Return LABELS before the first step, STRATEGY where an evolution is due."""
        return self.state.pending

    @property
    def cycle(self) -> GuidanceCycle | None:
        """Return None: there are no tactics."""
        return None

    @property
    def evidence(self) -> Evidence:
        """Return the iterations in a row without an improvement above the threshold."""
        return Evidence(stagnation=self.state.stagnation)

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """Return the weights of the one frontier; no parent comes from its archive."""
        return (FITNESS_ONLY,)

    @property
    def strategy(self) -> str:
        """Return the name of the strategy in use; "" for the initial one."""
        return self.state.active

    def allocate(self, rng: Random) -> Allocation:
        """Return the one frontier; the strategy chooses everything else."""
        return Allocation(0, Action.BALANCED, 0.0)

    def open_cycle(self, num_tactics: int) -> Self:
        """Refuse tactics.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"num_tactics: got {num_tactics}, expected no tactics in EvoX")

    def fail_guide(self) -> Self:
        """Return the controller after the label call came to nothing.

        Raises:
            ValueError: No labels are pending.
        """
        return self.with_labels()

    def use_tactic(self) -> tuple[Self, int]:
        """Refuse to name a tactic.

        Raises:
            ValueError: Always.
        """
        raise ValueError("cycle: got None, expected a method with tactics")

    def with_labels(self) -> Self:
        """Return the controller after the label call, whatever it brought.

        Raises:
            ValueError: No labels are pending.
        """
        self._require(LABELS)
        return self._with(replace(self.state, pending=None))

    def credit(self, allocation: Allocation, step: PaidStep) -> tuple[Self, Credit]:
        """Return the controller after a paid step, and its gains; EvoX credits nothing else."""
        gain = normalized_gain(step.score, self.incumbent_score)
        best_score = higher_score(self.incumbent_score, step.score)
        earned = Credit(gain, gain, cost_divisor=1.0, utility=0.0, allocation_reward=0.0)
        return self._with(replace(self.state, incumbent_score=best_score)), earned

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Return both as they are: nothing spawns or migrates."""
        return self, archives

    def intervene(
        self, allocation: Allocation, *, is_last: bool = False
    ) -> tuple[Self, Intervention]:
        """Return the controller at the end of a step, or with the evolution due before it.

        Stagnation is judged once per step, and not in the last one of the run, whose strategy
        could not be used. The notes say what became of the strategy in this step.

        Raises:
            ValueError: A call is pending.
        """
        self._require(None)
        state = self.state
        if not state.has_evolved and not is_last:
            state = self._judged()
        if state.pending is None:
            state = replace(
                state,
                iteration=state.iteration + 1,
                has_evolved=False,
                has_fallen_back=False,
            )
        return self._with(state), Intervention(None, False, False, notes=self._notes())

    def _judged(self) -> EvoXState:
        state, score = self.state, self.incumbent_score
        stagnation = strategy_stagnation(state.stagnation, state.last_score, score)
        is_due = stagnation >= switch_interval(self.constants)
        return replace(
            state,
            last_score=score,
            stagnation=0 if is_due else stagnation,
            pending=STRATEGY if is_due else None,
        )

    def _notes(self) -> tuple[str, ...]:
        happened = {
            "strategy_failed": self.state.has_fallen_back,
            "strategy_adopted": self.state.has_evolved and not self.state.is_scored,
            "strategy_kept": self.state.has_evolved and self.state.is_scored,
        }
        return tuple(event for event, is_true in happened.items() if is_true)

    def strategy_score(self) -> float | None:
        """Return what the strategy in use is worth so far (J), None if it has been scored."""
        if self.state.is_scored:
            return None
        interval = switch_interval(self.constants)
        return window_score(self.state.window_start, self.incumbent_score, interval)

    def scored_strategies(self) -> tuple[ScoredStrategy, ...]:
        """Return all strategies with a score, the one in use included, oldest first."""
        score, state = self.strategy_score(), self.state
        if score is None:
            return state.scored
        ends = state.window_start, state.incumbent_score
        until = state.iteration + (state.pending == STRATEGY)
        return (
            *state.scored,
            ScoredStrategy(state.active, score, state.active_since, until, *ends),
        )

    def draw_strategies(self, rng: Random) -> tuple[ScoredStrategy, tuple[ScoredStrategy, ...]]:
        """Return the strategy to improve on, the best there is, and those shown beside it."""
        scored = self.scored_strategies()
        parent = best_strategy(scored)
        return parent, draw_context(scored, parent, rng)

    def adopt(self, strategy: str) -> Self:
        """Return the controller with a new strategy in use and the old one to fall back on.

        Args:
            strategy: Name of the new strategy's text.

        Raises:
            ValueError: No evolution is pending, or the name is empty.
        """
        if not strategy:
            raise ValueError("strategy: got an empty text, expected the name of a new strategy")
        return self._with(
            replace(
                self.keep_strategy().state,
                active=strategy,
                active_since=self.iteration + 1,
                is_scored=False,
                fallback=self.state.active,
            )
        )

    def keep_strategy(self) -> Self:
        """Return the controller after an evolution that brought no valid strategy.

        Raises:
            ValueError: No evolution is pending.
        """
        self._require(STRATEGY)
        return self._with(
            replace(
                self.state,
                scored=self.scored_strategies(),
                is_scored=True,
                window_start=self.incumbent_score,
                has_evolved=True,
                pending=None,
            )
        )

    def fall_back(self) -> Self:
        """Return the controller after the strategy in use has failed.

        The one before it is in use again, or the initial one if that has been used up. What has
        failed gets no score. The initial strategy stays.
        """
        if self.state.active == INITIAL_STRATEGY:
            return self
        return self._with(
            replace(
                self.state,
                active=self.state.fallback or INITIAL_STRATEGY,
                active_since=self.iteration,
                is_scored=True,
                fallback=None,
                has_fallen_back=True,
            )
        )

    def _require(self, pending: str | None) -> None:
        if self.pending != pending:
            raise ValueError(f"pending: got {self.pending!r}, expected {pending!r}")

    def _with(self, state: EvoXState) -> Self:
        return type(self)(state, self.constants)
