"""CostAda as a method of the loop: Algorithm 1 behind the contract of all methods."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Self, cast

from costada.controller import algorithm
from costada.controller.allocation import Allocation
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights
from costada.controller.constants import Constants
from costada.controller.contract import Evidence, PaidStep, ParentRule, Record
from costada.controller.guidance import GuidanceCycle
from costada.controller.intervention import Intervention
from costada.controller.migration import migrate
from costada.controller.state import ControllerRecord, ControllerState, from_record, to_record
from costada.controller.utility import Credit


@dataclass(frozen=True, slots=True)
class CostAda:
    """The paper's controller; its ablations are switches of `Constants`."""

    state: ControllerState
    constants: Constants

    parents: ClassVar[ParentRule] = ParentRule.ARCHIVE

    @classmethod
    def start(cls, seed_score: float, budget: float, constants: Constants) -> Self:
        """Return the controller before the first step; see `algorithm.start`."""
        return cls(algorithm.start(seed_score, budget, constants), constants)

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
        return algorithm.allocate(self.state, rng, self.constants)

    def open_cycle(self, num_tactics: int) -> Self:
        """Return the controller after the pending guide yielded tactics."""
        return self._with(algorithm.open_cycle(self.state, num_tactics, self.constants))

    def fail_guide(self) -> Self:
        """Return the controller after the pending guide yielded no usable tactic."""
        return self._with(algorithm.fail_guide(self.state))

    def use_tactic(self) -> tuple[Self, int]:
        """Return the controller after an attempt took a tactic, and the index of that tactic."""
        state, tactic = algorithm.use_tactic(self.state)
        return self._with(state), tactic

    def credit(self, allocation: Allocation, step: PaidStep) -> tuple[Self, Credit]:
        """Return the controller after a paid step, and what the step earned."""
        state, earned = algorithm.credit(
            self.state, allocation, step.score, step.cost, self.constants, step.spent
        )
        return self._with(state), earned

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Return controller and archives after migration, when one is due."""
        migrated = migrate(archives, self.iteration + 1, self.constants)
        bests = [archive.best.score for archive in migrated]
        return self._with(algorithm.raise_bests(self.state, bests)), migrated

    def intervene(
        self, allocation: Allocation, *, is_last: bool = False
    ) -> tuple[Self, Intervention]:
        """Return the controller at the end of a step, and what was decided there."""
        state, decided = algorithm.intervene(self.state, allocation, self.constants)
        return self._with(state), decided

    def _with(self, state: ControllerState) -> Self:
        return type(self)(state, self.constants)
