"""Who answers the calls of a fast simulation: the distributions of the simulated landscape."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

from costada.controller.archive import Candidate
from costada.controller.guidance import Mode
from costada.experiments.landscape.advice import REFINEMENTS, named_approaches
from costada.experiments.landscape.landscape import Landscape, drawn_landscape
from costada.experiments.landscape.population import packaged_strategies
from costada.experiments.landscape.programs import SeenProgram, proposed_program, read_program
from costada.experiments.landscape.proposals import Attempt, Wording
from costada.experiments.landscape.tokens import (
    GUIDE,
    INSIGHT,
    LABELS,
    STRATEGY,
    STRATEGY_FAILURE_RATE,
    Tokens,
    call_tokens,
)


@dataclass(frozen=True, slots=True)
class Request:
    """What the prompt of one attempt would say.

    Attributes:
        parent: The candidate to change.
        num_others: Programs shown beside it.
        wording: What it asks for.
        named: Approach that its breakthrough tactic names; None without one.
    """

    parent: Candidate
    num_others: int
    wording: Wording
    named: int | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """What a guide gave: for each tactic the approach it names, None if it keeps the program's."""

    named: tuple[int | None, ...]
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Evolution:
    """What an evolution brings: a packaged strategy, None where none is valid.

    `calls` are the tokens of each call that it takes; the last one brings the strategy.
    """

    strategy: str | None
    calls: tuple[Tokens, ...]


class Answers(Protocol):
    """Answers every call of one run; all randomness comes from the generator it is given."""

    def attempt(self, request: Request, rng: Random) -> tuple[str, Tokens]:
        """Return the program of an answer, valid or not, and its tokens."""
        ...

    def advise(self, mode: str, best: Candidate, rng: Random) -> Advice:
        """Return the tactics of a guide; none where it gave nothing usable."""
        ...

    def label(self, rng: Random) -> Tokens:
        """Return the tokens of the label call, which only EvoX buys."""
        ...

    def evolve(self, shown: str, rng: Random) -> Evolution:
        """Return what an evolution of EvoX brings.

        Args:
            shown: Name of the strategy to improve on.
            rng: Source of randomness.
        """
        ...


@dataclass(frozen=True, slots=True)
class LandscapeAnswers:
    """Draws every answer from the distributions of one landscape."""

    landscape: Landscape

    @classmethod
    def of_seed(cls, seed: int) -> LandscapeAnswers:
        """Return the answers for runs with a seed."""
        return cls(drawn_landscape(seed))

    def attempt(self, request: Request, rng: Random) -> tuple[str, Tokens]:
        """Return a program made from the parent, and its tokens."""
        seen = _seen(request.parent)
        attempt = Attempt(seen.approach, seen.quality, request.wording, request.named)
        return proposed_program(
            request.parent.code, attempt, request.num_others, self.landscape, rng
        )

    def advise(self, mode: str, best: Candidate, rng: Random) -> Advice:
        """Return three tactics."""
        if mode == Mode.REFINEMENT:
            return Advice((None,) * len(REFINEMENTS), call_tokens(GUIDE, rng))
        seen = _seen(best)
        named = named_approaches(self.landscape, seen.approach, seen.quality, rng)
        return Advice(named, call_tokens(GUIDE, rng))

    def label(self, rng: Random) -> Tokens:
        """Return the tokens of the label call."""
        return call_tokens(LABELS, rng)

    def evolve(self, shown: str, rng: Random) -> Evolution:
        """Return another packaged strategy; once in a while it takes a call more."""
        strategy = rng.choice([name for name in packaged_strategies() if name != shown])
        is_refused = rng.random() < STRATEGY_FAILURE_RATE
        calls = [INSIGHT, STRATEGY] + [STRATEGY] * is_refused
        return Evolution(strategy, tuple(call_tokens(lengths, rng) for lengths in calls))


def _seen(candidate: Candidate) -> SeenProgram:
    seen = read_program(candidate.code)
    if seen is None:
        raise ValueError(f"code: got {candidate.code!r}, expected a program of the landscape")
    return seen
