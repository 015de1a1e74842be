"""AdaEvolve as a method of the loop: adaptive frontiers and tactics, blind to cost.

The numbers in capitals are AdaEvolve's own, as SkyDiscover configures it.
"""

from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import ClassVar, Self, TypedDict, cast

from costada.controller.allocation import Allocation
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights
from costada.controller.baselines.adaevolve_frontiers import (
    NEVER_SPAWNED,
    PRESETS,
    AdaEvolveFrontier,
    draw_preset,
    evaluated,
    founded_archive,
    informed,
    relative_improvement,
    select_frontier,
    should_spawn,
)
from costada.controller.baselines.progress import (
    CostBlind,
    Progress,
    begin,
    completed,
    is_new_incumbent,
    scored,
)
from costada.controller.constants import Constants
from costada.controller.credit import Credit, normalized_gain
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
from costada.controller.method import Evidence, PaidStep, ParentRule, Record
from costada.controller.migration import exchange


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
