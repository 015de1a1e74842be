"""AdaEvolve as a method of the loop: adaptive frontiers and tactics, blind to cost.

The numbers in capitals are AdaEvolve's own, as SkyDiscover configures it.
"""

from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import ClassVar, Self, cast

from costada.controller.allocation import Allocation
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights
from costada.controller.baselines.adaevolve_frontier import (
    AdaEvolveFrontier,
    evaluated,
    informed,
    relative_improvement,
    select_frontier,
)
from costada.controller.baselines.adaevolve_state import (
    AdaEvolveRecord,
    AdaEvolveState,
    booked,
    from_record,
    to_record,
)
from costada.controller.baselines.cost_blind import CostBlind
from costada.controller.baselines.progress import begin, completed, is_new_incumbent, scored
from costada.controller.baselines.spawning import (
    PRESETS,
    draw_preset,
    founded_archive,
    should_spawn,
)
from costada.controller.constants import Constants
from costada.controller.contract import Evidence, PaidStep, ParentRule, Record
from costada.controller.gain import normalized_gain
from costada.controller.guidance import (
    GuidanceCycle,
    Mode,
    after_step,
    after_use,
    current_tactic,
    is_active,
    new_cycle,
)
from costada.controller.intensity import intensity, sample_action
from costada.controller.intervention import Intervention
from costada.controller.migration import exchange
from costada.controller.utility import Credit

HISTORY_LENGTH = 10
"""Entered candidates that the decision on a guide looks back at."""

MIN_SUCCESS_RATE = 0.12
"""Share of new incumbents among them below which a guide is called."""

SPAWNED_FRONTIER = "spawned_frontier"
"""Note of a step at whose end a frontier was added."""


