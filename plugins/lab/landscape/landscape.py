"""The simulated landscape: approaches, outcomes of attempts and token counts."""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import exp, log
from random import Random

from costada.values.usage import Usage

NUM_APPROACHES = 8
"""Kinds of programs; the recorded ones fall into ten that occur more than twice."""

CEILINGS = (0.6, 1.0)
"""Best scores of an approach, uniform: from the lowest to the highest recorded plateau."""

MEDIAN_GAINS = (0.1, 0.45)
"""Median shares of the gap that an improvement closes, log-uniform; geometric mean as recorded."""

FAILURE_RATES = (0.1, 0.4)
"""Probabilities that an unguided answer is not a valid program, uniform; mean as recorded."""

COST_FACTORS = (0.36, 2.15)
"""Lengths of an approach's answers relative to the mean, log-uniform with mean 1. The costliest
approach may cost six times the cheapest: an assumption, the recorded ones differ by 1.6."""

LANDING_MEANS = (0.55, 0.9)
"""How much of an approach's ceiling the first program of that kind reaches on average, uniform over
landscapes: 0.9 as recorded for circle packing, 0.55 as in the controller trace of the paper."""


@dataclass(frozen=True, slots=True)
class Approach:
    """One kind of program."""

    ceiling: float  # score it cannot exceed, in (0, 1]
    median_gain: float  # median share of the gap to the ceiling that an improvement closes
    failure_rate: float  # probability that an unguided answer is not a valid program
    cost_factor: float  # length of its answers relative to the mean over approaches


@dataclass(frozen=True, slots=True)
class Landscape:
    """One instance."""

    approaches: tuple[Approach, ...]  # by number; the initial program takes number 0
    landing_mean: float  # mean share of its ceiling that the first program of an approach reaches


@lru_cache(maxsize=64)
def drawn_landscape(seed: int) -> Landscape:
    """The landscape of a seed, so that methods with the same seed search the same one."""
    rng = Random(f"landscape {seed}")
    approaches = [
        Approach(
            ceiling=rng.uniform(*CEILINGS),
            median_gain=_log_uniform(MEDIAN_GAINS, rng),
            failure_rate=rng.uniform(*FAILURE_RATES),
            cost_factor=_log_uniform(COST_FACTORS, rng),
        )
        for _ in range(NUM_APPROACHES)
    ]
    return Landscape(tuple(approaches), landing_mean=rng.uniform(*LANDING_MEANS))


def _log_uniform(bounds: tuple[float, float], rng: Random) -> float:
    low, high = bounds
    return exp(rng.uniform(log(low), log(high)))


GUIDED_FAILURE_ODDS = 2.7
"""How many times the odds of a failure rise when a tactic is to be carried out."""

IMPROVEMENT_AT_ZERO, IMPROVEMENT_SLOPE, MAX_IMPROVEMENT = 1.08, 0.67, 0.95
"""Probability that a valid answer of the parent's approach improves on it: it falls linearly with
the parent's share of the ceiling, from at most `MAX_IMPROVEMENT` to 0.41 at the ceiling."""

GAIN_SPREAD = 1.7
"""Standard deviation of the logarithm of the share of the gap that an improvement closes."""

MAX_GAIN = 0.98
"""Largest such share."""

REFINEMENT_BOOST = 1.5
"""How many times the median gain a refinement tactic brings; an assumption."""

MEAN_LOSS = 0.137
"""Mean share of its score that a program loses when it does not improve, exponential."""

LANDING_CONCENTRATION = 3.6
"""Sum of the two parameters of the Beta distribution of the share that a first program reaches."""

SCORE_STEPS = 10_000
"""Scores have four decimals, as prompts show them; smaller gains leave the score unchanged."""


class Wording(StrEnum):
    """What the prompt asks of the attempt."""

    EXPLORATION = "exploration"
    BALANCED = "balanced"
    EXPLOITATION = "exploitation"
    BREAKTHROUGH = "breakthrough"
    REFINEMENT = "refinement"


