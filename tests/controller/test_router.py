"""Routers: by hand, and what holds for every menu."""

import json
from dataclasses import asdict
from decimal import Decimal
from operator import attrgetter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from costada.controller.arms import (
    ModelOption,
    ModelRecord,
    Money,
    attempt_price,
    next_scale,
    normalized_gain_to_reference,
    posterior,
    scaled_gain,
)
from costada.controller.router import Router, start_router
from costada.controller.router_rules import RULES, has_first_tries_left

RICH = Money(budget=100.0, left=100.0)
NAMES = ("a", "b", "c", "d")


def router_of(rule="budgeted-thompson", **records):
    """A router over models given as (credit, tries, dollars)."""
    return Router(rule, tuple(ModelRecord(name, *known) for name, known in records.items()))


def chosen(router, prices, *, money=RICH, attempt=1, seed=0, **launched):
    options = [ModelOption(name, price, launched.get(name, 0)) for name, price in prices.items()]
    return router.choose(options, money, attempt, Random(seed))


def test_first_tries_go_to_the_model_with_fewest_and_among_those_to_the_cheapest():
    router, order = start_router("budgeted-thompson", ["strong", "cheap"]), []
    for _ in range(8):
        name = chosen(router, {"strong": 5.0, "cheap": 1.0})
        order.append(name)
        router = router.tell(name, None, 0.5, 0.1, has_reference=True)
    assert order == ["cheap", "strong"] * 4
    assert all(record.tries == 4 for record in router.records)


def test_a_model_that_has_earned_full_credit_is_owed_no_more_first_tries():
    option = ModelOption("a", 1.0)
    assert has_first_tries_left(ModelRecord("a", 0.9, 3, 1.0), option, RICH)
    assert not has_first_tries_left(ModelRecord("a", 1.0, 1, 1.0), option, RICH)
    assert not has_first_tries_left(ModelRecord("a", 0.0, 4, 1.0), option, RICH)


@pytest.mark.parametrize(
    ("record", "expected", "left", "is_owed"),
    [
        # 0.07 of the budget of 100
        (ModelRecord("a"), 7.0, 100.0, True),
        (ModelRecord("a"), 7.001, 100.0, False),
        # what is left
        (ModelRecord("a"), 5.0, 5.0, True),
        (ModelRecord("a"), 5.0, 4.999, False),
        # 0.15 of the budget for all of them
        (ModelRecord("a", 0.0, 1, 9.0), 6.0, 100.0, True),
        (ModelRecord("a", 0.0, 1, 9.001), 6.0, 100.0, False),
    ],
)
def test_first_tries_are_bounded_in_dollars(record, expected, left, is_owed):
    assert has_first_tries_left(record, ModelOption("a", expected), Money(100.0, left)) is is_owed


def test_attempts_in_flight_count_as_first_tries_and_at_their_expected_cost():
    record = ModelRecord("a", 0.0, 1, 3.0)
    assert has_first_tries_left(record, ModelOption("a", 6.0, launched=1), RICH)
    assert not has_first_tries_left(record, ModelOption("a", 6.0, launched=2), RICH)
    assert not has_first_tries_left(record, ModelOption("a", 1.0, launched=3), RICH)
    two = start_router("budgeted-thompson", ["a", "b"])
    assert chosen(two, {"a": 1.0, "b": 2.0}, a=1) == "b"


def test_the_price_is_the_mean_of_the_list_price_and_what_attempts_cost():
    assert attempt_price(ModelRecord("a", 0.0, 3, 5.0), ModelOption("a", 1.0)) == 1.5
    assert attempt_price(ModelRecord("a"), ModelOption("a", 1.0)) == 1.0


def test_the_posterior_counts_every_try_four_times():
    found = posterior(ModelRecord("a", 1.5, 4))
    assert (found.gain, found.failure) == (4 * 2.0, 4 * 4.0)
    assert found.mean == pytest.approx(1 / 3)
    # Beta(8, 16): 8 * 16 / (24 ** 2 * 25)
    assert found.deviation**2 == pytest.approx(128 / 14_400)
    cautious = posterior(ModelRecord("a", 1.5, 4), 1.0)
    assert (cautious.gain, cautious.failure) == (2.0, 4.0)