@dataclass(frozen=True, slots=True)
class AdaEvolve(CostBlind):
    """The controller of AdaEvolve: it goes by scores alone and never looks at a price."""

    state: AdaEvolveState
    constants: Constants

    parents: ClassVar[ParentRule] = ParentRule.ARCHIVE

    @classmethod
    def start(cls, seed_score: float, budget: float, constants: Constants) -> Self:
        """Return the controller before the first step; it does not look at the budget.

        The seed counts as an evaluated candidate of the first frontier, and as a copy from
        elsewhere on the others.

        Raises:
            ValueError: The seed score is not finite.
        """
        progress = begin(seed_score)
        score = progress.incumbent_score
        first = evaluated(AdaEvolveFrontier(), score, global_best=-inf)
        others = (informed(AdaEvolveFrontier(), score),) * (constants.num_frontiers - 1)
        return cls(AdaEvolveState(progress, (first, *others), score, history=(True,)), constants)

    @classmethod
    def load(cls, record: Record, constants: Constants) -> Self:
        """Return the controller that a record describes.

        Raises:
            ValueError: A preset or the pending mode is unknown.
        """
        return cls(from_record(cast(AdaEvolveRecord, record)), constants)

    def record(self) -> Record:
        """Return the controller in JSON types."""
        return cast(Record, to_record(self.state))

    @property
    def iteration(self) -> int:
        """Return the iterations completed (t)."""
        return self.state.progress.iteration

    @property
    def incumbent_score(self) -> float:
        """Return the best score of the run (y_t)."""
        return self.state.progress.incumbent_score

    @property
    def pending(self) -> str | None:
        """Return the mode of the guide to call in the next step: breakthrough or None."""
        return Mode.BREAKTHROUGH if self.state.is_guide_pending else None

    @property
    def cycle(self) -> GuidanceCycle | None:
        """Return the batch of tactics under way."""
        return self.state.cycle

    @property
    def evidence(self) -> Evidence:
        """Return the steps since the incumbent last rose; nothing acts on them."""
        return Evidence(stagnation=self.state.progress.stagnation)

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """Return the default weights, for added frontiers those of their preset."""
        presets = (frontier.preset for frontier in self.state.frontiers)
        return tuple(FITNESS_ONLY if preset is None else PRESETS[preset] for preset in presets)

    def allocate(self, rng: Random) -> Allocation:
        """Return the frontier, action and intensity of the next step.

        The first step takes the first frontier.
        """
        frontiers = self.state.frontiers
        index = select_frontier(frontiers, self.iteration, rng) if self.iteration else 0
        strength = intensity(frontiers[index].signal, 1.0, self.constants)
        return Allocation(index, sample_action(strength, rng, self.constants), strength)

    def open_cycle(self, num_tactics: int) -> Self:
        """Return the controller after the pending guide yielded tactics.

        Raises:
            ValueError: No guide is pending, or the number of tactics is not between 1 and the
                number asked for.
        """
        self._require_pending()
        cycle = new_cycle(Mode.BREAKTHROUGH, self.incumbent_score, num_tactics, self.constants)
        return self._with(replace(self.state, is_guide_pending=False, cycle=cycle))

    def fail_guide(self) -> Self:
        """Return the controller after the pending guide yielded no usable tactic.

        Nothing backs off: the end of the step decides anew.

        Raises:
            ValueError: No guide is pending.
        """
        self._require_pending()
        return self._with(replace(self.state, is_guide_pending=False))

    def use_tactic(self) -> tuple[Self, int]:
        """Return the controller after an attempt took a tactic, and the index of that tactic.

        Raises:
            ValueError: No tactic has a use left.
        """
        cycle = self.state.cycle
        tactic = current_tactic(cycle)
        if cycle is None or tactic is None:
            raise ValueError("cycle: no tactic has a use left, expected an active cycle")
        return self._with(replace(self.state, cycle=after_use(cycle, tactic))), tactic

    def credit(self, allocation: Allocation, step: PaidStep) -> tuple[Self, Credit]:
        """Return the controller after a paid step, and what the step earned.

        A step that failed, or whose candidate found no place in the archive, earns nothing and
        leaves all statistics as they are. Utility is the squared relative improvement.

        Raises:
            ValueError: The score is neither finite nor None.
        """
        earned = self._earned(allocation.frontier, step)
        state = replace(self.state, progress=scored(self.state.progress, step.score))
        if step.score is None or not step.is_kept:
            return self._with(state), earned
        frontier = state.frontiers[allocation.frontier]
        after = evaluated(frontier, step.score, state.global_best)
        is_incumbent = is_new_incumbent(self.state.progress, step.score)
        history = (*state.history, is_incumbent)[-HISTORY_LENGTH:]
        entered = replace(booked(state, allocation.frontier, after), history=history)
        return self._with(entered), earned

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Return controller and archives after a spawn and a migration, the same if none is due.

        A new frontier takes part in the migration. `rng` is read only for its preset.
        """
        iteration = self.iteration + 1
        grown, grown_archives = self._spawn(archives, iteration, rng)
        exchanged, arrivals = exchange(grown_archives, iteration, self.constants)
        state = grown.state
        for arrival in arrivals:
            before = state.frontiers[arrival.frontier]
            state = booked(state, arrival.frontier, informed(before, arrival.candidate.score))
        return self._with(state), exchanged

    def intervene(
        self, allocation: Allocation, *, is_last: bool = False
    ) -> tuple[Self, Intervention]:
        """Return the controller at the end of a step, and whether the next one buys a guide.

        It does when the last entered candidates hardly ever became the incumbent and no tactic
        is left. Success ends nothing, failure delays nothing.
        """
        cycle = after_step(self.state.cycle, False, self.incumbent_score)
        is_due = not is_active(cycle) and is_fruitless(self.state.history)
        ended = replace(
            self.state,
            progress=completed(self.state.progress),
            cycle=cycle if is_active(cycle) else None,
            is_guide_pending=is_due,
        )
        scheduled = Mode.BREAKTHROUGH if is_due else None
        notes = (SPAWNED_FRONTIER,) if ended.last_spawn == ended.progress.iteration else ()
        return self._with(ended), Intervention(scheduled, False, False, notes)

    def _earned(self, index: int, step: PaidStep) -> Credit:
        best_score = self.state.frontiers[index].best_score
        global_gain = normalized_gain(step.score, self.incumbent_score)
        is_first = best_score == -inf and step.score is not None
        local_gain = 1.0 if is_first else normalized_gain(step.score, best_score)
        if step.score is None or not step.is_kept:
            return Credit(local_gain, global_gain, 1.0, 0.0, 0.0)
        utility = relative_improvement(step.score, best_score, best_score) ** 2
        reward = relative_improvement(step.score, best_score, self.state.global_best)
        return Credit(local_gain, global_gain, 1.0, utility, reward)

    def _spawn(
        self, archives: tuple[Archive, ...], iteration: int, rng: Random
    ) -> tuple[Self, tuple[Archive, ...]]:
        state = self.state
        if not should_spawn(state.frontiers, state.last_spawn, iteration):
            return self, archives
        preset = draw_preset(state.frontiers, rng)
        frontiers = (*state.frontiers, AdaEvolveFrontier(preset=preset))
        founded = founded_archive(archives, preset, iteration, self.constants)
        grown = self._with(replace(state, frontiers=frontiers, last_spawn=iteration))
        return grown, (*archives, founded)

    def _require_pending(self) -> None:
        if not self.state.is_guide_pending:
            raise ValueError("pending: got None, expected a scheduled guide")

    def _with(self, state: AdaEvolveState) -> Self:
        return type(self)(state, self.constants)


def is_fruitless(history: tuple[bool, ...]) -> bool:
    """Return whether hardly any of the last entered candidates became the incumbent (h).

    False until there are as many as the decision looks back at.
    """
    is_full = len(history) == HISTORY_LENGTH
    return is_full and sum(history) / HISTORY_LENGTH < MIN_SUCCESS_RATE
