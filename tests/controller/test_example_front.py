"""The front over examples, by hand and by properties."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from costada.controller.example_front import JudgedCandidate, draw_from_front, example_front


def front_of(**scores):
    candidates = [JudgedCandidate(name, tuple(map(float, each))) for name, each in scores.items()]
    return [each.id for each in example_front(candidates)]


def test_who_is_best_on_one_example_stays_although_its_mean_is_low():
    assert front_of(good=(1, 1, 1, 0), special=(0, 0, 0, 1), middling=(1, 0, 1, 0)) == [
        "good",
        "special",
    ]


def test_of_equal_candidates_the_first_stays():
    assert front_of(first=(1, 0), second=(1, 0)) == ["first"]


def test_who_is_equalled_wherever_it_is_best_leaves_and_the_lowest_mean_leaves_first():
    # Each of the three is equalled where it is best. Without the weakest, both others are needed.
    assert front_of(a=(9, 9, 1), b=(1, 9, 9), weak=(0, 9, 0)) == ["a", "b"]
    assert front_of(weak=(9, 0, 9), a=(9, 9, 5), b=(5, 9, 9)) == ["a", "b"]


def test_parents_are_drawn_by_the_number_of_examples_on_which_they_are_best():
    front = [
        JudgedCandidate("many", (1.0, 1.0, 1.0, 0.0)),
        JudgedCandidate("one", (0.0, 0.0, 0.0, 1.0)),
    ]
    rng = Random(3)
    drawn = Counter(draw_from_front(front, rng) for _ in range(4000))
    # Three standard deviations of a share of 4,000 around 3/4.
    assert abs(drawn["many"] / 4000 - 3 / 4) < 3 * (3 / 16 / 4000) ** 0.5


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=8))
def test_a_front_covers_every_example_and_needs_each_of_its_members(rows):
    candidates = [JudgedCandidate(str(n), tuple(map(float, row))) for n, row in enumerate(rows)]
    front = example_front(candidates)
    best = [max(column) for column in zip(*rows, strict=True)]

    def covered(members):
        return {
            place
            for each in members
            for place, score in enumerate(each.scores)
            if score == best[place]
        }

    assert covered(front) == set(range(4))
    assert all(covered(front) > covered([m for m in front if m is not each]) for each in front)
    # A front that grew one by one serves as well as that of all at once.
    grown: tuple[JudgedCandidate, ...] = ()
    for each in candidates:
        grown = example_front([*grown, each])
    assert covered(grown) == set(range(4))
