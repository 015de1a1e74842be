"""What a method decides, as one contract: the loop asks, CostAda or a baseline answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Literal, Protocol, Self

from costada.controller.allocation import Allocation
from costada.controller.archive import Archive, EliteWeights
from costada.controller.credit import Credit
from costada.controller.guidance import GuidanceCycle
from costada.controller.intervention import Intervention
from costada.controller.money import has_crossed

StopReason = Literal["budget", "failures", "iterations"]

OUT_OF_MONEY = "out_of_money"
"""The trace's event of a step whose last attempt a hard budget could not pay for."""

Record = Mapping[str, object]
"""A controller in JSON types."""

LABELS, STRATEGY = "labels", "strategy"
"""Calls that only EvoX buys; the others are named by `Mode`."""


class ParentRule(StrEnum):
    """Where the parent of an attempt comes from.

    `ARCHIVE`: drawn from the frontier's archive by the step's action. `SEED`: always the initial
    program, shown alone. `POPULATION`: chosen by the strategy that EvoX is searching with, among
    all valid candidates of the run.
    """

    ARCHIVE = "archive"
    SEED = "seed"
    POPULATION = "population"


@dataclass(frozen=True, slots=True)
class PaidStep:
    """What one step brought and cost.

    Attributes:
        score: Score of its last attempt (f_t); None when that failed.
        is_kept: Whether its candidate found a place among the parents of later steps.
        cost: Dollars of all calls of the step (c_t). Cost-blind methods must not read it.
        spent: Dollars the ledger shows after the step (C_t). Cost-blind methods must not read it.
    """

    score: float | None
    is_kept: bool
    cost: float
    spent: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a method goes by at the end of a step; 0 where it keeps no such count.

    Attributes:
        stagnation: Steps without the progress that the method asks for (nu_t).
        low_yield_cost: Dollars in a row that earned nothing (L_t).
        consolidation_left: Steps still held to exploit one frontier (w_t).
    """

    stagnation: int = 0
    low_yield_cost: float = 0.0
    consolidation_left: int = 0


class Controller(Protocol):
    """One method between two steps: plain values that never change, only replaced by new ones.

    A step asks, in this order: `allocate`; `open_cycle` or `fail_guide` where a guide was called;
    `use_tactic` for each attempt while a tactic is left; `credit` and `maintain` once it is paid;
    `intervene` at its end. `pending` names the call to buy next, if any.
    """

    @property
    def parents(self) -> ParentRule:
        """Return where parents come from."""
        ...

    @property
    def iteration(self) -> int:
        """Return the iterations completed (t)."""
        ...

    @property
    def incumbent_score(self) -> float:
        """Return the best score of the run (y_t)."""
        ...

    @property
    def pending(self) -> str | None:
        """Return which call is bought before anything else happens: a `Mode`, LABELS, STRATEGY."""
        ...

    @property
    def cycle(self) -> GuidanceCycle | None:
        """Return the batch of tactics under way."""
        ...

    @property
    def evidence(self) -> Evidence:
        """Return what the method goes by."""
        ...

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """Return how each frontier's archive judges a newcomer; one entry per frontier."""
        ...

    def with_budget(self, budget: float) -> Self:
        """Return the controller of a run that may spend so many dollars (B) from here on.

        What was decided before stays decided. A cost-blind method returns itself.
        """
        ...

    def allocate(self, rng: Random) -> Allocation:
        """Return the frontier, action and intensity of the next step."""
        ...

    def open_cycle(self, num_tactics: int) -> Self:
        """Return the controller after the pending guide yielded tactics."""
        ...

    def fail_guide(self) -> Self:
        """Return the controller after the pending guide yielded no usable tactic."""
        ...

    def use_tactic(self) -> tuple[Self, int]:
        """Return the controller after an attempt took a tactic, and the index of that tactic."""
        ...

    def credit(self, allocation: Allocation, step: PaidStep) -> tuple[Self, Credit]:
        """Return the controller after a paid step, and what the step earned."""
        ...

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Return controller and archives after spawning and migration, the same if none is due.

        Called with the archives that the step left, before `intervene`. Archives that did not
        change stay the same objects; new frontiers come last.
        """
        ...

    def intervene(
        self, allocation: Allocation, *, is_last: bool = False
    ) -> tuple[Self, Intervention]:
        """Return the controller at the end of a step, and what was decided there.

        `is_last` says that the run ends with this step: no call is bought for it any more.
        A controller whose `iteration` has not risen buys its pending call for this very step and
        is asked again once that is paid.
        """
        ...

    def record(self) -> Record:
        """Return the controller in JSON types."""
        ...


def stop_reason(
    budget: float,
    spent: float,
    iteration: int,
    max_iterations: int,
    *,
    is_out_of_money: bool = False,
    is_failing: bool = False,
) -> StopReason | None:
    """Return why a run ends after the completed step, None when it goes on (Alg. 1).

    The same for every method: the step that crosses the budget is the last one.

    Args:
        budget: Dollars the run may spend (B).
        spent: Dollars it has spent (C_t).
        iteration: Iterations completed (t).
        max_iterations: Iterations after which a run ends whatever it spent (T_max).
        is_out_of_money: Whether what is left cannot pay for the call that was to be made next.
        is_failing: Whether so many attempts in a row failed that something must be wrong.
    """
    if is_out_of_money or has_crossed(budget, spent):
        return "budget"
    if is_failing:
        return "failures"
    return "iterations" if iteration >= max_iterations else None
