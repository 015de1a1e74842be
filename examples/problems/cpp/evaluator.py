"""Length of round trips that a program prints for several sets of points."""

import math
import random

SIZES = (40, 50, 60)
RANDOM_TRIP = 0.7124
"""The shortest trip through n random points has a length of about this times the root of n."""


def points(size):
    """The same points in every process."""
    rng = random.Random(size)
    return [(round(rng.random(), 6), round(rng.random(), 6)) for _ in range(size)]


CALLS = [{"stdin": f"{size}\n" + "".join(f"{x} {y}\n" for x, y in points(size))} for size in SIZES]


def score(results):
    """Mean share of the estimated shortest length; a trip that is not a round trip is rejected."""
    shares = []
    for size, result in zip(SIZES, results, strict=True):
        if result.error is not None:
            raise ValueError(f"{size} points: {result.error}")
        shares.append(RANDOM_TRIP * math.sqrt(size) / length(size, result.output["stdout"]))
    return {"combined_score": sum(shares) / len(shares)}


def length(size, printed):
    """Length of the trip that a program printed."""
    try:
        order = [int(word) for word in printed.split()]
    except ValueError as error:
        raise ValueError(
            f"{size} points: the output holds something other than numbers: {error}"
        ) from None
    if sorted(order) != list(range(size)):
        raise ValueError(f"{size} points: expected each number from 0 to {size - 1} once")
    trip = [points(size)[number] for number in order]
    return sum(math.dist(trip[i - 1], trip[i]) for i in range(size))
