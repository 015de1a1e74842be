"""AdaEvolve as a method of the loop: adaptive frontiers and tactics, blind to cost.

The numbers in capitals are AdaEvolve's own, as SkyDiscover configures it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import ClassVar, Self

from costada.controller.allocation import Allocation, intensity, sample_action
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights, exchange
from costada.controller.baselines.adaevolve_frontiers import (
    NEVER_SPAWNED,
    PRESETS,
    AdaEvolveFrontier,
    after_visit,
    draw_preset,
    founded_archive,
    relative_improvement,
    select_frontier,
    should_spawn,
    with_score,
)
from costada.controller.baselines.incumbent_progress import Progress, checked_seed_score
from costada.controller.constants import Constants
from costada.controller.credit import Balance, Credit, normalized_gain
from costada.controller.guidance import (
    GuidanceCycle,
    Intervention,
    Mode,
    after_landing,
    after_step,
    after_use,
    new_cycle,
)
from costada.controller.method import PaidStep, ParentRule
from costada.values.numbering import Iteration, next_iteration

HISTORY_LENGTH = 10
"""Entered candidates that the decision on a guide looks back at."""

MIN_SUCCESS_RATE = 0.12
"""Share of new incumbents among them below which a guide is called."""

SPAWNED_FRONTIER = "spawned_frontier"
"""Note of a step at whose end a frontier was added."""


def is_fruitless(history: tuple[bool, ...]) -> bool:
    """Whether hardly any of the last entered candidates became the incumbent (h).

    False until there are as many as the decision looks back at.
    """
    is_full = len(history) == HISTORY_LENGTH
    return is_full and sum(history) / HISTORY_LENGTH < MIN_SUCCESS_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaEvolve(Progress):
    """The controller of AdaEvolve: it goes by scores alone and never looks at a price.

    Attributes:
        frontiers: Statistics of each frontier, by index.
        global_best: Best score of any frontier, which rewards are relative to (gbest).
        history: Whether each of the last entered candidates became the incumbent (h).
        last_spawn: Iteration in which a frontier was last added.
        cycle: Active batch of tactics.
        pending: Mode of the guide to call or in flight: breakthrough or None.
    """

    frontiers: tuple[AdaEvolveFrontier, ...]
    global_best: float
    history: tuple[bool, ...]
    last_spawn: Iteration = NEVER_SPAWNED
    cycle: GuidanceCycle | None = None
    pending: Mode | None = None

    parents: ClassVar[ParentRule] = ParentRule.ARCHIVE

    @classmethod
    def start(cls, seed_score: float, constants: Constants) -> Self:
        """The controller before the first step.

        The seed counts as an evaluated candidate of the first frontier, and as a copy from
        elsewhere on the others.

        Raises:
            ValueError: The seed score is not finite.
        """
        score = checked_seed_score(seed_score)
        first = after_visit(AdaEvolveFrontier(), score, global_best=-inf)
        others = (with_score(AdaEvolveFrontier(), score),) * (constants.num_frontiers - 1)
        return cls(
            incumbent_score=score, frontiers=(first, *others), global_best=score, history=(True,)
        )

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        """Frontier, action and intensity of the next step; the first takes the first frontier."""
        index, launched = 0, [each.frontier for each in in_flight]
        if self.iteration or launched:
            index = select_frontier(self.frontiers, self.iteration, rng, launched)
        strength = intensity(self.frontiers[index].signal, 1.0, constants)
        return Allocation(index, sample_action(strength, rng, constants), strength)

    def open_cycle(self, num_tactics: int, constants: Constants) -> Self:
        """The controller after the pending guide yielded tactics.

        Raises:
            ValueError: No guide is pending, or the number of tactics is not between 1 and the
                number asked for.
        """
        self._require_pending()
        cycle = new_cycle(Mode.BREAKTHROUGH, self.incumbent_score, num_tactics, constants)
        return replace(self, pending=None, cycle=cycle)

    def fail_guide(self) -> Self:
        """The controller after the pending guide yielded no usable tactic; nothing backs off.

        Raises:
            ValueError: No guide is pending.
        """
        self._require_pending()
        return replace(self, pending=None)

    def _require_pending(self) -> None:
        if self.pending is None:
            raise ValueError("pending: got None, expected a scheduled guide")

    def use_tactic(self, *, is_first: bool) -> tuple[Self, int]:
        """The controller after an attempt took a tactic, and the index of that tactic.

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
        """Book a paid step.

        A step that failed, or whose candidate found no place in the archive, earns nothing and
        leaves all statistics as they are. Utility is the squared relative improvement.

        Raises:
            ValueError: A guided step lands while none is in flight.
        """
        frontier, score = self.frontiers[allocation.frontier], step.score
        global_gain = normalized_gain(score, self.incumbent_score)
        is_first = frontier.best_score == -inf and score is not None
        local_gain = 1.0 if is_first else normalized_gain(score, frontier.best_score)
        updated = self.with_score(score)
        rise = updated.incumbent_score - self.incumbent_score
        cycle = after_landing(self.cycle, is_guided=step.is_guided, incumbent_rise=rise)
        updated = replace(updated, cycle=cycle)
        if score is None or not step.is_kept:
            return updated, Credit(local_gain, global_gain, 1.0, 0.0, 0.0)
        utility = relative_improvement(score, frontier.best_score, frontier.best_score) ** 2
        reward = relative_improvement(score, frontier.best_score, self.global_best)
        after = after_visit(frontier, score, self.global_best)
        history = (*self.history, self.is_new_incumbent(score))[-HISTORY_LENGTH:]
        entered = replace(updated.with_frontier(allocation.frontier, after), history=history)
        return entered, Credit(local_gain, global_gain, 1.0, utility, reward)

    def with_frontier(self, index: int, frontier: AdaEvolveFrontier) -> Self:
        """The controller with new statistics of one frontier; they may raise the global best."""
        frontiers = (*self.frontiers[:index], frontier, *self.frontiers[index + 1 :])
        global_best = max(self.global_best, frontier.best_score)
        return replace(self, frontiers=frontiers, global_best=global_best)

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random, constants: Constants
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Controller and archives after a spawn and a migration, the same if none is due.

        A new frontier takes part in the migration. `rng` is read only for its preset.
        """
        iteration, grown = next_iteration(self.iteration), self
        if should_spawn(self.frontiers, self.last_spawn, iteration):
            preset = draw_preset(self.frontiers, rng)
            frontiers = (*self.frontiers, AdaEvolveFrontier(preset=preset))
            grown = replace(self, frontiers=frontiers, last_spawn=iteration)
            archives = (*archives, founded_archive(archives, preset, iteration, constants))
        exchanged, arrivals = exchange(archives, iteration, constants)
        for arrival in arrivals:
            before = grown.frontiers[arrival.frontier]
            after = with_score(before, arrival.candidate.score)
            grown = grown.with_frontier(arrival.frontier, after)
        return grown, exchanged

    def decide(
        self,
        allocation: Allocation,
        balance: Balance,
        constants: Constants,
        *,
        is_last: bool = False,
    ) -> tuple[Self, Intervention]:
        """End a step, and decide whether the next one buys a guide.

        It does when the last entered candidates hardly ever became the incumbent and no tactic
        is left. Success ends nothing, failure delays nothing. A guide in flight stays pending, and
        no second one is scheduled.
        """
        cycle = after_step(self.cycle, False, self.incumbent_score)
        if cycle is not None and cycle.is_exhausted:
            cycle = None
        is_due = self.pending is None and cycle is None and is_fruitless(self.history)
        scheduled = Mode.BREAKTHROUGH if is_due else None
        ended = replace(self.end_iteration(), cycle=cycle, pending=self.pending or scheduled)
        notes = (SPAWNED_FRONTIER,) if ended.last_spawn == ended.iteration else ()
        return ended, Intervention(scheduled, False, False, notes)

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """The default weights, for added frontiers those of their preset."""
        presets = (frontier.preset for frontier in self.frontiers)
        return tuple(FITNESS_ONLY if preset is None else PRESETS[preset] for preset in presets)
