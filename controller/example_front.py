"""Parents from the front over the examples of a data set: who is best on some of them.

The rule of GEPA (Agrawal et al., "GEPA: Reflective prompt evolution can outperform reinforcement
learning", arXiv 2507.19457, Alg. 2): a candidate with a lower mean may be the only one that solves
some example, so what it has learned is not lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from random import Random


@dataclass(frozen=True, slots=True)
class JudgedCandidate:
    """A candidate that was judged on all examples.

    Attributes:
        id: Id of the candidate.
        scores: Its score on each example, in one order for all.
    """

    id: str
    scores: tuple[float, ...]


def example_front(candidates: Sequence[JudgedCandidate]) -> tuple[JudgedCandidate, ...]:
    """The candidates that are best on some example, without those that others make superfluous.

    Superfluous is who is equalled on each example that it is best on; the lowest mean goes first,
    and among equal ones the latest. The order stays as it is.
    """
    leads = _leads(candidates)
    kept = {each.id for each in candidates if leads[each.id]}
    latest_first = candidates[::-1]
    for each in sorted(latest_first, key=lambda each: fsum(each.scores)):
        others = [leads[other] for other in kept if other != each.id]
        if each.id in kept and others and leads[each.id] <= frozenset().union(*others):
            kept.remove(each.id)
    return tuple(each for each in candidates if each.id in kept)


def draw_from_front(front: Sequence[JudgedCandidate], rng: Random) -> str:
    """The id of a parent, drawn by the number of examples on which each candidate is best."""
    leads = _leads(front)
    (chosen,) = rng.choices(front, [len(leads[each.id]) for each in front])
    return chosen.id


def _leads(candidates: Sequence[JudgedCandidate]) -> dict[str, frozenset[int]]:
    """The examples on which no other candidate has a higher score, by candidate."""
    best = [max(scores) for scores in zip(*(each.scores for each in candidates), strict=True)]
    return {
        each.id: frozenset(place for place, score in enumerate(each.scores) if score == best[place])
        for each in candidates
    }
