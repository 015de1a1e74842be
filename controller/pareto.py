"""The Pareto front: the candidates that no other one beats in every objective."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

MAX_FRONT = 100
"""Candidates on a front; beyond, the most crowded one leaves, so that a step costs the same."""


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate among the objectives.

    Attributes:
        id: Id of the candidate.
        values: Its value in each objective, in one order for all; higher is better.
    """

    id: str
    values: tuple[float, ...]


def dominates(one: Point, other: Point) -> bool:
    """Whether a point is at least as good in every objective, and better in one of them."""
    pairs = zip(one.values, other.values, strict=True)
    return one.values != other.values and all(mine >= theirs for mine, theirs in pairs)


def front_with(front: Sequence[Point], newcomer: Point, size: int = MAX_FRONT) -> tuple[Point, ...]:
    """The front after a candidate was offered, in the order of entry.

    A point that equals or is dominated by one of the front does not enter; those that it dominates
    leave. Where more than `size` are left, the most crowded one leaves.
    """
    if any(each.values == newcomer.values or dominates(each, newcomer) for each in front):
        return tuple(front)
    kept = [*(each for each in front if not dominates(newcomer, each)), newcomer]
    if len(kept) > size:
        room = crowding_distances(kept)
        kept.pop(min(range(len(kept)), key=room.__getitem__))
    return tuple(kept)


def crowding_distances(points: Sequence[Point]) -> list[float]:
    """How far apart the neighbours of each point are, summed over the objectives.

    The crowding distance of NSGA-II (Deb et al. 2002, Sec. III-B): gaps are shares of the range of
    an objective, and a point at either end of one is infinitely far from others.
    """
    distances = [0.0] * len(points)
    for objective in range(len(points[0].values)):
        places = sorted(range(len(points)), key=lambda place: points[place].values[objective])
        values = [points[place].values[objective] for place in places]
        distances[places[0]] = distances[places[-1]] = inf
        span = values[-1] - values[0] or 1.0
        for rank in range(1, len(places) - 1):
            distances[places[rank]] += (values[rank + 1] - values[rank - 1]) / span
    return distances
