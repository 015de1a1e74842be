"""CostAda: Algorithm 1 in its order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from random import Random
from typing import ClassVar, Self

from costada.controller.allocation import (
    Action,
    Allocation,
    Averages,
    Frontier,
    after_visit,
    allocation_reward,
    bootstrap_action,
    higher_score,
    intensity,
    sample_action,
    select_frontier,
    visits_in_flight,
    with_best,
    with_frontier,
)
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights, migrate
from costada.controller.constants import Constants
from costada.controller.credit import (
    Balance,
    Credit,
    cost_divisor,
    global_weight,
    is_low_yield,
    low_yield_cost,
    normalized_cost,
    normalized_gain,
    stagnation,
    utility,
)
from costada.controller.guidance import (
    GuidanceCycle,
    Intervention,
    Mode,
    after_landing,
    after_step,
    after_use,
    backs_off,
    can_afford_guide,
    consolidation_left,
    cycle_succeeded,
    failed_mode,
    guide_mode,
    has_low_yield,
    held_frontier,
    is_free_for_guide,
    is_stagnant,
    mode_override,
    new_cycle,
    should_intervene,
)
from costada.controller.method import Evidence, PaidStep, ParentRule
from costada.controller.unguided_yield import NO_STEPS, UnguidedYield
from costada.values.numbering import START, Iteration, next_iteration


@dataclass(frozen=True, slots=True)
class CostAda:
    """The controller between two decisions; its ablations are switches of `Constants`.

    Attributes:
        iteration: Iterations completed (t).
        frontiers: Statistics of each frontier, by index.
        incumbent_score: Best score of the run (y_t).
        stagnation: Steps in a row without meaningful progress (nu_t, B.4.1).
        low_yield_cost: Dollars in a row that earned nothing (L_t, B.4.1).
        guidance_proven: Whether guidance has ever succeeded (Z_t, B.4.3).
        mode_override: Correction of the next guide's mode (o_t, B.4.3).
        consolidation_left: Steps still held to exploit one frontier (w_t, B.4.4).
        held_frontier: Index of that frontier, None before the first success (kappa_t, B.4.4).
        cycle: Active batch of tactics (G_t, B.4.3).
        pending: Mode of the guide to call or in flight, None for no guide.
        guide_failed: Whether a guide without a usable tactic was paid since the last decision.
        undivided: Of each frontier, the averages of credit that is not divided by cost; empty
            except in an experiment on that.
        unguided: What steps without a tactic bring per dollar, where guides are learned.
    """

    iteration: Iteration
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
    undivided: tuple[Averages, ...] = ()
    unguided: UnguidedYield = NO_STEPS

    parents: ClassVar[ParentRule] = ParentRule.ARCHIVE

    @classmethod
    def start(cls, seed_score: float, constants: Constants) -> Self:
        """The controller before the first step: every frontier holds the seed (Alg. 1).

        Benchmarks score from 0; a user's own evaluator may score below.

        Raises:
            ValueError: The seed score is not finite.
        """
        if not isfinite(seed_score):
            raise ValueError(f"seed_score: got {seed_score}, expected a finite number")
        frontiers = (Frontier(best_score=float(seed_score)),) * constants.num_frontiers
        return cls(iteration=START, frontiers=frontiers, incumbent_score=float(seed_score))

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        """Frontier, action and intensity of the next step (Sec. 4.3, B.2, B.4.4).

        A consolidation holds its frontier and exploits at the lowest intensity, for as many steps
        as it has left, those in flight included. Elsewhere a step in flight counts as a visit
        without a reward. `rng` is read only when neither consolidation nor a first visit prescribes
        the action, and by a rule for the frontier that draws.
        """
        if self.undivided and not constants.calibrates_cost:
            return self._by_undivided_credit().ask(balance, rng, constants, in_flight)
        held = self._held_allocation(constants)
        if held is not None and in_flight.count(held) < self.consolidation_left:
            return held
        launched = [each.frontier for each in in_flight]
        index = self.next_frontier(balance, rng, constants, launched)
        strength = intensity(self.frontiers[index].smoothed_utility, balance.ratio, constants)
        visits = visits_in_flight(self.frontiers, launched)
        action = bootstrap_action(visits[index], sum(visits))
        return Allocation(index, action or sample_action(strength, rng, constants), strength)

    def next_frontier(
        self, balance: Balance, rng: Random, constants: Constants, in_flight: Sequence[int]
    ) -> int:
        """The index of the next frontier outside a consolidation (k_t, Sec. 4.3, B.3).

        `in_flight` names the frontier of each step that was launched and has not landed.
        """
        return select_frontier(self.frontiers, balance.ratio, constants, in_flight)

    def with_both_credits(self) -> Self:
        """A controller before its first step that also averages credit not divided by cost.

        `tell` then divides as `constants.calibrates_cost` says and keeps both averages; `ask` goes
        by those that `constants.calibrates_cost` names.
        """
        return replace(self, undivided=(Averages(),) * len(self.frontiers))

    def _by_undivided_credit(self) -> Self:
        frontiers = tuple(
            replace(each, smoothed_utility=kept.utility, allocation_estimate=kept.reward)
            for each, kept in zip(self.frontiers, self.undivided, strict=True)
        )
        return replace(self, frontiers=frontiers, undivided=())

    def _held_allocation(self, constants: Constants) -> Allocation | None:
        if self.held_frontier is None:
            return None
        return Allocation(self.held_frontier, Action.EXPLOITATION, constants.min_intensity)

    def open_cycle(self, num_tactics: int, constants: Constants) -> Self:
        """The controller after the pending guide yielded tactics (B.4.3).

        Raises:
            ValueError: No guide is pending, or `num_tactics` is not between 1 and the number asked
                for.
        """
        mode = self._pending_mode()
        cycle = new_cycle(mode, self.incumbent_score, num_tactics, constants)
        return replace(self, pending=None, cycle=cycle)

    def fail_guide(self) -> Self:
        """The controller after the pending guide yielded no usable tactic.

        Raises:
            ValueError: No guide is pending.
        """
        self._pending_mode()
        return replace(self, pending=None, guide_failed=True)

    def _pending_mode(self) -> Mode:
        if self.pending is None:
            raise ValueError("pending: got None, expected a scheduled guide")
        return self.pending

    def use_tactic(self, *, is_first: bool) -> tuple[Self, int]:
        """The controller after an attempt took a tactic, and the index of that tactic.

        The step counts as guided from here on (guided_t, B.4.3).

        Args:
            is_first: Whether no earlier attempt of the step followed a tactic.

        Raises:
            ValueError: No tactic has a use left.
        """
        cycle, tactic = after_use(self.cycle, is_first=is_first)
        return replace(self, cycle=cycle), tactic

    def tell(
        self, allocation: Allocation, step: PaidStep, balance: Balance, constants: Constants
    ) -> tuple[Self, Credit]:
        """Credit a paid step and the frontier it searched (Sec. 4.2, 4.3, B.4.1).

        Raises:
            ValueError: The ledger shows less than the step cost, or a guided step lands while none
                is in flight.
        """
        if balance.spent < step.cost:
            raise ValueError(f"spent: got {balance.spent}, expected at least {step.cost}")
        frontier = self.frontiers[allocation.frontier]
        earned = self._credit_of(frontier, step, balance.ratio, constants)
        after = after_visit(
            frontier, step.score, earned.utility, earned.allocation_reward, constants
        )
        is_low = is_low_yield(earned.utility, earned.allocation_reward, constants)
        incumbent_score = higher_score(self.incumbent_score, step.score)
        rise = incumbent_score - self.incumbent_score
        credited = replace(
            self,
            frontiers=with_frontier(self.frontiers, allocation.frontier, after),
            incumbent_score=incumbent_score,
            cycle=after_landing(self.cycle, is_guided=step.is_guided, incumbent_rise=rise),
            stagnation=stagnation(self.stagnation, earned.global_gain, constants),
            low_yield_cost=low_yield_cost(self.low_yield_cost, step.cost, is_low),
            undivided=self._undivided_after(allocation.frontier, earned, constants),
            unguided=self._unguided_after(step, earned.global_gain, constants),
        )
        return credited, earned

    def _undivided_after(
        self, frontier: int, earned: Credit, constants: Constants
    ) -> tuple[Averages, ...]:
        if not self.undivided:
            return ()
        kept, divisor = list(self.undivided), earned.cost_divisor
        kept[frontier] = kept[frontier].after(
            earned.utility * divisor, earned.global_gain, constants
        )
        return tuple(kept)

    def _unguided_after(
        self, step: PaidStep, global_gain: float, constants: Constants
    ) -> UnguidedYield:
        """The yield after a step; one that paid for a guide without a usable tactic is guided."""
        if constants.guides != "learned":
            return self.unguided
        is_guided = step.is_guided or self.guide_failed
        return self.unguided.after_step(global_gain, step.cost, is_guided=is_guided)

    def _credit_of(
        self, frontier: Frontier, step: PaidStep, ratio: float, constants: Constants
    ) -> Credit:
        local_gain = normalized_gain(step.score, frontier.best_score)
        global_gain = normalized_gain(step.score, self.incumbent_score)
        divisor = cost_divisor(normalized_cost(step.cost, constants), ratio, constants)
        return Credit(
            local_gain=local_gain,
            global_gain=global_gain,
            cost_divisor=divisor,
            utility=utility(local_gain, global_gain, global_weight(ratio, constants), divisor),
            allocation_reward=allocation_reward(global_gain, divisor),
        )

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random, constants: Constants
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Controller and archives after migration, when one is due: only bests rise (b^(k))."""
        migrated = migrate(archives, next_iteration(self.iteration), constants)
        bests = (archive.best.score for archive in migrated)
        frontiers = tuple(with_best(*each) for each in zip(self.frontiers, bests, strict=True))
        if frontiers == self.frontiers:
            return self, migrated
        return replace(self, frontiers=frontiers), migrated

    def decide(
        self,
        allocation: Allocation,
        balance: Balance,
        constants: Constants,
        *,
        is_last: bool = False,
    ) -> tuple[Self, Intervention]:
        """End a step and decide whether the next one buys a guide (B.4).

        Judges the cycle, opens or counts down consolidation, corrects the mode, backs off, and
        only then decides. A guide in flight stays pending, and no second one is scheduled.
        """
        succeeded = cycle_succeeded(self.cycle, self.incumbent_score, constants)
        cycle = after_step(self.cycle, succeeded, self.incumbent_score)
        failed = failed_mode(cycle)
        backed_off = backs_off(failed, self.guide_failed)
        ended = replace(
            self,
            iteration=next_iteration(self.iteration),
            cycle=None if cycle is None or cycle.is_exhausted else cycle,
            guidance_proven=self.guidance_proven or succeeded,
            consolidation_left=consolidation_left(
                self.consolidation_left,
                succeeded,
                len(self.frontiers),
                is_held=allocation == self._held_allocation(constants),
            ),
            held_frontier=held_frontier(self.held_frontier, succeeded, allocation.frontier),
            mode_override=mode_override(
                self.mode_override, succeeded, failed, was_proven=self.guidance_proven
            ),
            stagnation=0 if backed_off else self.stagnation,
            low_yield_cost=0.0 if backed_off else self.low_yield_cost,
            guide_failed=False,
        )
        scheduled = None
        if ended.pending is None:
            scheduled = ended._scheduled_mode(backed_off, balance, constants)
        if scheduled is not None:
            ended = replace(ended, pending=scheduled)
        return ended, Intervention(scheduled, succeeded, backed_off)

    def _scheduled_mode(
        self, backed_off: bool, balance: Balance, constants: Constants
    ) -> Mode | None:
        ratio, num_frontiers = balance.ratio, len(self.frontiers)
        is_due = should_intervene(
            is_free=is_free_for_guide(self.consolidation_left, self.cycle, backed_off),
            can_afford=can_afford_guide(balance.budget, balance.spent, constants),
            is_stagnant=is_stagnant(self.stagnation, ratio, num_frontiers, constants),
            has_low_yield=has_low_yield(
                self.stagnation, self.low_yield_cost, ratio, num_frontiers, constants
            )
            and not (constants.guides == "learned" and self.unguided.pays),
            constants=constants,
        )
        return guide_mode(self.mode_override, self.guidance_proven) if is_due else None

    def record(self) -> Evidence:
        """nu_t, L_t and w_t."""
        return Evidence(self.stagnation, self.low_yield_cost, self.consolidation_left)

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """The same weights for each of the K frontiers."""
        return (FITNESS_ONLY,) * len(self.frontiers)
