from math import log, sqrt
from random import Random

import pytest

from costada.controller.baselines.evox import (
    ScoredStrategy,
    best_strategy,
    draw_context,
    strategy_stagnation,
    switch_interval,
    window_score,
)
from costada.controller.constants import Constants


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0.5, 0.8, 0.3 * (1 + log(1.5)) / sqrt(10)), (0.5, 0.8, 0.133334), (0.0, 0.8, 0.252982)],
)
def test_a_window_is_worth_its_rise_weighted_by_where_it_began(
    start: float, end: float, expected: float
) -> None:
    assert window_score(start, end, 10) == pytest.approx(expected, abs=1e-6)


def test_a_window_without_improvement_is_worth_nothing() -> None:
    assert window_score(0.5, 0.5, 10) == 0.0
    assert window_score(0.5, 0.4, 10) == 0.0


def test_a_start_below_zero_gets_no_weight() -> None:
    assert window_score(-0.5, 0.0, 1) == 0.5


@pytest.mark.parametrize(
    ("max_iterations", "interval"), [(1, 1), (9, 1), (19, 1), (20, 2), (100, 10), (250, 25)]
)
def test_a_tenth_of_the_iterations_may_stagnate(max_iterations: int, interval: int) -> None:
    assert switch_interval(Constants(max_iterations=max_iterations)) == interval


def test_only_a_rise_above_the_threshold_ends_stagnation() -> None:
    assert strategy_stagnation(4, 0.5, 0.52) == 0
    assert strategy_stagnation(4, 0.5, 0.505) == 5
    assert strategy_stagnation(4, 0.0, 0.01) == 5


def test_the_first_judgement_never_counts_as_stagnant() -> None:
    assert strategy_stagnation(0, None, 0.5) == 0


def scored(strategy: str, score: float) -> ScoredStrategy:
    return ScoredStrategy(strategy, score, 0, 10, 0.5, 0.6)


def test_the_oldest_of_equally_good_strategies_is_the_best() -> None:
    assert best_strategy([scored("", 0.1), scored("a", 0.3), scored("b", 0.3)]).strategy == "a"
    with pytest.raises(ValueError, match="scored: got none"):
        best_strategy([])


def test_two_others_make_the_context_and_a_text_counts_once() -> None:
    parent = scored("a", 0.3)
    others = [scored("", 0.1), scored("b", 0.0), scored("b", 0.2), scored("a", 0.0)]
    context = draw_context([parent, *others], parent, Random(1))
    assert {(each.strategy, each.score) for each in context} == {("", 0.1), ("b", 0.2)}


def test_the_context_is_drawn_at_random_and_again_alike_for_the_same_randomness() -> None:
    strategies = [scored(name, 0.1) for name in "abcdef"]
    draws = [draw_context(strategies, strategies[0], Random(k)) for k in range(20)]
    assert {len(draw) for draw in draws} == {2}
    assert len({each.strategy for draw in draws for each in draw}) == 5
    assert draws == [draw_context(strategies, strategies[0], Random(k)) for k in range(20)]


def test_a_lonely_strategy_has_no_context() -> None:
    assert draw_context([scored("", 0.1)], scored("", 0.1), Random(0)) == ()
