"""Best-of-N: independent changes of the initial program, the best of them kept."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self, TypedDict, cast

from costada.controller.allocation import Allocation
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights
from costada.controller.baselines.progress import Progress, Unguided, begin, completed, scored
from costada.controller.constants import Constants
from costada.controller.credit import Credit, normalized_gain
from costada.controller.intensity import Action
from costada.controller.intervention import Intervention
from costada.controller.method import Evidence, PaidStep, ParentRule, Record


class BestOfNRecord(TypedDict):
    """A `BestOfN` in JSON types."""

    iteration: int
    pending: None
    incumbent_score: float
    stagnation: int


@dataclass(frozen=True, slots=True)
class BestOfN(Unguided):
    """One frontier that stays the seed: no step knows of an earlier one."""

    state: Progress
    constants: Constants

    parents: ClassVar[ParentRule] = ParentRule.SEED

    @classmethod
    def start(cls, seed_score: float, budget: float, constants: Constants) -> Self:
        """Return the controller before the first step; it does not look at the budget.

        Raises:
            ValueError: The seed score is not finite.
        """
        return cls(begin(seed_score), constants)

    @classmethod
    def load(cls, record: Record, constants: Constants) -> Self:
        """Return the controller that a record describes."""
        known = cast(BestOfNRecord, record)
        progress = Progress(known["iteration"], known["incumbent_score"], known["stagnation"])
        return cls(progress, constants)

    def record(self) -> Record:
        """Return the controller in JSON types."""
        record = BestOfNRecord(
            iteration=self.iteration,
            pending=None,
            incumbent_score=self.incumbent_score,
            stagnation=self.state.stagnation,
        )
        return cast(Record, record)

    @property
    def iteration(self) -> int:
        """Return the iterations completed (t)."""
        return self.state.iteration

    @property
    def incumbent_score(self) -> float:
        """Return the best score of the run (y_t)."""
        return self.state.incumbent_score

    @property
    def evidence(self) -> Evidence:
        """Return the steps since the incumbent last rose; nothing acts on them."""
        return Evidence(stagnation=self.state.stagnation)

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """Return the weights of the only frontier."""
        return (FITNESS_ONLY,)

    def allocate(self, rng: Random) -> Allocation:
        """Return the same for every step: the balanced action brings no words of its own."""
        return Allocation(0, Action.BALANCED, self.constants.min_intensity)

    def credit(self, allocation: Allocation, step: PaidStep) -> tuple[Self, Credit]:
        """Return the controller after a paid step; both gains are those over the incumbent.

        Raises:
            ValueError: The score is neither finite nor None.
        """
        gain = normalized_gain(step.score, self.incumbent_score)
        progress = scored(self.state, step.score)
        return type(self)(progress, self.constants), Credit(gain, gain, 1.0, 0.0, 0.0)

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Return both as they are: nothing spawns or migrates."""
        return self, archives

    def intervene(
        self, allocation: Allocation, *, is_last: bool = False
    ) -> tuple[Self, Intervention]:
        """Return the controller at the end of a step, without a guide."""
        ended = type(self)(completed(self.state), self.constants)
        return ended, Intervention(None, opened_consolidation=False, backed_off=False)
