"""What the peers have in common as methods of the loop: blind to cost, one step at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Self

from costada.controller.allocation import Action, Allocation
from costada.controller.baselines.incumbent_progress import Progress, checked_seed_score
from costada.controller.constants import Constants
from costada.controller.credit import Balance, Credit, normalized_gain
from costada.controller.method import PaidStep, ParentRule
from costada.plugins.peers import openevolve, shinkaevolve
from costada.plugins.peers.gepa import Pool
from costada.plugins.peers.peer_search import Search

NOTES = "notes"
"""The meta-calls of ShinkaEvolve: what the latest programs have shown, and what to try next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer(Progress):
    """A method that chooses parents by what it remembers of all candidates (`search`).

    Attributes:
        memory: Name of the text that holds what it remembers; empty before the first step.
    """

    memory: str = ""

    parents: ClassVar[ParentRule] = ParentRule.POPULATION
    search: ClassVar[type[Search]]

    @property
    def pending(self) -> str | None:
        """The call to buy next; most peers buy none."""
        return None

    @classmethod
    def start(cls, seed_score: float, constants: Constants) -> Self:
        """The controller before the first step.

        Raises:
            ValueError: The seed score is not finite.
        """
        return cls(incumbent_score=checked_seed_score(seed_score))

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        """The same for every step: the balanced action brings no words of its own."""
        return Allocation(0, Action.BALANCED, 0.0)

    def tell(
        self, allocation: Allocation, step: PaidStep, balance: Balance, constants: Constants
    ) -> tuple[Self, Credit]:
        """Note the score of a paid step; both gains are those over the incumbent."""
        gain = normalized_gain(step.score, self.incumbent_score)
        return self.with_score(step.score), Credit(gain, gain, 1.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEvolve(Peer):
    """The controller of OpenEvolve, whose islands take turns."""

    search: ClassVar[type[Search]] = openevolve.Population

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        """The next island in turn; steps in flight have had theirs.

        `process_parallel.py`, `run_evolution`, of `openevolve` 0.4.1: one step after the other, a
        landed step is followed by another one of its island, behind those of the other islands.
        """
        turn = (self.iteration + len(in_flight)) % openevolve.NUM_ISLANDS
        return Allocation(turn, Action.BALANCED, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gepa(Peer):
    """The controller of GEPA, whose one pool is searched step by step."""

    search: ClassVar[type[Search]] = Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShinkaEvolve(Peer):
    """The controller of ShinkaEvolve, whose islands are drawn.

    Attributes:
        pending: `NOTES` while they are due.
    """

    pending: str | None = None

    search: ClassVar[type[Search]] = shinkaevolve.Islands

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        """Any island, one as likely as the other.

        `database/island_sampler.py`, `UniformIslandSampler`, of `shinka-evolve` 0.0.7.
        """
        return Allocation(rng.randrange(shinkaevolve.NUM_ISLANDS), Action.BALANCED, 0.0)
