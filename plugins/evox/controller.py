"""EvoX: one population, searched by a strategy that the model rewrites; blind to cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log1p, sqrt
from random import Random
from typing import ClassVar, Self

from costada.controller.allocation import Action, Allocation, higher_score
from costada.controller.baselines.incumbent_progress import checked_seed_score
from costada.controller.constants import Constants
from costada.controller.credit import Balance, Credit, normalized_gain
from costada.controller.guidance import Intervention
from costada.controller.method import Evidence, PaidStep, ParentRule
from costada.values.numbering import START, Iteration, next_iteration

LABELS, STRATEGY = "labels", "strategy"
"""The calls that EvoX buys: what its labels stand for, and a new search strategy."""

IMPROVEMENT_THRESHOLD = 0.01
"""Rise of the best score within one iteration that counts as progress."""

SWITCH_SHARE = 0.1
"""Part of all iterations that may pass without progress before the strategy is replaced."""


def switch_interval(constants: Constants) -> int:
    """The stagnant iterations after which the strategy evolves, at least 1 (s)."""
    return max(1, floor(SWITCH_SHARE * constants.max_iterations))


def strategy_stagnation(previous: int, last_score: float | None, score: float) -> int:
    """The iterations in a row that raised the best score by the threshold or less.

    Args:
        previous: The count before this iteration.
        last_score: Best score after the iteration before; None after the first one.
        score: Best score after this iteration.
    """
    if last_score is None or score - last_score > IMPROVEMENT_THRESHOLD:
        return 0
    return previous + 1


def window_score(start: float, end: float, horizon: int) -> float:
    """What a strategy is worth, at least 0 (J).

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
    since: Iteration
    until: Iteration
    start: float
    end: float


def best_strategy(scored: Sequence[ScoredStrategy]) -> ScoredStrategy:
    """The strategy with the highest score, the oldest on a tie.

    Raises:
        ValueError: No strategy has a score.
    """
    if not scored:
        raise ValueError("scored: got none, expected at least one strategy with a score")
    return max(scored, key=lambda each: each.score)


def draw_context(
    scored: Sequence[ScoredStrategy], parent: ScoredStrategy, rng: Random
) -> tuple[ScoredStrategy, ...]:
    """The strategies shown beside the parent, drawn from the others with a score.

    A text that was in use more than once counts once, with its best score.
    """
    ranked = sorted(scored, key=lambda each: each.score)
    others = {each.strategy: each for each in ranked if each.strategy != parent.strategy}
    drawn = rng.sample(sorted(others), min(NUM_CONTEXT_STRATEGIES, len(others)))
    return tuple(others[name] for name in drawn)


