"""What the search loop asks of a method: CostAda, a baseline, or a third party's."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from random import Random
from typing import Protocol, Self, runtime_checkable

from typing_extensions import TypeIs

from costada.controller.allocation import Allocation
from costada.controller.archive import Archive, EliteWeights
from costada.controller.constants import Constants
from costada.controller.credit import Balance, Credit
from costada.controller.guidance import GuidanceCycle, Intervention
from costada.values.numbering import Iteration


class ParentRule(StrEnum):
    """Where the parent of an attempt comes from.

    `ARCHIVE`: drawn from the frontier's archive by the step's action; the method is `Archiving`.
    `SEED`: always the initial program, shown alone. `POPULATION`: chosen by a node of the
    method among all valid candidates of the run.
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
        is_guided: Whether an attempt of it followed a tactic of the active cycle (guided_t).

    Raises:
        ValueError: The score is not finite, or the cost is negative or not finite.
    """

    score: float | None
    is_kept: bool
    cost: float
    is_guided: bool = False

    def __post_init__(self) -> None:
        if self.score is not None and not isfinite(self.score):
            raise ValueError(f"score: got {self.score}, expected a finite number or None")
        if not (isfinite(self.cost) and self.cost >= 0):
            raise ValueError(f"cost: got {self.cost}, expected finite dollars of at least 0")


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
    """One method between two decisions: a frozen dataclass, replaced and never changed.

    It travels in the graph's state as it is, so its fields are plain values, tuples, enums and
    further frozen dataclasses; their types are checked when a checkpoint is restored. Randomness,
    constants and the balance come in as arguments. Each step asks once, tells once and decides
    once. Several steps may be in flight: others are asked for, told and decided between the `ask`
    and the `tell` of a step, but none between its `tell` and its `decide`.
    """

    @property
    def parents(self) -> ParentRule:
        """Where parents come from."""
        ...

    @property
    def iteration(self) -> Iteration:
        """Iterations completed (t)."""
        ...

    @property
    def incumbent_score(self) -> float:
        """Best score of the run (y_t)."""
        ...

    @property
    def pending(self) -> str | None:
        """Which call is bought before anything else happens; `None` for none."""
        ...

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        """Choose the frontier, action and intensity of the next step.

        `in_flight` are the choices of the steps that have not landed.
        """
        ...

    def tell(
        self, allocation: Allocation, step: PaidStep, balance: Balance, constants: Constants
    ) -> tuple[Self, Credit]:
        """Book a paid step: the controller after it, and what the step earned."""
        ...

    def decide(
        self,
        allocation: Allocation,
        balance: Balance,
        constants: Constants,
        *,
        is_last: bool = False,
    ) -> tuple[Self, Intervention]:
        """End a step: the controller after it, and whether the next step begins with a call.

        `is_last` says that the run ends with this step, so that no call is bought any more. A guide
        that is requested or in flight stays pending, and no second one is scheduled.
        """
        ...

    def record(self) -> Evidence:
        """What the trace shows of the method."""
        ...


@runtime_checkable
class Guided(Protocol):
    """A method whose pending call is a guide, and whose attempts follow the guide's tactics."""

    @property
    def cycle(self) -> GuidanceCycle | None:
        """The active batch of tactics (G_t)."""
        ...

    def open_cycle(self, num_tactics: int, constants: Constants) -> Self:
        """The controller after the pending guide yielded tactics."""
        ...

    def fail_guide(self) -> Self:
        """The controller after the pending guide yielded no usable tactic."""
        ...

    def use_tactic(self, *, is_first: bool) -> tuple[Self, int]:
        """The controller after an attempt took a tactic, and the index of that tactic.

        `is_first` says that no earlier attempt of the step followed a tactic. From here on
        the step is guided: `PaidStep.is_guided` of its reward is true.
        """
        ...


@runtime_checkable
class Archiving(Protocol):
    """A method whose frontiers keep archives that parents are drawn from."""

    @property
    def archive_weights(self) -> tuple[EliteWeights, ...]:
        """How each frontier's archive ranks a newcomer; one entry per frontier."""
        ...

    def maintain(
        self, archives: tuple[Archive, ...], rng: Random, constants: Constants
    ) -> tuple[Self, tuple[Archive, ...]]:
        """Controller and archives after spawning and migration, the same if none is due.

        Called after `tell` and before `decide`. Archives that did not change stay the same
        objects; new frontiers come last.
        """
        ...


_GUIDED: dict[type, bool] = {}
_ARCHIVING: dict[type, bool] = {}


def is_guided(controller: object) -> TypeIs[Guided]:
    """Whether a controller is `Guided`, looked up by its class: `isinstance` takes far longer."""
    kind = type(controller)
    if kind not in _GUIDED:
        _GUIDED[kind] = isinstance(controller, Guided)
    return _GUIDED[kind]


def is_archiving(controller: object) -> TypeIs[Archiving]:
    """Whether a controller is `Archiving`, looked up by its class."""
    kind = type(controller)
    if kind not in _ARCHIVING:
        _ARCHIVING[kind] = isinstance(controller, Archiving)
    return _ARCHIVING[kind]
