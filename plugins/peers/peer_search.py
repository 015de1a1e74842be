"""What the graph asks of a peer: where the next attempt begins, and what a landed one changes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Protocol, Self

from costada.values.candidate import Candidate

TextOf = Callable[[str], str]
"""The text of a program by its name, which is the hash of the program."""

NO_GAINS: Mapping[str, float] = MappingProxyType({})
"""What a candidate gains in the objectives of a problem that has one objective only."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What an attempt starts from, as candidate ids.

    Attributes:
        parent: The candidate to change.
        mode: How it was drawn, in a word.
        shown: Those shown beside it, whole.
        previous: Those of which the changes are shown.
        advice: A recommendation to show, if any.
    """

    parent: str
    mode: str
    shown: tuple[str, ...] = ()
    previous: tuple[str, ...] = ()
    advice: str = ""


class Search(Protocol):
    """What a peer remembers of a run, changed by each choice and each landing.

    Randomness and the texts of programs come in as arguments, so the same calls lead to the same
    choices.
    """

    @classmethod
    def begin(
        cls, seed: Candidate, text_of: TextOf, rng: Random, gains: Mapping[str, float] = NO_GAINS
    ) -> Self:
        """The memory of a run that has evaluated the initial program."""
        ...

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The memory that a text describes."""
        ...

    def to_json(self) -> str:
        """The memory as text."""
        ...

    def choose(self, island: int, text_of: TextOf, rng: Random) -> Choice:
        """What the next attempt on an island starts from."""
        ...

    def land(
        self,
        island: int,
        landed: Candidate | None,
        text_of: TextOf,
        rng: Random,
        gains: Mapping[str, float] = NO_GAINS,
    ) -> None:
        """Take in what a step brought, which may be invalid; `None` for no program.

        `gains` are its values in the objectives of the problem; higher is better.
        """
        ...
