"""Checks that every packing of circles has to pass."""

from collections.abc import Iterator

import numpy as np

from costada.evaluators.benchmarks.arrays import Floats
from costada.evaluators.benchmarks.violations import NUM_SHOWN, Violation


def check_radii(radii: Floats) -> None:
    """Do nothing if no radius is negative.

    Raises:
        ValueError: Naming the negative ones.
    """
    negative = [f"radius {i} is {radii[i]:.9g}" for i in np.flatnonzero(radii < 0)]
    if negative:
        raise ValueError("radii must not be negative: " + "; ".join(negative[:NUM_SHOWN]))


def overlaps(centers: Floats, radii: Floats) -> Iterator[Violation]:
    """Yield each pair of circles whose distance is less than the sum of their radii."""
    first, second = np.triu_indices(len(radii), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        distances = np.sqrt(np.sum((centers[first] - centers[second]) ** 2, axis=1))
        amounts = radii[first] + radii[second] - distances
    for k in np.flatnonzero(amounts > 0):
        i, j, amount = first[k], second[k], float(amounts[k])
        sizes = f"distance {distances[k]:.9g}, radii {radii[i]:.9g} + {radii[j]:.9g}"
        yield amount, f"circles {i} and {j} overlap by {amount:.9g} ({sizes})"
