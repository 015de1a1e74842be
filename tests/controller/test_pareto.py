from math import inf

from hypothesis import given
from hypothesis import strategies as st

from costada.controller.pareto import Point, crowding_distances, dominates, front_with

values = st.integers(min_value=0, max_value=6).map(float)
plans = st.lists(st.tuples(values, values, values), max_size=60)


def point(name: str, *values: float) -> Point:
    return Point(name, tuple(map(float, values)))


def front_of(offered: list[tuple[float, ...]], size: int = 100) -> tuple[Point, ...]:
    front: tuple[Point, ...] = ()
    for number, each in enumerate(offered):
        front = front_with(front, Point(str(number), each), size)
    return front


def test_a_point_dominates_where_it_is_nowhere_worse_and_somewhere_better():
    assert dominates(point("a", 2, 1), point("b", 1, 1))
    assert not dominates(point("a", 2, 1), point("b", 1, 2))
    assert not dominates(point("a", 1, 1), point("b", 1, 1))


def test_a_newcomer_replaces_what_it_dominates_and_joins_what_it_does_not():
    front = (point("a", 1, 5), point("b", 3, 3), point("c", 5, 1))
    assert front_with(front, point("d", 2, 2)) == front
    assert front_with(front, point("d", 3, 3)) == front
    assert front_with(front, point("d", 4, 2)) == (*front, point("d", 4, 2))
    assert front_with(front, point("d", 4, 4)) == (front[0], front[2], point("d", 4, 4))
    assert front_with((), point("d", 0, 0)) == (point("d", 0, 0),)


@given(plans)
def test_the_front_holds_each_value_that_nothing_offered_dominates(offered):
    every = [Point("", each) for each in offered]
    expected = {each.values for each in every if not any(dominates(o, each) for o in every)}
    front = front_of(offered)
    assert {each.values for each in front} == expected
    assert len(front) == len(expected)
    assert all(offered.index(each.values) == int(each.id) for each in front)


@given(plans, st.integers(min_value=2, max_value=5))
def test_a_front_never_exceeds_its_size_and_never_holds_a_dominated_point(offered, size):
    front = front_of(offered, size)
    assert len(front) <= size
    assert not any(dominates(one, other) for one in front for other in front)


def test_the_most_crowded_point_leaves_a_full_front_and_its_ends_stay():
    front = front_of([(0.0, 10.0), (10.0, 0.0), (5.0, 5.0), (5.5, 4.0)], 4)
    after = front_with(front, point("e", 2, 8), 4)
    assert [each.values for each in after] == [(0.0, 10.0), (10.0, 0.0), (5.5, 4.0), (2.0, 8.0)]


def test_crowding_is_the_gap_between_the_neighbours_of_a_point_over_all_objectives():
    points = [point("a", 0, 8), point("b", 1, 4), point("c", 4, 0)]
    assert crowding_distances(points) == [inf, 4 / 4 + 8 / 8, inf]
