"""What comes of one attempt: from a parent and the wording of its prompt to a new program."""

from dataclasses import dataclass
from enum import StrEnum
from math import log
from random import Random

from costada.experiments.landscape.landscape import Approach, Landscape

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
    """What an answer starts from.

    Attributes:
        approach: Number of the parent's approach.
        quality: The parent's score.
        wording: What the prompt asks for.
        named: Approach that a breakthrough tactic names; None without one.
    """

    approach: int
    quality: float
    wording: Wording
    named: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an answer is.

    Attributes:
        approach: Number of the approach it takes, also when it fails.
        quality: Its score, in [0, 1) with four decimals; None for a program that fails.
    """

    approach: int
    quality: float | None


def attempted(attempt: Attempt, landscape: Landscape, rng: Random) -> Outcome:
    """Return what comes of an attempt.

    First the approach is settled, then whether the program fails, then its score: on the parent's
    approach the parent's score better or worse, on another one where that approach begins.
    """
    target = _target(attempt, len(landscape.approaches), rng)
    approach = landscape.approaches[target]
    if rng.random() < failure_probability(approach.failure_rate, attempt.wording):
        return Outcome(target, None)
    if target != attempt.approach:
        quality = _landing(approach, landscape.landing_mean, rng)
    else:
        quality = _continued(attempt, approach, rng)
    return Outcome(target, int(min(quality, 1.0 - 1.0 / SCORE_STEPS) * SCORE_STEPS) / SCORE_STEPS)


def failure_probability(failure_rate: float, wording: Wording) -> float:
    """Return the probability that an answer is no valid program."""
    is_guided = wording in (Wording.BREAKTHROUGH, Wording.REFINEMENT)
    odds = failure_rate / (1.0 - failure_rate) * (GUIDED_FAILURE_ODDS if is_guided else 1.0)
    return odds / (1.0 + odds)


def improvement_probability(quality: float, ceiling: float) -> float:
    """Return the probability that a valid answer of the parent's approach scores higher."""
    return min(MAX_IMPROVEMENT, IMPROVEMENT_AT_ZERO - IMPROVEMENT_SLOPE * quality / ceiling)


def _target(attempt: Attempt, num_approaches: int, rng: Random) -> int:
    if attempt.named is not None:
        return attempt.named
    if rng.random() >= SWITCHING[attempt.wording]:
        return attempt.approach
    other = rng.randrange(num_approaches - 1)
    return other + (other >= attempt.approach)


def _landing(approach: Approach, mean: float, rng: Random) -> float:
    share = rng.betavariate(mean * LANDING_CONCENTRATION, (1.0 - mean) * LANDING_CONCENTRATION)
    return share * approach.ceiling


def _continued(attempt: Attempt, approach: Approach, rng: Random) -> float:
    if rng.random() >= improvement_probability(attempt.quality, approach.ceiling):
        return attempt.quality * (1.0 - min(1.0, rng.expovariate(1.0 / MEAN_LOSS)))
    boost = REFINEMENT_BOOST if attempt.wording is Wording.REFINEMENT else 1.0
    share = min(MAX_GAIN, rng.lognormvariate(log(approach.median_gain * boost), GAIN_SPREAD))
    return attempt.quality + share * max(0.0, approach.ceiling - attempt.quality)
