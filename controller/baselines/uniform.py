"""Uniform: the frontiers in turn, explored as much at the end as at the beginning."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Self

from costada.controller.allocation import Allocation, higher_score, sample_action
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights, migrate
from costada.controller.baselines.incumbent_progress import Progress, checked_seed_score
from costada.controller.constants import Constants
from costada.controller.credit import Balance, Credit, normalized_gain
from costada.controller.method import PaidStep, ParentRule
from costada.values.numbering import next_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform(Progress):
    """The scaffold without a controller: nothing that a step brings changes the next choice.

    The intensity is fixed at its largest value, which CostAda begins with before any gain, so
    that adaptation alone tells them apart.

    Attributes:
        best_scores: Highest score of each frontier, by index (b^(k)).
    """

    best_scores: tuple[float, ...]

    parents: ClassVar[ParentRule] = ParentRule.ARCHIVE
    pending: ClassVar[None] = None

    @classmethod
    def start(cls, seed_score: float, constants: Constants) -> Self:
        """The controller before the first step.

        Raises:
            ValueError: The seed score is not finite.
        """
        score = checked_seed_score(seed_score)
        return cls(incumbent_score=score, best_scores=(score,) * constants.num_frontiers)

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        """The next frontier in turn and an action drawn with the fixed intensity.

        Steps in flight have had their turn.
        """
        turn, intensity = self.iteration + len(in_flight), constants.max_intensity
        frontier = turn % len(self.best_scores)
        return Allocation(frontier, sample_action(intensity, rng, constants), intensity)

    def tell(
        self, allocation: Allocation, step: PaidStep, balance: Balance, constants: Constants
    ) -> tuple[Self, Credit]:
        """Note the score of a paid step; nothing is credited."""
        bests, index = list(self.best_scores), allocation.frontier
        local_gain = normalized_gain(step.score, bests[index])
        global_gain = normalized_gain(step.score, self.incumbent_score)
        bests[index] = higher_score(bests[index], step.score)
        updated = replace(self.with_score(step.score), best_scores=tuple(bests))
        return updated, Credit(local_gain, global_gain, 1.0, 0.0, 0.0)

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random, constants: Constants
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Controller and archives after migration, when one is due."""
        migrated = migrate(archives, next_iteration(self.iteration), constants)
        held = (archive.best.score for archive in migrated)
        return replace(self, best_scores=tuple(map(higher_score, self.best_scores, held))), migrated

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """The same weights for each of the K frontiers."""
        return (FITNESS_ONLY,) * len(self.best_scores)
