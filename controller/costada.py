"""CostAda as a method of the loop: Algorithm 1 behind the contract of all methods."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from random import Random
from typing import ClassVar, Self, cast

from costada.controller.allocation import Allocation, allocation_reward, select_frontier
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights
from costada.controller.constants import Constants
from costada.controller.credit import (
    Credit,
    cost_divisor,
    global_weight,
    is_low_yield,
    low_yield_cost,
    normalized_gain,
    stagnation,
    utility,
)
from costada.controller.frontier import (
    Frontier,
    higher_score,
    raised,
    total_visits,
    visited,
    with_frontier,
)
from costada.controller.guidance import (
    GuidanceCycle,
    Mode,
    after_step,
    after_use,
    backs_off,
    consolidation_left,
    current_tactic,
    cycle_succeeded,
    failed_mode,
    guide_mode,
    held_frontier,
    is_active,
    mode_override,
    new_cycle,
)
from costada.controller.intensity import Action, bootstrap_action, intensity, sample_action
from costada.controller.intervention import (
    Intervention,
    can_afford_guide,
    has_low_yield,
    is_free_for_guide,
    is_stagnant,
    should_intervene,
)
from costada.controller.method import Evidence, PaidStep, ParentRule, Record
from costada.controller.migration import migrate
from costada.controller.money import normalized_cost, remaining_ratio
from costada.controller.state import ControllerRecord, ControllerState, from_record, to_record


def start(seed_score: float, budget: float, constants: Constants) -> ControllerState:
    """Return the state before the first step: every frontier holds the seed (Alg. 1).

    Args:
        seed_score: Score of the initial program (y_0); benchmarks score from 0, a user's own
            evaluator may score below.
        budget: Dollars the run may spend (B).
        constants: Source of the number of frontiers.

    Raises:
        ValueError: The seed score is not finite, or the budget is not above 0.
    """
    _require(isfinite(seed_score), "seed_score", seed_score, "a finite number")
    _require(isfinite(budget) and budget > 0, "budget", budget, "finite dollars above 0")
    return ControllerState(
        budget=float(budget),
        spent=0.0,
        iteration=0,
        frontiers=(Frontier(best_score=float(seed_score)),) * constants.num_frontiers,
        incumbent_score=float(seed_score),
    )


def allocate(state: ControllerState, rng: Random, constants: Constants) -> Allocation:
    """Return the frontier, action and intensity of the next step (Sec. 4.3, B.2, B.4.4).

    A consolidation holds its frontier and exploits at the lowest intensity. `rng` is read only
    when neither consolidation nor a first visit prescribes the action.
    """
    if state.consolidation_left > 0 and state.held_frontier is not None:
        return Allocation(state.held_frontier, Action.EXPLOITATION, constants.min_intensity)
    ratio = remaining_ratio(state.budget, state.spent)
    index = select_frontier(state.frontiers, ratio, constants)
    frontier = state.frontiers[index]
    strength = intensity(frontier.smoothed_utility, ratio, constants)
    action = bootstrap_action(frontier.visits, total_visits(state.frontiers))
    return Allocation(index, action or sample_action(strength, rng, constants), strength)


def open_cycle(state: ControllerState, num_tactics: int, constants: Constants) -> ControllerState:
    """Return the state after the pending guide yielded tactics (B.4.3).

    Raises:
        ValueError: No guide is pending, or `num_tactics` is not between 1 and the number asked for.
    """
    mode = _pending_mode(state)
    cycle = new_cycle(mode, state.incumbent_score, num_tactics, constants)
    return replace(state, pending=None, cycle=cycle)


def fail_guide(state: ControllerState) -> ControllerState:
    """Return the state after the pending guide yielded no usable tactic.

    Raises:
        ValueError: No guide is pending.
    """
    _pending_mode(state)
    return replace(state, pending=None, guide_failed=True)


def use_tactic(state: ControllerState) -> tuple[ControllerState, int]:
    """Return the state after an attempt took a tactic, and the index of that tactic.

    The step counts as guided from here on (guided_t, B.4.3).

    Raises:
        ValueError: No tactic has a use left.
    """
    tactic = current_tactic(state.cycle)
    if state.cycle is None or tactic is None:
        raise ValueError("cycle: no tactic has a use left, expected an active cycle")
    return replace(state, cycle=after_use(state.cycle, tactic)), tactic


def credit(
    state: ControllerState,
    allocation: Allocation,
    score: float | None,
    step_cost: float,
    constants: Constants,
    spent: float,
) -> tuple[ControllerState, Credit]:
    """Return the state after a paid step, and what the step earned (Sec. 4.2, 4.3, B.4.1).

    Args:
        state: State the step was allocated from.
        allocation: Where the step searched.
        score: Score of its last attempt (f_t); None when nothing was evaluated.
        step_cost: Dollars of all calls of the step (c_t).
        constants: Source of every constant.
        spent: Dollars the ledger shows after the step (C_t).

    Raises:
        ValueError: The score or a cost is not finite, a cost is negative, or the ledger fell.
    """
    _check_step(state, score, step_cost, spent)
    frontier = state.frontiers[allocation.frontier]
    earned = _earned(state, frontier, score, step_cost, constants, spent)
    after = visited(frontier, score, earned.utility, earned.allocation_reward, constants)
    is_low = is_low_yield(earned.utility, earned.allocation_reward, constants)
    credited = replace(
        state,
        spent=spent,
        frontiers=with_frontier(state.frontiers, allocation.frontier, after),
        incumbent_score=higher_score(state.incumbent_score, score),
        stagnation=stagnation(state.stagnation, earned.global_gain, constants),
        low_yield_cost=low_yield_cost(state.low_yield_cost, step_cost, is_low),
    )
    return credited, earned


def intervene(
    state: ControllerState, allocation: Allocation, constants: Constants
) -> tuple[ControllerState, Intervention]:
    """Return the state at the end of a step, and what was decided there (B.4).

    Judges the cycle, opens or counts down consolidation, corrects the mode, backs off, and only
    then decides whether the next step buys a guide.
    """
    succeeded = cycle_succeeded(state.cycle, state.incumbent_score, constants)
    cycle = after_step(state.cycle, succeeded, state.incumbent_score)
    failed = failed_mode(cycle)
    backed_off = backs_off(failed, state.guide_failed)
    ended = replace(
        state,
        iteration=state.iteration + 1,
        cycle=cycle if is_active(cycle) else None,
        guidance_proven=state.guidance_proven or succeeded,
        consolidation_left=consolidation_left(
            state.consolidation_left, succeeded, len(state.frontiers)
        ),
        held_frontier=held_frontier(state.held_frontier, succeeded, allocation.frontier),
        mode_override=mode_override(
            state.mode_override, succeeded, failed, was_proven=state.guidance_proven
        ),
        stagnation=0 if backed_off else state.stagnation,
        low_yield_cost=0.0 if backed_off else state.low_yield_cost,
        guide_failed=False,
    )
    scheduled = _scheduled_mode(ended, backed_off, constants)
    return replace(ended, pending=scheduled), Intervention(scheduled, succeeded, backed_off)


def raise_bests(state: ControllerState, best_scores: Sequence[float]) -> ControllerState:
    """Return the state after a migration: no gain, no visit, only higher bests (b^(k)).

    Args:
        state: State at the end of a step.
        best_scores: Best score of each archive, by frontier.

    Raises:
        ValueError: There is not one score per frontier.
    """
    _require(
        len(best_scores) == len(state.frontiers),
        "best_scores",
        len(best_scores),
        f"{len(state.frontiers)} scores",
    )
    frontiers = tuple(map(raised, state.frontiers, best_scores))
    return replace(state, frontiers=frontiers)


def _earned(
    state: ControllerState,
    frontier: Frontier,
    score: float | None,
    step_cost: float,
    constants: Constants,
    spent: float,
) -> Credit:
    ratio = remaining_ratio(state.budget, spent)
    local_gain = normalized_gain(score, frontier.best_score)
    global_gain = normalized_gain(score, state.incumbent_score)
    divisor = cost_divisor(normalized_cost(step_cost, constants), ratio, constants)
    return Credit(
        local_gain=local_gain,
        global_gain=global_gain,
        cost_divisor=divisor,
        utility=utility(local_gain, global_gain, global_weight(ratio, constants), divisor),
        allocation_reward=allocation_reward(global_gain, divisor),
    )


def _scheduled_mode(state: ControllerState, backed_off: bool, constants: Constants) -> Mode | None:
    ratio = remaining_ratio(state.budget, state.spent)
    num_frontiers = len(state.frontiers)
    is_due = should_intervene(
        is_free=is_free_for_guide(state.consolidation_left, state.cycle, backed_off),
        can_afford=can_afford_guide(state.budget, state.spent, constants),
        is_stagnant=is_stagnant(state.stagnation, ratio, num_frontiers, constants),
        has_low_yield=has_low_yield(
            state.stagnation, state.low_yield_cost, ratio, num_frontiers, constants
        ),
        constants=constants,
    )
    return guide_mode(state.mode_override, state.guidance_proven) if is_due else None


def _pending_mode(state: ControllerState) -> Mode:
    if state.pending is None:
        raise ValueError("pending: got None, expected a scheduled guide")
    return state.pending


def _check_step(
    state: ControllerState, score: float | None, step_cost: float, spent: float
) -> None:
    _require(score is None or isfinite(score), "score", score, "a finite number or None")
    _require(isfinite(step_cost) and step_cost >= 0, "step_cost", step_cost, "at least 0 dollars")
    _require(
        isfinite(spent) and spent >= state.spent,
        "spent",
        spent,
        f"finite dollars of at least {state.spent}",
    )


def _require(holds: bool, field: str, value: float | None, expectation: str) -> None:
    if not holds:
        raise ValueError(f"{field}: got {value}, expected {expectation}")


@dataclass(frozen=True, slots=True)
class CostAda:
    """The paper's controller; its ablations are switches of `Constants`."""

    state: ControllerState
    constants: Constants

    parents: ClassVar[ParentRule] = ParentRule.ARCHIVE

    @classmethod
    def start(cls, seed_score: float, budget: float, constants: Constants) -> Self:
        """Return the controller before the first step; see `start`."""
        return cls(start(seed_score, budget, constants), constants)

    @classmethod
    def load(cls, record: Record, constants: Constants) -> Self:
        """Return the controller that a record describes."""
        return cls(from_record(cast(ControllerRecord, record)), constants)

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
        """Return the mode of the guide to call in the next step."""
        return self.state.pending

    @property
    def cycle(self) -> GuidanceCycle | None:
        """Return the batch of tactics under way (G_t)."""
        return self.state.cycle

    @property
    def evidence(self) -> Evidence:
        """Return nu_t, L_t and w_t."""
        state = self.state
        return Evidence(state.stagnation, state.low_yield_cost, state.consolidation_left)

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """Return the same weights for each of the K frontiers."""
        return (FITNESS_ONLY,) * len(self.state.frontiers)

    def with_budget(self, budget: float) -> Self:
        """Return the controller that sees another budget (B) from here on."""
        return self._with(replace(self.state, budget=float(budget)))

    def allocate(self, rng: Random) -> Allocation:
        """Return the frontier, action and intensity of the next step."""
        return allocate(self.state, rng, self.constants)

    def open_cycle(self, num_tactics: int) -> Self:
        """Return the controller after the pending guide yielded tactics."""
        return self._with(open_cycle(self.state, num_tactics, self.constants))

    def fail_guide(self) -> Self:
        """Return the controller after the pending guide yielded no usable tactic."""
        return self._with(fail_guide(self.state))

    def use_tactic(self) -> tuple[Self, int]:
        """Return the controller after an attempt took a tactic, and the index of that tactic."""
        state, tactic = use_tactic(self.state)
        return self._with(state), tactic

    def credit(self, allocation: Allocation, step: PaidStep) -> tuple[Self, Credit]:
        """Return the controller after a paid step, and what the step earned."""
        state, earned = credit(
            self.state, allocation, step.score, step.cost, self.constants, step.spent
        )
        return self._with(state), earned

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Return controller and archives after migration, when one is due."""
        migrated = migrate(archives, self.iteration + 1, self.constants)
        bests = [archive.best.score for archive in migrated]
        return self._with(raise_bests(self.state, bests)), migrated

    def intervene(
        self, allocation: Allocation, *, is_last: bool = False
    ) -> tuple[Self, Intervention]:
        """Return the controller at the end of a step, and what was decided there."""
        state, decided = intervene(self.state, allocation, self.constants)
        return self._with(state), decided

    def _with(self, state: ControllerState) -> Self:
        return type(self)(state, self.constants)
