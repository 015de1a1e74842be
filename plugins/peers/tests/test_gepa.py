"""The rules of GEPA's pool, on candidates whose scores are drawn."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from costada.plugins.peers.gepa import (
    MINIBATCH,
    Accepted,
    Pool,
    fronts,
    parent_places,
    without_dominated,
)
from costada.values.candidate import Candidate, Program
from costada.values.example_score import ExampleScore

NO_TEXTS = dict[str, str]().__getitem__

SCORES = st.lists(
    st.tuples(*[st.integers(0, 3).map(lambda each: each / 3)] * 4), min_size=1, max_size=12
)


def pool_of(scores: list[tuple[float, ...]]) -> list[Accepted]:
    return [Accepted(str(number), each) for number, each in enumerate(scores)]


def judged(id: str, scores: list[float], parent: str | None = None) -> Candidate:
    examples = tuple(ExampleScore(place, score) for place, score in enumerate(scores))
    mean = sum(scores) / len(scores)
    return Candidate(id=id, program=Program.of(id), score=mean, parent_id=parent, examples=examples)


def begun(scores: list[float]) -> Pool:
    return Pool.begin(judged("0.1", scores), NO_TEXTS, Random(0))


@given(SCORES)
def test_who_leads_nowhere_is_on_no_front_and_every_front_keeps_one(
    scores: list[tuple[float, ...]],
) -> None:
    members = pool_of(scores)
    for place, front in enumerate(without_dominated(members)):
        assert front
        best = max(each.scores[place] for each in members)
        assert all(members[index].scores[place] == best for index in front)


@given(SCORES)
def test_nobody_that_is_left_is_superfluous(scores: list[tuple[float, ...]]) -> None:
    members = pool_of(scores)
    all_fronts, left = fronts(members), set(parent_places(members))
    for index in left:
        own = [set(front) & left for front in all_fronts if index in front]
        assert any(front == {index} for front in own)


def test_who_is_beaten_on_every_example_is_never_a_parent() -> None:
    # the third is the only best on the last example, though its mean is the lowest
    members = pool_of([(0.4, 0.4, 0.0), (0.5, 0.5, 0.0), (0.0, 0.0, 0.2)])
    assert parent_places(members) == [1, 1, 2]


def test_of_two_that_lead_together_the_one_with_the_lower_mean_goes() -> None:
    members = pool_of([(1.0, 0.0, 0.3), (1.0, 0.5, 0.0), (0.0, 0.5, 0.4)])
    # the first leads on the first example only, as the second does, and has the lower mean
    assert fronts(members) == [[0, 1], [1, 2], [2]]
    assert without_dominated(members) == [[1], [1, 2], [2]]


def test_the_best_in_an_objective_is_a_parent_whatever_its_score() -> None:
    members = [
        Accepted("a", (0.9,), {"speed": 1.0}),
        Accepted("b", (0.2,), {"speed": 5.0}),
        Accepted("c", (0.8,), {"speed": 2.0}),
    ]
    assert parent_places(members) == [0, 1]


@settings(max_examples=50)
@given(st.integers(2, 20), st.integers(0, 1000))
def test_an_epoch_of_minibatches_has_every_example_and_few_of_them_twice(
    num_examples: int, seed: int
) -> None:
    pool, rng = begun([0.5] * num_examples), Random(seed)
    drawn: list[int] = []
    while len(drawn) < num_examples:
        drawn += pool._minibatch(rng)
        pool.iterations += 1
    assert set(drawn) == {*range(num_examples)}
    assert len(drawn) < num_examples + MINIBATCH


def test_a_child_has_to_beat_its_parent() -> None:
    pool, rng = begun([0.5] * 3), Random(0)
    equal = judged("1.1", [0.5, 0.6, 0.4], "0.1")
    better = judged("2.1", [0.5, 0.6, 0.5], "0.1")
    broken = Candidate(
        id="3.1", program=Program.of("x"), score=0.0, is_valid=False, parent_id="0.1"
    )
    for child in (equal, better, broken, None):
        pool.land(0, child, NO_TEXTS, rng)
    assert [each.id for each in pool.members] == ["0.1", "2.1"]
    assert pool.iterations == 4


def test_a_child_is_compared_on_the_minibatch_alone() -> None:
    pool = begun([0.5] * 6)
    batch = begun([0.5] * 6)._minibatch(Random(3))
    child = judged("1.1", [0.6 if place in batch else 0.0 for place in range(6)], "0.1")
    pool.land(0, child, NO_TEXTS, Random(3))
    assert [each.id for each in pool.members] == ["0.1", "1.1"]


def test_a_child_that_was_not_judged_on_all_examples_stays_out() -> None:
    pool = begun([0.1] * 5)
    pool.land(0, judged("1.1", [0.9] * 4, "0.1"), NO_TEXTS, Random(0))
    assert [each.id for each in pool.members] == ["0.1"]


def test_parents_are_drawn_as_often_as_they_hold_places() -> None:
    pool = Pool(pool_of([(1.0, 1.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0)]))
    rng = Random(0)
    drawn = [pool.choose(0, NO_TEXTS, rng).parent for _ in range(4000)]
    # 3 of 4 places; four standard deviations of a share of 4,000 are 0.027
    assert abs(drawn.count("0") / 4000 - 0.75) < 0.03


@given(SCORES, st.integers(0, 5))
def test_a_pool_that_was_written_and_read_is_the_same(
    scores: list[tuple[float, ...]], steps: int
) -> None:
    pool = Pool(pool_of(scores))
    for step in range(steps):
        pool.land(0, judged(f"{step}.1", [0.5] * 4), NO_TEXTS, Random(step))
    assert Pool.from_json(pool.to_json()) == pool