SWITCHING = {
    Wording.EXPLORATION: 0.30,
    Wording.BALANCED: 0.22,
    Wording.EXPLOITATION: 0.15,
    Wording.BREAKTHROUGH: 0.0,
    Wording.REFINEMENT: 0.0,
}
"""Probability that an answer takes another approach than its parent, beside what a tactic asks for.
Recorded are 0.22 on average and no effect of the wording; the order is an assumption."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an answer starts from."""

    approach: int  # number of the parent's
    quality: float
    wording: Wording
    named: int | None = None  # approach that a breakthrough tactic names; None without one


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an answer is."""

    approach: int  # number of the approach it takes, also when it fails
    quality: float | None  # its score, in [0, 1) with four decimals; None for a program that fails


def draw_outcome(attempt: Attempt, landscape: Landscape, rng: Random) -> Outcome:
    """The outcome of an attempt.

    The approach is drawn first, then whether the program fails, then its score: a change of the
    parent's score on the same approach, a landing score on another one.
    """
    target = attempt.approach
    if attempt.named is not None:
        target = attempt.named
    elif rng.random() < SWITCHING[attempt.wording]:
        other = rng.randrange(len(landscape.approaches) - 1)
        # Every approach but the current one, all with the same chance.
        target = other + (other >= attempt.approach)
    approach = landscape.approaches[target]
    if rng.random() < failure_probability(approach.failure_rate, attempt.wording):
        return Outcome(target, None)
    if target != attempt.approach:
        mean = landscape.landing_mean
        begins_at = rng.betavariate(
            mean * LANDING_CONCENTRATION, (1.0 - mean) * LANDING_CONCENTRATION
        )
        quality = begins_at * approach.ceiling
    elif rng.random() >= improvement_probability(attempt.quality, approach.ceiling):
        quality = attempt.quality * (1.0 - min(1.0, rng.expovariate(1.0 / MEAN_LOSS)))
    else:
        boost = REFINEMENT_BOOST if attempt.wording is Wording.REFINEMENT else 1.0
        drawn = rng.lognormvariate(log(approach.median_gain * boost), GAIN_SPREAD)
        gap = max(0.0, approach.ceiling - attempt.quality)
        quality = attempt.quality + min(MAX_GAIN, drawn) * gap
    # Cut off, not rounded: no score exceeds the ceiling of its approach.
    return Outcome(target, int(min(quality, 1.0 - 1.0 / SCORE_STEPS) * SCORE_STEPS) / SCORE_STEPS)


def failure_probability(failure_rate: float, wording: Wording) -> float:
    """The probability that an answer is not a valid program."""
    is_guided = wording in (Wording.BREAKTHROUGH, Wording.REFINEMENT)
    odds = failure_rate / (1.0 - failure_rate) * (GUIDED_FAILURE_ODDS if is_guided else 1.0)
    return odds / (1.0 + odds)


def improvement_probability(quality: float, ceiling: float) -> float:
    """The probability that a valid answer of the parent's approach scores higher."""
    return min(MAX_IMPROVEMENT, IMPROVEMENT_AT_ZERO - IMPROVEMENT_SLOPE * quality / ceiling)


@dataclass(frozen=True, slots=True)
class Length:
    """Distribution of a number of tokens: lognormal."""

    median: float
    spread: float  # standard deviation of its logarithm

    def draw(self, rng: Random) -> int:
        """A number of tokens, at least 1."""
        return max(1, round(rng.lognormvariate(log(self.median), self.spread)))


PROMPT_BASE, TOKENS_PER_PROGRAM = 1_360, 1_640
"""Prompt of a generation: the text with the parent, and each program shown beside it."""

PROMPT_SPREAD = 0.15
ANSWER = Length(4_400, 0.6)
"""Answer of a generation with cost factor 1; its mean is 5,270 tokens, hidden reasoning included.
It is cut off at `MAX_ANSWER`, the limit that requests carry."""

MAX_ANSWER = 32_000

GUIDE_TOKENS = (Length(6_320, 0.06), Length(3_700, 0.81))
LABEL_TOKENS = (Length(5_920, 0.06), Length(890, 0.6))
INSIGHT_TOKENS = (Length(3_750, 0.12), Length(890, 0.6))
STRATEGY_TOKENS = (Length(3_750, 0.12), Length(4_200, 0.9))
"""Prompt and answer of a guide call and of the three calls that only EvoX makes. One label call and
six strategy calls are on record; the insight call is assumed to read as much as a strategy call and
to write as much as a label call."""

STRATEGY_FAILURE_RATE = 0.1
"""Share of strategies that are refused, so that an evolution asks again: as the offline model."""


def generation_tokens(num_others: int, cost_factor: float, rng: Random) -> Usage:
    """The tokens of one attempt that shows so many programs beside the parent."""
    prompt = Length(PROMPT_BASE + TOKENS_PER_PROGRAM * num_others, PROMPT_SPREAD)
    return Usage(prompt.draw(rng), min(MAX_ANSWER, round(ANSWER.draw(rng) * cost_factor) + 1))


def call_tokens(lengths: tuple[Length, Length], rng: Random) -> Usage:
    """The tokens of a call of another kind."""
    return Usage(lengths[0].draw(rng), lengths[1].draw(rng))