@dataclass(frozen=True, slots=True)
class EvoX:
    """The controller of EvoX: it decides when a new strategy is due, and scores the old ones.

    Strategies are known by the names of their texts. A run begins with the initial strategy and
    buys the labels first. Where the search stagnates, `review` asks for the STRATEGY call before
    the step is charged and told; `adopt` or `keep_strategy` tells what came of it.

    Attributes:
        iteration: Iterations completed (t).
        incumbent_score: Best score of the run (y_t).
        reviewed_score: The same with the step that is under review, None outside of a review.
        window_start: Best score when the window of the active strategy began.
        last_score: Best score at the last test for stagnation; None before the first.
        stagnation: Iterations in a row without an improvement above the threshold.
        strategy: Name of the strategy in use; "" for the initial one.
        active_since: Iterations completed when it came into use.
        is_scored: Whether its window is over, so that it is not scored again.
        fallback: Name of the strategy to return to; None if there is none.
        scored: The strategies with a score, oldest first.
        has_evolved: Whether the current step has had its evolution.
        has_fallen_back: Whether a strategy failed in the current step.
        pending: The call to buy next.
        labels: Names of the texts behind the labels "diverge" and "refine".
    """

    iteration: Iteration
    incumbent_score: float
    window_start: float
    last_score: float | None = None
    stagnation: int = 0
    strategy: str = INITIAL_STRATEGY
    active_since: Iteration = START
    is_scored: bool = False
    fallback: str | None = None
    scored: tuple[ScoredStrategy, ...] = ()
    has_evolved: bool = False
    has_fallen_back: bool = False
    pending: str | None = LABELS
    labels: tuple[str, str] = ("", "")
    reviewed_score: float | None = None

    parents: ClassVar[ParentRule] = ParentRule.POPULATION

    @classmethod
    def start(cls, seed_score: float, constants: Constants) -> Self:
        """The controller before the first step, which buys the labels."""
        score = checked_seed_score(seed_score)
        return cls(START, score, score)

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        """The one frontier; the strategy chooses everything else."""
        return Allocation(0, Action.BALANCED, 0.0)

    def record(self) -> Evidence:
        """The iterations in a row without an improvement above the threshold."""
        return Evidence(stagnation=self.stagnation)

    def with_labels(self, diverge: str = "", refine: str = "") -> Self:
        """The controller after the label call, with the names of the texts that it brought.

        Raises:
            ValueError: No labels are pending.
        """
        self._require(LABELS)
        return replace(self, pending=None, labels=(diverge, refine))

    def tell(
        self, allocation: Allocation, step: PaidStep, balance: Balance, constants: Constants
    ) -> tuple[Self, Credit]:
        """Note the score of a paid step; EvoX credits nothing but the gain."""
        gain = normalized_gain(step.score, self.incumbent_score)
        score = higher_score(self.incumbent_score, step.score)
        updated = replace(self, incumbent_score=score, reviewed_score=None)
        return updated, Credit(gain, gain, cost_divisor=1.0, utility=0.0, allocation_reward=0.0)

    def decide(
        self,
        allocation: Allocation,
        balance: Balance,
        constants: Constants,
        *,
        is_last: bool = False,
    ) -> tuple[Self, Intervention]:
        """End a step; the notes say what became of the strategy in it.

        Raises:
            ValueError: A call is pending.
        """
        self._require(None)
        happened = {
            "strategy_failed": self.has_fallen_back,
            "strategy_adopted": self.has_evolved and not self.is_scored,
            "strategy_kept": self.has_evolved and self.is_scored,
        }
        notes = tuple(event for event, is_true in happened.items() if is_true)
        ended = replace(
            self,
            iteration=next_iteration(self.iteration),
            has_evolved=False,
            has_fallen_back=False,
        )
        return ended, Intervention(None, False, False, notes)

    @property
    def best_score(self) -> float:
        """Best score of the run, the step under review included."""
        return self.incumbent_score if self.reviewed_score is None else self.reviewed_score

    def review(self, score: float | None, constants: Constants) -> Self:
        """Ask for the evolution that is due, with the score of a step that has not been told.

        A step is reviewed once, but not the last one of a run, whose strategy could not be used.

        Raises:
            ValueError: A call is pending.
        """
        self._require(None)
        best = higher_score(self.incumbent_score, score)
        count = strategy_stagnation(self.stagnation, self.last_score, best)
        is_due = count >= switch_interval(constants)
        return replace(
            self,
            reviewed_score=best,
            last_score=best,
            stagnation=0 if is_due else count,
            pending=STRATEGY if is_due else None,
        )

    def strategy_score(self, constants: Constants) -> float | None:
        """What the strategy in use is worth so far (J), None if it has been scored."""
        if self.is_scored:
            return None
        return window_score(self.window_start, self.best_score, switch_interval(constants))

    def scored_strategies(self, constants: Constants) -> tuple[ScoredStrategy, ...]:
        """All strategies with a score, the one in use included, oldest first."""
        score = self.strategy_score(constants)
        if score is None:
            return self.scored
        ends = self.window_start, self.best_score
        until = next_iteration(self.iteration) if self.pending == STRATEGY else self.iteration
        active = ScoredStrategy(self.strategy, score, self.active_since, until, *ends)
        return (*self.scored, active)

    def draw_strategies(
        self, rng: Random, constants: Constants
    ) -> tuple[ScoredStrategy, tuple[ScoredStrategy, ...]]:
        """The strategy to improve on, the best there is, and those shown beside it."""
        scored = self.scored_strategies(constants)
        parent = best_strategy(scored)
        return parent, draw_context(scored, parent, rng)

    def adopt(self, strategy: str, constants: Constants) -> Self:
        """The controller with a new strategy in use and the old one to fall back on.

        Args:
            strategy: Name of the new strategy's text.
            constants: The method's constants.

        Raises:
            ValueError: No evolution is pending, or the name is empty.
        """
        if not strategy:
            raise ValueError("strategy: got an empty text, expected the name of a new strategy")
        return replace(
            self.keep_strategy(constants),
            strategy=strategy,
            active_since=next_iteration(self.iteration),
            is_scored=False,
            fallback=self.strategy,
        )

    def keep_strategy(self, constants: Constants) -> Self:
        """The controller after an evolution that brought no valid strategy.

        Raises:
            ValueError: No evolution is pending.
        """
        self._require(STRATEGY)
        return replace(
            self,
            scored=self.scored_strategies(constants),
            is_scored=True,
            window_start=self.best_score,
            has_evolved=True,
            pending=None,
        )

    def fall_back(self) -> Self:
        """The controller after the strategy in use has failed.

        The one before it is in use again, or the initial one if that has been used up. What has
        failed gets no score. The initial strategy stays.
        """
        if self.strategy == INITIAL_STRATEGY:
            return self
        return replace(
            self,
            strategy=self.fallback or INITIAL_STRATEGY,
            active_since=self.iteration,
            is_scored=True,
            fallback=None,
            has_fallen_back=True,
        )

    def _require(self, pending: str | None) -> None:
        if self.pending != pending:
            raise ValueError(f"pending: got {self.pending!r}, expected {pending!r}")
