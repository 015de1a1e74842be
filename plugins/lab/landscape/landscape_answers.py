"""What answers the calls of a simulated run: one landscape, or another world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from math import inf
from random import Random
from typing import Protocol

from costada.controller.guidance import Mode
from costada.evaluators.problem import Problem
from costada.plugins.lab.landscape.landscape import (
    GUIDE_TOKENS,
    INSIGHT_TOKENS,
    LABEL_TOKENS,
    SCORE_STEPS,
    STRATEGY_FAILURE_RATE,
    STRATEGY_TOKENS,
    Attempt,
    Landscape,
    Outcome,
    Wording,
    call_tokens,
)
from costada.plugins.lab.landscape.landscape_problem import (
    MAX_VARIANT,
    SeenProgram,
    landscape,
    proposed_program,
    read_program,
    with_outcome,
)
from costada.plugins.lab.landscape.simulated_model import REFINEMENTS, named_approaches
from costada.values.candidate import Candidate
from costada.values.usage import Usage

STRATEGIES = files("costada.plugins.offline") / "strategies"


@dataclass(frozen=True, slots=True)
class Request:
    """What the prompt of one attempt would say."""

    parent: Candidate
    other_scores: tuple[float, ...]  # of the programs shown beside it
    wording: Wording
    named: int | None = None  # approach that its breakthrough tactic names; None without one

    @property
    def best_other(self) -> float:
        """Best score of the programs shown beside the parent, -inf without any."""
        return max(self.other_scores, default=-inf)


@dataclass(frozen=True, slots=True)
class Advice:
    """The tactics of a guide: the approach that each names, None if it keeps the program's."""

    named: tuple[int | None, ...]
    tokens: Usage


NO_ADVICE = Advice((), Usage(0, 0))
"""What a step without a guide has."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """The result of an evolution: a packaged strategy, None where none is valid.

    `calls` are the tokens of each call that it takes; the last one brings the strategy.
    """

    strategy: str | None
    calls: tuple[Usage, ...]


class Answers(Protocol):
    """Answers every call of one run; all randomness comes from the generator it is given."""

    @property
    def problem(self) -> Problem:
        """The problem that its programs belong to."""

    def attempt(self, request: Request, rng: Random) -> tuple[str, Usage]:
        """The program of an answer, valid or not, and its tokens."""

    def with_score(self, code: str, score: float, rng: Random) -> str:
        """The same program with another score in [0, 1], as near as programs can have it."""

    def advise(self, mode: str, best: Candidate, rng: Random) -> Advice:
        """The tactics of a guide; none where its answer was unusable."""

    def label(self, rng: Random) -> Usage:
        """The tokens of the label call, which only EvoX buys."""

    def evolve(self, shown: str, rng: Random) -> Evolution:
        """The evolution of EvoX from the strategy of that name."""


@lru_cache(maxsize=1)
def landscape_problem() -> Problem:
    """The problem of the landscape, made once: its fingerprint takes longer than ten steps."""
    return landscape()


@dataclass(frozen=True, slots=True)
class LandscapeAnswers:
    """Draws every answer from the distributions of one landscape."""

    landscape: Landscape

    @property
    def problem(self) -> Problem:
        """The problem of the landscape."""
        return landscape_problem()

    def attempt(self, request: Request, rng: Random) -> tuple[str, Usage]:
        """A program made from the parent, and its tokens."""
        seen = _seen(request.parent)
        attempt = Attempt(seen.approach, seen.quality, request.wording, request.named)
        code = request.parent.program.text
        num_others = len(request.other_scores)
        return proposed_program(code, attempt, num_others, self.landscape, rng)

    def with_score(self, code: str, score: float, rng: Random) -> str:
        """The program of the same approach with that quality."""
        seen = read_program(code)
        if seen is None:
            raise ValueError(f"program: got {code!r}, expected one of the landscape")
        steps = min(round(score * SCORE_STEPS), SCORE_STEPS - 1)
        outcome = Outcome(seen.approach, steps / SCORE_STEPS)
        return with_outcome(code, outcome, rng.randrange(1, MAX_VARIANT))

    def advise(self, mode: str, best: Candidate, rng: Random) -> Advice:
        """Three tactics."""
        if mode == Mode.REFINEMENT:
            return Advice((None,) * len(REFINEMENTS), call_tokens(GUIDE_TOKENS, rng))
        seen = _seen(best)
        named = named_approaches(self.landscape, seen.approach, seen.quality, rng)
        return Advice(named, call_tokens(GUIDE_TOKENS, rng))

    def label(self, rng: Random) -> Usage:
        """The tokens of the label call."""
        return call_tokens(LABEL_TOKENS, rng)

    def evolve(self, shown: str, rng: Random) -> Evolution:
        """Another packaged strategy."""
        return draw_evolution(shown, rng)


def draw_evolution(shown: str, rng: Random) -> Evolution:
    """Another packaged strategy, with an extra call where the first is refused."""
    strategy = rng.choice([name for name in packaged_strategies() if name != shown])
    is_refused = rng.random() < STRATEGY_FAILURE_RATE
    calls = [INSIGHT_TOKENS, STRATEGY_TOKENS] + [STRATEGY_TOKENS] * is_refused
    return Evolution(strategy, tuple(call_tokens(lengths, rng) for lengths in calls))


def _seen(candidate: Candidate) -> SeenProgram:
    seen = read_program(candidate.program.text)
    if seen is None:
        raise ValueError(f"program: got {candidate.program.text!r}, expected one of the landscape")
    return seen


@lru_cache(maxsize=1)
def packaged_strategies() -> Mapping[str, str]:
    """The texts that an evolution may bring, by name."""
    texts = [file for file in STRATEGIES.iterdir() if file.name.endswith(".txt")]
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(texts, key=str)}
