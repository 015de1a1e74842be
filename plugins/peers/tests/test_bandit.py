"""The routers after ShinkaEvolve's bandit: by hand, and what holds for every menu."""

import json
from dataclasses import asdict
from math import exp, expm1, log, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from costada.controller.arms import Arm, ModelOption, Money
from costada.controller.router import ROUTERS, start_router
from costada.nodes.state import plain
from costada.plugins.peers.bandit import (
    EPSILON,
    KEPT,
    PRICE_BLIND,
    SHINKA,
    ShinkaRouter,
    decayed,
)

RICH = Money(100.0, 100.0)


def arms_of(router, **launched):
    return [
        Arm(record, ModelOption(record.name, 1.0, launched.get(record.name, 0)))
        for record in router.records
    ]


def told(router, *attempts):
    """The router after attempts given as (name, score, parent, dollars)."""
    for name, score, parent, dollars in attempts:
        router = router.tell(name, score, parent, dollars, has_reference=True)
    return router


def test_both_are_routers_that_a_run_can_choose():
    for name in (SHINKA, PRICE_BLIND):
        assert ROUTERS[name] is ShinkaRouter
        assert isinstance(start_router(name, ["a", "b"]), ShinkaRouter)


def test_models_that_were_never_asked_come_first():
    router = start_router(SHINKA, ["a", "b", "c"])
    assert router.probabilities(arms_of(router)) == [pytest.approx(1 / 3)] * 3
    router = told(router, ("b", 0.6, 0.5, 0.01))
    assert router.probabilities(arms_of(router)) == [0.5, 0.0, 0.5]
    assert router.probabilities(arms_of(router, a=1)) == [0.0, 0.0, 1.0]


def test_the_value_without_prices_is_the_mean_gain_over_the_best_one_plus_a_bonus():
    router = start_router(PRICE_BLIND, ["a", "b"])
    router = told(router, ("a", 0.9, 0.5, 9.0), ("b", 0.6, 0.5, 1.0), ("b", 0.3, 0.5, 1.0))
    reward_a = decayed(decayed(decayed(expm1(0.4))))
    reward_b = decayed(decayed(expm1(0.1)))
    mean_a, mean_b = reward_a / KEPT**3, reward_b / (KEPT**2 + KEPT)
    highest = max(decayed(decayed(decayed(expm1(0.4)))), mean_a)
    assert router.rewards[0].mean == pytest.approx(mean_a)
    value_a = mean_a / highest + sqrt(2 * log(3) / 1)
    value_b = mean_b / highest + sqrt(2 * log(3) / 2)
    assert value_a > value_b
    assert router.probabilities(arms_of(router)) == [1 - EPSILON, EPSILON]


def test_a_price_counts_as_much_as_the_gain():
    attempts = [("a", 0.5, 0.5, 1.0), ("b", 0.5, 0.5, 4.0)] * 5
    blind = told(start_router(PRICE_BLIND, ["a", "b"]), *attempts, ("a", 0.5, 0.5, 1.0))
    # without a gain, the model with fewer tries
    assert blind.probabilities(arms_of(blind)) == [EPSILON, 1 - EPSILON]
    weighing = told(start_router(SHINKA, ["a", "b"]), *attempts, ("a", 0.5, 0.5, 1.0))
    assert weighing.probabilities(arms_of(weighing)) == [1 - EPSILON, EPSILON]


def test_a_gain_counts_above_the_parent_and_the_initial_program():
    router = told(start_router(SHINKA, ["a", "b"]), ("a", 0.5, 0.5, 1.0), ("a", 0.5, 0.2, 1.0))
    assert router.baseline == 0.5
    assert router.rewards[0].total == 0.0
    router = told(router, ("a", 0.75, 0.2, 1.0))
    assert router.rewards[0].total == pytest.approx(decayed(expm1(0.25)))


def test_a_decay_shrinks_large_sums_more():
    # s + log(0.95) - log(1 - 0.05 + 0.05 exp(s)) in the package's logarithms
    for log_sum in (-3.0, 0.5, 4.0):
        expected = log_sum + log(KEPT) - log(1 + (1 - KEPT) * exp(log_sum))
        assert log(decayed(exp(log_sum))) == pytest.approx(expected)


ATTEMPTS = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.none() | st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 9.0)
    ),
    max_size=30,
)


@given(ATTEMPTS, st.sampled_from([SHINKA, PRICE_BLIND]), st.permutations("abcd"))
def test_chances_add_up_and_a_permuted_menu_permutes_them(attempts, rule, names):
    router = told(start_router(rule, [*"abcd"]), *attempts)
    chances = router.probabilities(arms_of(router))
    assert sum(chances) == pytest.approx(1.0)
    assert all(0.0 <= each <= 1.0 for each in chances)
    permuted = told(start_router(rule, names), *attempts)
    by_name = dict(zip(names, permuted.probabilities(arms_of(permuted)), strict=True))
    assert [by_name[name] for name in "abcd"] == pytest.approx(chances)
    options = [ModelOption(name, 1.0) for name in "abcd"]
    chosen = {each.choose(options, RICH, 1, Random(7)) for each in (router, permuted)}
    assert len(chosen) == 1


@given(ATTEMPTS)
def test_a_checkpoint_keeps_what_a_router_learned(attempts):
    router = told(start_router(SHINKA, [*"abcd"]), *attempts)
    name, named = json.loads(json.dumps(plain(router)))
    assert name == "ShinkaRouter"
    assert TypeAdapter(ShinkaRouter).validate_python(named) == router
    assert TypeAdapter(ShinkaRouter).validate_python(asdict(router)) == router
