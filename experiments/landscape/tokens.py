"""How many tokens a call of the simulated model takes: lognormal around recorded means."""

from dataclasses import dataclass
from math import log
from random import Random


@dataclass(frozen=True, slots=True)
class Length:
    """Distribution of a number of tokens: lognormal.

    Attributes:
        median: Median number of tokens.
        spread: Standard deviation of its logarithm.
    """

    median: float
    spread: float

    def drawn(self, rng: Random) -> int:
        """Return a number of tokens, at least 1."""
        return max(1, round(rng.lognormvariate(log(self.median), self.spread)))


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one call is billed for."""

    taken: int
    given: int


PROMPT_BASE, TOKENS_PER_PROGRAM = 1_360, 1_640
"""Prompt of a generation: the text with the parent, and each program shown beside it."""

PROMPT_SPREAD = 0.15
ANSWER = Length(4_400, 0.6)
"""Answer of a generation with cost factor 1; its mean is 5,270 tokens, hidden reasoning included.
It is cut off at `MAX_ANSWER`, the limit that requests carry."""

MAX_ANSWER = 32_000

GUIDE = (Length(6_320, 0.06), Length(3_700, 0.81))
LABELS = (Length(5_920, 0.06), Length(890, 0.6))
INSIGHT = (Length(3_750, 0.12), Length(890, 0.6))
STRATEGY = (Length(3_750, 0.12), Length(4_200, 0.9))
"""Prompt and answer of a guide call and of the three calls that only EvoX makes. One label call and
six strategy calls are on record; the insight call is assumed to read as much as a strategy call and
to write as much as a label call."""

STRATEGY_FAILURE_RATE = 0.1
"""Share of strategies that are refused, so that an evolution asks again: as the offline model."""


def generation_tokens(num_others: int, cost_factor: float, rng: Random) -> Tokens:
    """Return the tokens of one attempt.

    Args:
        num_others: Programs shown beside the parent.
        cost_factor: Of the approach that the answer takes.
        rng: Source of randomness.
    """
    prompt = Length(PROMPT_BASE + TOKENS_PER_PROGRAM * num_others, PROMPT_SPREAD)
    return Tokens(prompt.drawn(rng), min(MAX_ANSWER, round(ANSWER.drawn(rng) * cost_factor) + 1))


def call_tokens(lengths: tuple[Length, Length], rng: Random) -> Tokens:
    """Return the tokens of a call of another kind."""
    return Tokens(lengths[0].drawn(rng), lengths[1].drawn(rng))
