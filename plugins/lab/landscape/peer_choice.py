"""What a method that remembers all candidates chooses in a simulated run."""

from collections.abc import Callable
from random import Random
from typing import ClassVar, Protocol, Self, cast

from costada.controller.method import Controller
from costada.controller.step import draws
from costada.plugins.lab.landscape.landscape import Wording
from costada.plugins.lab.landscape.landscape_answers import Request
from costada.values.candidate import Candidate
from costada.values.numbering import START_TICKET, TicketNumber

TextOf = Callable[[str], str]


class PeerChoice(Protocol):
    """What an attempt starts from, as candidate ids."""

    @property
    def parent(self) -> str:
        """The candidate to change."""

    @property
    def shown(self) -> tuple[str, ...]:
        """Those shown beside it."""


class PeerSearch(Protocol):
    """What a peer remembers, which another plug-in holds."""

    @classmethod
    def begin(cls, seed: Candidate, text_of: TextOf, rng: Random) -> Self:
        """The memory of a run that has evaluated the initial program."""

    def choose(self, island: int, text_of: TextOf, rng: Random) -> PeerChoice:
        """What the next attempt on an island starts from."""

    def land(self, island: int, landed: Candidate | None, text_of: TextOf, rng: Random) -> None:
        """Take in what a step brought."""


class Remembering(Controller, Protocol):
    """What the controller of a peer offers."""

    search: ClassVar[type[PeerSearch]]


class PeerMemory:
    """The memory of a peer in a simulated run, with the candidates that it knows."""

    def __init__(self, kind: type[PeerSearch], seed: Candidate, run_seed: int) -> None:
        """Begin with the initial program."""
        self._seed = run_seed
        self._known = {seed.id: seed}
        self._texts = {seed.program.hash: seed.program.text}
        rng = draws(run_seed, START_TICKET, "memory")
        self._search = kind.begin(seed, self._texts.__getitem__, rng)

    def request(self, island: int, ticket: TicketNumber) -> Request:
        """What the attempt of a step starts from.

        A failed parent counts as the valid program that it was made from, as if the model repaired
        it at once: no world knows what comes of a failed one.
        """
        rng = draws(self._seed, ticket, "parents")
        choice = self._search.choose(island, self._texts.__getitem__, rng)
        parent = self._known[choice.parent]
        while not parent.is_valid and parent.parent_id is not None:
            parent = self._known[parent.parent_id]
        shown = tuple(self._known[name].score for name in choice.shown)
        return Request(parent, shown, Wording.BALANCED)

    def land(self, island: int, landed: Candidate | None, ticket: TicketNumber) -> None:
        """Take in what a step brought."""
        if landed is not None:
            self._known[landed.id] = landed
            self._texts[landed.program.hash] = landed.program.text
        rng = draws(self._seed, ticket, "memory")
        self._search.land(island, landed, self._texts.__getitem__, rng)


def memory_of(controller: Controller, seed: Candidate, run_seed: int) -> PeerMemory | None:
    """The memory of a peer that begins; None for any other method."""
    if not hasattr(controller, "search"):
        return None
    return PeerMemory(cast(Remembering, controller).search, seed, run_seed)
