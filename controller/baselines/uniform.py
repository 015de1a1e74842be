"""Uniform: the frontiers in turn, explored as much at the end as at the beginning."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Self, TypedDict, cast

from costada.controller.allocation import Allocation
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights
from costada.controller.baselines.progress import Progress, Unguided, begin, completed, scored
from costada.controller.constants import Constants
from costada.controller.credit import Credit, normalized_gain
from costada.controller.frontier import higher_score
from costada.controller.intensity import sample_action
from costada.controller.intervention import Intervention
from costada.controller.method import Evidence, PaidStep, ParentRule, Record
from costada.controller.migration import migrate


@dataclass(frozen=True, slots=True)
class UniformState:
    """All that the method carries from one iteration to the next.

    Attributes:
        progress: Steps and scores of the run.
        best_scores: Highest score of each frontier, by index (b^(k)).
    """

    progress: Progress
    best_scores: tuple[float, ...]


class UniformRecord(TypedDict):
    """A `Uniform` in JSON types."""

    iteration: int
    pending: None
    incumbent_score: float
    stagnation: int
    best_scores: list[float]


@dataclass(frozen=True, slots=True)
class Uniform(Unguided):
    """The scaffold without a controller: nothing that a step brings changes the next choice.

    The intensity is fixed at its largest value, which CostAda begins with before any gain, so
    that adaptation alone tells them apart.
    """

    state: UniformState
    constants: Constants

    parents: ClassVar[ParentRule] = ParentRule.ARCHIVE

    @classmethod
    def start(cls, seed_score: float, budget: float, constants: Constants) -> Self:
        """Return the controller before the first step; it does not look at the budget.

        Raises:
            ValueError: The seed score is not finite.
        """
        progress = begin(seed_score)
        best_scores = (progress.incumbent_score,) * constants.num_frontiers
        return cls(UniformState(progress, best_scores), constants)

    @classmethod
    def load(cls, record: Record, constants: Constants) -> Self:
        """Return the controller that a record describes."""
        known = cast(UniformRecord, record)
        progress = Progress(known["iteration"], known["incumbent_score"], known["stagnation"])
        return cls(UniformState(progress, tuple(known["best_scores"])), constants)

    def record(self) -> Record:
        """Return the controller in JSON types."""
        record = UniformRecord(
            iteration=self.iteration,
            pending=None,
            incumbent_score=self.incumbent_score,
            stagnation=self.state.progress.stagnation,
            best_scores=list(self.state.best_scores),
        )
        return cast(Record, record)

    @property
    def iteration(self) -> int:
        """Return the iterations completed (t)."""
        return self.state.progress.iteration

    @property
    def incumbent_score(self) -> float:
        """Return the best score of the run (y_t)."""
        return self.state.progress.incumbent_score

    @property
    def evidence(self) -> Evidence:
        """Return the steps since the incumbent last rose; nothing acts on them."""
        return Evidence(stagnation=self.state.progress.stagnation)

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """Return the same weights for each of the K frontiers."""
        return (FITNESS_ONLY,) * len(self.state.best_scores)

    def allocate(self, rng: Random) -> Allocation:
        """Return the next frontier in turn and an action drawn with the fixed intensity."""
        frontier = self.iteration % len(self.state.best_scores)
        intensity = self.constants.max_intensity
        return Allocation(frontier, sample_action(intensity, rng, self.constants), intensity)

    def credit(self, allocation: Allocation, step: PaidStep) -> tuple[Self, Credit]:
        """Return the controller after a paid step, and its gains; nothing is credited.

        Raises:
            ValueError: The score is neither finite nor None.
        """
        bests = list(self.state.best_scores)
        local_gain = normalized_gain(step.score, bests[allocation.frontier])
        global_gain = normalized_gain(step.score, self.incumbent_score)
        bests[allocation.frontier] = higher_score(bests[allocation.frontier], step.score)
        state = UniformState(scored(self.state.progress, step.score), tuple(bests))
        return self._with(state), Credit(local_gain, global_gain, 1.0, 0.0, 0.0)

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Return controller and archives after migration, when one is due."""
        migrated = migrate(archives, self.iteration + 1, self.constants)
        held = (archive.best.score for archive in migrated)
        bests = tuple(map(higher_score, self.state.best_scores, held))
        return self._with(replace(self.state, best_scores=bests)), migrated

    def intervene(
        self, allocation: Allocation, *, is_last: bool = False
    ) -> tuple[Self, Intervention]:
        """Return the controller at the end of a step, without a guide."""
        ended = self._with(replace(self.state, progress=completed(self.state.progress)))
        return ended, Intervention(None, opened_consolidation=False, backed_off=False)

    def _with(self, state: UniformState) -> Self:
        return type(self)(state, self.constants)
