"""What a simulated landscape is made of: approaches with a ceiling, a pace, a risk and a price.

Every number was fixed from recorded runs of a language model on circle packing, or named as an
assumption, before any methods were compared on it; docs/understand/landscape.md has the sources.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, log
from random import Random

NUM_APPROACHES = 8
"""Kinds of programs; the recorded ones fall into ten that occur more than twice."""

CEILINGS = (0.6, 1.0)
"""Best scores of an approach, uniform: from the lowest to the highest recorded plateau."""

MEDIAN_GAINS = (0.1, 0.45)
"""Median shares of the gap that an improvement closes, log-uniform; geometric mean as recorded."""

FAILURE_RATES = (0.1, 0.4)
"""Probabilities that an unguided answer is no valid program, uniform; mean as recorded."""

COST_FACTORS = (0.36, 2.15)
"""Lengths of an approach's answers relative to the mean, log-uniform with mean 1. The dearest
approach may cost six times the cheapest: an assumption, the recorded ones differ by 1.6."""

LANDING_MEANS = (0.55, 0.9)
"""How much of an approach's ceiling the first program of that kind reaches on average, uniform over
landscapes: 0.9 as recorded for circle packing, 0.55 as in the controller trace of the paper."""


@dataclass(frozen=True, slots=True)
class Approach:
    """One kind of program.

    Attributes:
        ceiling: Score it cannot exceed, in (0, 1].
        median_gain: Median share of the gap to the ceiling that an improvement closes.
        failure_rate: Probability that an unguided answer is no valid program.
        cost_factor: Length of its answers relative to the mean over approaches.
    """

    ceiling: float
    median_gain: float
    failure_rate: float
    cost_factor: float


@dataclass(frozen=True, slots=True)
class Landscape:
    """One instance.

    Attributes:
        approaches: By number; the initial program takes number 0.
        landing_mean: Mean share of its ceiling that the first program of an approach reaches.
    """

    approaches: tuple[Approach, ...]
    landing_mean: float


@lru_cache(maxsize=64)
def drawn_landscape(seed: int) -> Landscape:
    """Return the landscape of a seed, so that methods with the same seed search the same one."""
    rng = Random(f"landscape {seed}")
    return Landscape(
        approaches=tuple(_drawn_approach(rng) for _ in range(NUM_APPROACHES)),
        landing_mean=rng.uniform(*LANDING_MEANS),
    )


def _drawn_approach(rng: Random) -> Approach:
    return Approach(
        ceiling=rng.uniform(*CEILINGS),
        median_gain=_log_uniform(MEDIAN_GAINS, rng),
        failure_rate=rng.uniform(*FAILURE_RATES),
        cost_factor=_log_uniform(COST_FACTORS, rng),
    )


def _log_uniform(bounds: tuple[float, float], rng: Random) -> float:
    low, high = bounds
    return exp(rng.uniform(log(low), log(high)))
