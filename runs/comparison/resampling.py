"""Bootstrap confidence intervals of means: how far chance over seeds may have moved them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 5_000
CONFIDENCE = 0.95
RANDOM_SEED = 20_250_101
"""Fixed, so that the same runs always have the same intervals."""
FEWEST = 2
"""With fewer values there is nothing to resample."""
KEPT_DRAWS = 8


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile bootstrap interval at `CONFIDENCE`."""

    low: float
    high: float


def mean_interval(strata: Sequence[Sequence[float]]) -> Interval | None:
    """Return the interval of the mean over strata of the mean in each.

    A stratum holds the values of one benchmark, one per seed, each resampled by itself. For a
    paired comparison the values are the differences between two runs of the same seed.

    Returns:
        None if a stratum has fewer than two values, or there is none.
    """
    if not strata or min(map(len, strata)) < FEWEST:
        return None
    arrays = [np.asarray(values, dtype=np.float64) for values in strata]
    centre = float(np.mean([values.mean() for values in arrays]))
    moved = np.mean(
        [
            _draws(len(values), number) @ (values - values.mean())
            for number, values in enumerate(arrays)
        ],
        axis=0,
    )
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(moved, (tail, 100.0 - tail))
    return Interval(centre + float(low), centre + float(high))


@lru_cache(maxsize=KEPT_DRAWS)
def _draws(size: int, stratum: int) -> NDArray[np.float64]:
    """Return the weight of each of `size` values in each resample of a stratum."""
    random = np.random.default_rng((RANDOM_SEED, stratum))
    counts = random.multinomial(size, np.full(size, 1.0 / size), size=RESAMPLES)
    return counts / size