def test_proven_models_are_drawn_by_credit_per_dollar():
    """The draws are those of `Random.betavariate`, in the order of names."""
    router = router_of(b=(1.0, 6, 6.0), a=(3.0, 6, 24.0))
    for seed in range(50):
        rng = Random(seed)
        first, second = rng.betavariate(14.0, 18.0), rng.betavariate(6.0, 26.0)
        # c_a = (4 + 24) / 7, c_b = (1 + 6) / 7
        best = "a" if first / 4.0 > second / 1.0 else "b"
        assert chosen(router, {"a": 4.0, "b": 1.0}, seed=seed) == best


@pytest.mark.parametrize(
    ("score", "parent", "credit"),
    [
        (None, 0.4, 0.0),
        (0.3, 0.4, 0.0),
        (0.55, 0.4, 0.5),
        (0.7, 0.4, 1.0),
        (0.9, 0.4, 1.0),
        # close to the reference the distance counts as 0.01
        (1.0005, 1.0, 0.1),
        (1.001, 0.999, 0.4),
    ],
)
def test_credit_against_a_reference_is_the_gain_over_half_the_distance_to_it(score, parent, credit):
    assert normalized_gain_to_reference(score, parent) == pytest.approx(credit)
    told = start_router("ucb1", ["a", "b"]).tell("b", score, parent, 0.25, has_reference=True)
    assert told.records[1] == ModelRecord(
        "b", pytest.approx(credit), 1, 0.25, fruitless=int(not credit)
    )
    assert told.records[0] == ModelRecord("a")


def test_credit_without_a_reference_is_the_gain_over_three_usual_gains():
    router = start_router("ucb1", ["a", "b"])
    router = router.tell("a", 0.2, 0.5, 0.1, has_reference=False)
    assert (router.scale, router.records[0].credit) == (0.0, 0.0)
    router = router.tell("a", 5.0, 2.0, 0.1, has_reference=False)
    assert (router.scale, router.records[0].credit) == (3.0, pytest.approx(1 / 3))
    router = router.tell("b", 6.0, 3.0, 0.1, has_reference=False)
    assert (router.scale, router.records[1].credit) == (3.0, pytest.approx(1 / 3))
    router = router.tell("b", None, 3.0, 0.1, has_reference=False)
    # a failure is a gain of 0: s = 0.9 x 3
    assert router.scale == pytest.approx(2.7)
    assert (scaled_gain(30.0, 2.0), next_scale(2.0, 30.0)) == (1.0, pytest.approx(4.8))


def test_dollars_add_up_to_the_last_digit():
    router = start_router("ucb1", ["a", "b"])
    costs = [Decimal("0.1"), Decimal("0.2"), Decimal("0.0000037")] * 50
    for cost in costs:
        router = router.tell("a", None, 0.0, float(cost), has_reference=True)
    assert router.records[0].dollars == float(sum(costs))
    in_floats = 0.0
    for cost in costs:
        in_floats += float(cost)
    assert in_floats != float(sum(costs))
    assert router.charge("b", 0.3).records[1] == ModelRecord("b", dollars=0.3)


def test_round_robin_takes_turns_from_the_cheapest():
    router, order = start_router("round-robin", NAMES), []
    for _ in range(8):
        order.append(chosen(router, {"a": 4.0, "b": 1.0, "c": 3.0, "d": 2.0}))
        router = router.with_credit(order[-1], 0.0, 0.01)
    assert order == ["b", "d", "c", "a"] * 2


def test_cascade_asks_the_next_model_after_each_failure():
    router, prices = start_router("cascade", ("a", "b", "c")), {"a": 5.0, "b": 1.0, "c": 25.0}
    asked = [chosen(router, prices, attempt=attempt) for attempt in (1, 2, 3, 4)]
    assert asked == ["b", "a", "c", "c"]


def asked_in_vain(prices, attempts):
    """The models that `patience` asks where none ever helps and each costs its list price."""
    router, asked = start_router("patience", tuple(prices)), []
    for _ in range(attempts):
        asked.append(chosen(router, prices))
        router = router.with_credit(asked[-1], 0.0, prices[asked[-1]])
    return asked


def test_patience_counts_attempts_in_vain_by_the_root_of_the_price():
    # b: 1, 2, 3, ...; a: 2, 4, 6, ...; c: 3, 6, ...; the cheaper one on a tie
    prices = {"a": 4.0, "b": 1.0, "c": 9.0}
    assert "".join(asked_in_vain(prices, 10)) == "bbabcbabba"
    # attempts in flight count: b has 2 with the next one, a 2 and c 3; with two of b, a is next
    router = start_router("patience", tuple(prices))
    assert chosen(router, prices, b=1) == "b"
    assert chosen(router, prices, b=2) == "a"


