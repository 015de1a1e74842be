"""The proposition with unknown gains: what policies obtain when each frontier gains by chance.

A step on frontier k costs c_k and gains with chance p_k. OPT takes B / c_k steps on the frontier
with the highest p_k / c_k. No course obtains more: a step gains p_k = c_k (p_k / c_k), which is at
most c_k times the best ratio, and the prices of paid steps add up to B at most.
"""

from collections import Counter
from dataclasses import replace
from math import log, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.controller.arms import Arm, ModelOption, ModelRecord, Money
from costada.plugins.lab.theory.games import Game, Share, share_of_opt
from costada.plugins.lab.theory.policies import fractional_kube, ranking
from costada.plugins.lab.theory.proposition import Instance
from costada.plugins.lab.theory.unknown_gains import (
    EVEN,
    FRONTIERS,
    GAINS,
    LEARNERS,
    NUM_DRAWS,
    drawn_games,
)

BY_NAME = {policy.name: policy for policy in LEARNERS}
BY_GAINS = {gains.name: gains for gains in GAINS}
GAME = Game(prices=(10, 1, 10), chances=(0.9, 0.3, 0.2), num_steps=200, draw=4)


def arm(index: int, price: float, gains: int = 0, tries: int = 0) -> Arm:
    record = ModelRecord(str(index), float(gains), tries, tries * price)
    return Arm(record, ModelOption(str(index), price))


@pytest.fixture(scope="module")
def even() -> dict[str, Share]:
    games = drawn_games(BY_GAINS[EVEN], Instance(FRONTIERS, 10, 2000))[:12]
    names = ("costada-thompson", "budgeted-thompson", "costada", "ucb1", "ranking", "cheapest")
    return {name: share_of_opt(BY_NAME[name], games) for name in names}


def test_thompson_obtains_nine_tenths_where_the_rule_of_the_paper_obtains_a_quarter(
    even: dict[str, Share],
) -> None:
    assert even["costada-thompson"].mean > 0.9
    assert even["budgeted-thompson"].mean > 0.9
    assert even["costada"].mean < 0.3
    assert even["ucb1"].mean < 0.5
    assert even["ranking"].mean < 0.9


def test_expensive_frontiers_that_pay_are_found() -> None:
    games = drawn_games(BY_GAINS["steep"], Instance(FRONTIERS, 10, 1000))[:12]
    own, cheap = (share_of_opt(BY_NAME[name], games) for name in ("costada-thompson", "cheapest"))
    assert own.worst > cheap.mean


def test_opt_takes_the_highest_chance_per_price() -> None:
    assert GAME.best == pytest.approx(200 * 0.3)
    assert replace(GAME, chances=(0.9, 0.05, 0.2)).best == pytest.approx(20 * 0.9)
    share = share_of_opt(BY_NAME["cheapest"], [GAME, replace(GAME, chances=(0.9, 0.05, 0.2))])
    assert share.mean == pytest.approx((1 + 0.05 * 200 / 18) / 2)
    assert share.worst == pytest.approx(10 / 18)
    assert share.error == pytest.approx((1 - 10 / 18) / 2)


@given(
    st.lists(st.tuples(st.integers(1, 20), st.floats(0.05, 1)), min_size=2, max_size=5),
    st.integers(20, 120),
    st.integers(0, 1000),
)
@settings(max_examples=20, deadline=None)
def test_no_policy_obtains_more_than_opt_or_spends_more_than_the_budget(
    frontiers: list[tuple[int, float]], num_steps: int, draw: int
) -> None:
    prices, chances = zip(*frontiers, strict=True)
    game = Game(prices, chances, num_steps, draw)
    for policy in LEARNERS:
        for course in policy.spend(game):
            assert sum(prices[index] for index in course.choices) <= num_steps
        assert 0 <= share_of_opt(policy, [game]).mean <= 1 + 1e-12


def test_a_step_meets_the_same_luck_whatever_was_done_before() -> None:
    one, other = GAME.luck(), GAME.luck()
    alone = [one(1) for _ in range(300)]
    mixed = [(other(0), other(1))[1] for _ in range(300)]
    assert alone == mixed
    assert 0.2 < sum(alone) / 300 < 0.4


def test_games_give_every_place_to_the_cheap_frontier_and_keep_their_scale() -> None:
    for gains in GAINS:
        games = drawn_games(gains, Instance(FRONTIERS, 10, 50))
        places = Counter(game.prices.index(1) for game in games)
        assert places == dict.fromkeys(range(FRONTIERS), NUM_DRAWS // FRONTIERS)
        for game in games:
            for price, chance in zip(game.prices, game.chances, strict=True):
                assert 0 <= chance <= gains.scale(price, 10)
    assert BY_GAINS["rising"].scale(1, 10) == pytest.approx(1 / sqrt(10))
    assert BY_GAINS["rising"].scale(10, 10) == 1
    assert BY_GAINS["steep"].scale(1, 10) == 0.05


def test_ranking_tries_each_frontier_once_and_then_takes_the_best_ratio() -> None:
    tried, money = arm(0, 10, gains=1, tries=1), Money(100, 50)
    assert ranking([tried, arm(1, 1), arm(2, 10)], money, 1, Random(0)).record.name == "1"
    # 1/10 a dollar against 1/4, and 0 for what failed
    arms = [tried, arm(1, 1, gains=1, tries=4), arm(2, 10, gains=0, tries=1)]
    assert ranking(arms, money, 1, Random(0)).record.name == "1"
    assert ranking(arms[::2], money, 1, Random(0)).record.name == "0"


def test_fractional_kube_takes_the_highest_bound_per_price() -> None:
    tries, gains, prices = (8, 30, 2), (7, 10, 0), (4.0, 1.0, 2.0)
    arms = [arm(index, prices[index], gains[index], tries[index]) for index in range(3)]
    bounds = [
        (gains[index] / tries[index] + sqrt(2 * log(40) / tries[index])) / prices[index]
        for index in range(3)
    ]
    best = bounds.index(max(bounds))
    assert best == 2
    assert fractional_kube(arms, Money(99, 9), 1, Random(0)).record.name == "2"
    assert fractional_kube(arms[:2], Money(99, 9), 1, Random(0)).record.name == "1"
    assert fractional_kube([*arms, arm(3, 50.0)], Money(99, 99), 1, Random(0)).record.name == "3"
