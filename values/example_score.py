"""The score of a candidate on one example of a data set."""

from collections.abc import Iterable
from typing import NamedTuple


class ExampleScore(NamedTuple):
    """How a candidate did on one example.

    Attributes:
        place: Index of the example in its data set.
        score: In [0, 1]; 0 if the candidate failed on it.
        feedback: What the evaluator says of it, or why the candidate failed; may be empty.
    """

    place: int
    score: float
    feedback: str = ""


class JudgedExamples(NamedTuple):
    """On how many examples candidates were judged, and on how many they were not.

    Attributes:
        judged: Examples on which they were judged, all candidates together.
        spared: The others, which their races have spared.
    """

    judged: int
    spared: int


def scores_by_place(examples: Iterable[ExampleScore]) -> tuple[float, ...]:
    """The scores in the order of the data set, of a candidate that was judged on all of it."""
    return tuple(each.score for each in sorted(examples))