def test_patience_lasts_ten_times_as_long_with_a_model_that_has_brought_something():
    router, prices = start_router("patience", ("a", "b")), {"a": 4.0, "b": 1.0}
    router = router.with_credit("b", 0.0, 1.0).with_credit("b", 0.0, 1.0)
    router = router.with_credit("a", 0.1, 4.0)
    # b stands at 3; a at 2 / 10, 4 / 10, ..., and at 3 after 14 attempts
    for _ in range(14):
        assert chosen(router, prices) == "a"
        router = router.with_credit("a", 0.0, 4.0)
    assert chosen(router, prices) == "b"


def test_patience_does_not_stay_for_ever_with_a_free_model():
    # a free model counts as ten times cheaper, whose root is 3.2: b for every third of a
    assert "".join(asked_in_vain({"a": 0.0, "b": 5.0}, 12)) == "aaabaaabaaab"
    assert "".join(asked_in_vain({"a": 0.0, "b": 0.0}, 4)) == "abab"


@given(st.lists(st.floats(1.0, 10.0), min_size=2, max_size=4))
def test_patience_bounds_what_models_that_never_help_cost(prices):
    asked = asked_in_vain(dict(zip(NAMES, prices, strict=False)), 40)
    tries = [asked.count(name) for name in NAMES[: len(prices)]]
    for mine, my_price in zip(tries, prices, strict=True):
        for other, its_price in zip(tries, prices, strict=True):
            assert mine * my_price**0.5 <= (other + 1) * its_price**0.5 * (1 + 1e-9)


def test_ucb1_is_blind_to_price():
    # a: 2 / 4 + sqrt(2 ln 8 / 4) against b: 1 / 4 + the same
    router = router_of("ucb1", a=(2.0, 4, 400.0), b=(1.0, 4, 0.1))
    assert chosen(router, {"a": 99.0, "b": 0.1}, money=Money(1e6, 1e6)) == "a"
    # a: 2 / 40 + sqrt(2 ln 44 / 40) = 0.485 against b: 1 / 4 + sqrt(2 ln 44 / 4) = 1.63
    router = router_of("ucb1", a=(2.0, 40, 400.0), b=(1.0, 4, 0.1))
    assert chosen(router, {"a": 99.0, "b": 0.1}, money=Money(1e6, 1e6)) == "b"
    assert chosen(start_router("ucb1", ["a", "b"]), {"a": 9.0, "b": 1.0}, a=1) == "b"


def test_a_fixed_model_is_left_only_where_it_is_disabled_or_cannot_be_paid_for():
    router = start_router("fixed:b", ("a", "b", "c"))
    prices = {"a": 1.0, "b": 5.0, "c": 0.5}
    assert chosen(router, prices) == "b"
    assert chosen(router.disable("b"), prices) == "c"
    assert chosen(router, prices, money=Money(100.0, 2.0)) == "b"
    options = [
        ModelOption("a", 1.0),
        ModelOption("b", 5.0, is_payable=False),
        ModelOption("c", 0.5),
    ]
    assert router.choose(options, Money(100.0, 2.0), 1, Random(0)) == "c"


def test_models_without_a_price_are_chosen_by_drawn_credit():
    router = router_of(a=(4.0, 40, 0.0), b=(30.0, 40, 0.0))
    names = {chosen(router, {"a": 0.0, "b": 0.0}, seed=seed) for seed in range(30)}
    assert names == {"b"}
    free = router_of(a=(0.0, 40, 0.0), b=(30.0, 40, 40.0))
    assert chosen(free, {"a": 0.0, "b": 1.0}) == "a"


def test_nobody_is_asked_where_nothing_can_be_paid_for():
    router = start_router("budgeted-thompson", ["a", "b"])
    options = [ModelOption("a", 1.0, is_payable=False), ModelOption("b", 2.0, is_payable=False)]
    assert router.choose(options, RICH, 1, Random(0)) is None
    options[1] = ModelOption("b", 2.0)
    assert router.choose(options, Money(100.0, 0.5), 1, Random(0)) == "b"


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match=r"router: got 'best', expected budgeted-thompson, .*NAME"):
        start_router("best", ["a"])
    with pytest.raises(ValueError, match="models: got a, a, expected different names"):
        start_router("ucb1", ["a", "a"])
    with pytest.raises(ValueError, match="'fixed:c', expected a model of the menu: a, b"):
        start_router("fixed:c", ["a", "b"])
    router = start_router("ucb1", ["a", "b"])
    with pytest.raises(ValueError, match="options: got a, expected one for each of a, b"):
        router.choose([ModelOption("a", 1.0)], RICH, 1, Random(0))
    with pytest.raises(ValueError, match="every model of the menu is disabled"):
        chosen(router.disable("a").disable("b"), {"a": 1.0, "b": 1.0})


by_name = attrgetter("name")
dollars = st.floats(0.0, 50.0).map(lambda value: round(value, 6))


@st.composite
def situations(draw):
    """A router over two to four models, their options, and money."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(2, 4))]
    records, options = [], []
    for name in names:
        tries = draw(st.integers(0, 20))
        share = draw(st.floats(0.0, 1.0))
        disabled = draw(st.booleans()) and name != names[0]
        records.append(
            ModelRecord(name, share * tries, tries, draw(dollars) * (tries > 0), disabled)
        )
        options.append(ModelOption(name, draw(dollars), draw(st.integers(0, 4))))
    rule = draw(st.sampled_from([*RULES, f"fixed:{names[0]}"]))
    budget = draw(st.floats(0.01, 200.0))
    money = Money(budget, draw(st.floats(-10.0, budget)))
    router = Router(rule, tuple(records), draw(st.floats(0.0, 2.0)))
    return router, options, money, draw(st.integers(1, 5)), draw(st.integers(0, 10**6))


@given(situations(), st.randoms(use_true_random=False))
def test_permuting_the_menu_permutes_the_choices(situation, shuffling):
    """Names say who is who: the same model is chosen in whatever order the menu lists them."""
    router, options, money, attempt, seed = situation
    records, others = list(router.records), list(options)
    shuffling.shuffle(records)
    shuffling.shuffle(others)
    shuffled = Router(router.rule, tuple(records), router.scale)
    name = router.choose(options, money, attempt, Random(seed))
    assert shuffled.choose(others, money, attempt, Random(seed)) == name
    told = router.tell(name, 0.7, 0.5, 0.01, has_reference=False)
    told_too = shuffled.tell(name, 0.7, 0.5, 0.01, has_reference=False)
    assert sorted(told.records, key=by_name) == sorted(told_too.records, key=by_name)


@given(situations())
def test_an_unaffordable_model_is_never_chosen_while_an_affordable_one_exists(situation):
    router, options, money, attempt, seed = situation
    left = {each.name: each for each in router.records if not each.is_disabled}
    price = {
        option.name: (option.expected + left[option.name].dollars) / (1 + left[option.name].tries)
        for option in options
        if option.name in left
    }
    name = router.choose(options, money, attempt, Random(seed))
    assert name in left
    if router.rule == f"fixed:{name}":
        return
    if any(each <= money.left for each in price.values()):
        assert price[name] <= money.left
    else:
        assert price[name] == min(price.values())


@given(situations(), st.sets(st.sampled_from(NAMES)))
def test_under_a_hard_budget_no_model_is_chosen_that_cannot_be_paid_for(situation, unpayable):
    router, options, money, attempt, seed = situation
    hard = [
        ModelOption(each.name, each.expected, each.launched, each.name not in unpayable)
        for each in options
    ]
    payable = {
        each.name for each in router.records if not each.is_disabled and each.name not in unpayable
    }
    name = router.choose(hard, money, attempt, Random(seed))
    assert name in payable if payable else name is None


@given(situations())
def test_a_router_survives_json_and_chooses_the_same(situation):
    router, options, money, attempt, seed = situation
    text = json.dumps(asdict(router))
    again = TypeAdapter(Router).validate_python(json.loads(text))
    assert again == router
    first = router.choose(options, money, attempt, Random(seed))
    assert again.choose(options, money, attempt, Random(seed)) == first


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.floats(0, 1), st.floats(0, 1))),
    st.booleans(),
)
def test_credit_stays_between_none_and_one_a_try(attempts, has_reference):
    router = start_router("budgeted-thompson", ["a", "b"])
    for name, score, parent in attempts:
        router = router.tell(name, score, parent, 0.001, has_reference=has_reference)
    for record in router.records:
        assert 0 <= record.credit <= record.tries + 1e-9
        assert record.tries == sum(name == record.name for name, *_ in attempts)
