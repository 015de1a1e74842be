"""Tosses within a run: what they switch, with which probability, and where they are refused."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from controller_samples import CONSTANTS, ask, kept, records
from hypothesis import given
from hypothesis import strategies as st

from costada.controller.allocation import Action, Allocation
from costada.controller.arms import ModelOption, ModelRecord, Money
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance
from costada.controller.experiment import (
    DIVIDED,
    GUIDE,
    GUIDE_DECLINED,
    NO_GUIDE,
    PROPENSITIES,
    UNDIVIDED,
    check_experiment,
    is_within,
    prepare,
    toss,
    toss_calibration,
    toss_guide,
    window,
)
from costada.controller.guidance import Intervention, Mode
from costada.controller.methods import METHODS
from costada.controller.router import Router

NAMES = st.sampled_from(sorted(PROPENSITIES))


@pytest.mark.parametrize("experiment", PROPENSITIES)
def test_propensities_sum_to_one_and_are_those_of_the_tosses(experiment):
    assert sum(PROPENSITIES[experiment].values()) == 1.0
    drawn = Counter(toss(experiment, seed, 7).arm for seed in range(4000))
    assert drawn.keys() == PROPENSITIES[experiment].keys()
    for arm, probability in PROPENSITIES[experiment].items():
        # four standard errors of a share of 4,000 tosses
        assert drawn[arm] / 4000 == pytest.approx(probability, abs=0.032)


@given(NAMES, st.integers(0, 2**63 - 1), st.integers(1, 10**6))
def test_a_toss_follows_from_seed_and_ticket(experiment, seed, ticket):
    made = toss(experiment, seed, ticket)
    assert made == toss(experiment, seed, ticket)
    assert (made.ticket, made.probability) == (ticket, PROPENSITIES[experiment][made.arm])


def test_tosses_of_a_run_do_not_depend_on_each_other():
    pairs = Counter(
        (toss("guides", seed, 1).arm, toss("guides", seed, 2).arm) for seed in range(4000)
    )
    assert all(count / 4000 == pytest.approx(0.25, abs=0.028) for count in pairs.values())


def stagnant() -> CostAda:
    """CostAda whose next guide is due."""
    flat = [0.4] * 12
    costs = [(0.001, 0.001 * step) for step in range(1, 13)]
    return next(each for each in records("costada", flat, costs) if each.pending)


def seed_of(arm: str) -> int:
    return next(seed for seed in range(99) if toss("guides", seed, 5).arm == arm)


def test_a_guide_that_the_toss_is_for_is_bought_as_scheduled():
    controller, scheduled = stagnant(), Intervention(Mode.BREAKTHROUGH, False, False)
    after, decided, made = toss_guide(controller, scheduled, seed_of(GUIDE), 5, None, 6)
    assert (after, decided, made.arm) == (controller, scheduled, GUIDE)


def test_a_declined_guide_starts_the_patience_again():
    controller, scheduled = stagnant(), Intervention(Mode.BREAKTHROUGH, False, False)
    after, decided, made = toss_guide(controller, scheduled, seed_of(NO_GUIDE), 5, None, 6)
    assert (made.arm, decided.scheduled, after.pending) == (NO_GUIDE, None, None)
    assert decided.notes == (GUIDE_DECLINED,)
    allocation, balance = ask(after), Balance(1.0, 0.1)
    told, _ = after.tell(allocation, kept(0.3), balance, CONSTANTS)
    ended, next_decision = told.decide(allocation, balance, CONSTANTS)
    assert (ended.stagnation, ended.low_yield_cost) == (0, 0.0)
    assert (next_decision.scheduled, next_decision.backed_off) == (None, True)


@pytest.mark.parametrize("arm", [GUIDE, NO_GUIDE])
def test_no_guide_is_bought_before_the_steps_of_the_last_toss_are_launched(arm):
    """Of six steps after ticket 5, the last is that of ticket 11."""
    controller, scheduled = stagnant(), Intervention(Mode.BREAKTHROUGH, False, False)
    last = toss("guides", seed_of(arm), 5)
    for ticket in (5, 6, 10):
        after, decided, made = toss_guide(controller, scheduled, 0, ticket, last, 6)
        assert (after.pending, decided.scheduled, made) == (None, None, last)
    assert toss_guide(controller, scheduled, 0, 11, last, 6)[2] == toss("guides", 0, 11)
    assert [is_within(last, ticket, 6) for ticket in (6, 11, 12)] == [True, True, False]


def test_more_steps_belong_to_a_toss_with_several_in_flight():
    constants = Constants(tactics_per_guide=4, uses_per_tactic=2)
    assert [window(constants, parallel) for parallel in (1, 8)] == [8, 15]


def test_nothing_is_tossed_where_no_guide_is_due():
    controller, nothing = CostAda.start(0.5, CONSTANTS), Intervention(None, False, False)
    assert toss_guide(controller, nothing, 0, 1, None, 6) == (controller, nothing, None)


def played(controller: CostAda, constants: Constants) -> list[CostAda]:
    """The controller after each of some steps with gains and costs."""
    rng, spent, after = Random(1), 0.0, []
    for step in range(40):
        cost = rng.choice((0.002, 0.03))
        spent += cost
        score = controller.incumbent_score + rng.random() / 9 if rng.random() < 0.4 else 0.1
        balance = Balance(2.0, spent)
        allocation = Allocation(step % 2, Action.BALANCED, 0.3)
        controller, _ = controller.tell(
            allocation, replace(kept(score), cost=cost), balance, constants
        )
        controller, _ = controller.decide(allocation, balance, constants)
        after.append(controller)
    return after


def test_credit_that_is_not_divided_is_averaged_as_by_the_ablation():
    undivided = CONSTANTS.model_copy(update={"calibrates_cost": False})
    both = played(CostAda.start(0.5, CONSTANTS).with_both_credits(), CONSTANTS)
    alone = played(CostAda.start(0.5, CONSTANTS), CONSTANTS)
    ablation = played(CostAda.start(0.5, undivided), undivided)
    for one, divided, other in zip(both, alone, ablation, strict=True):
        assert replace(one, undivided=()) == divided
        for kept_averages, frontier in zip(one.undivided, other.frontiers, strict=True):
            assert kept_averages.utility == pytest.approx(frontier.smoothed_utility)
            assert kept_averages.reward == pytest.approx(frontier.allocation_estimate)
    for seed in range(20):
        rng, other_rng = Random(seed), Random(seed)
        balance = Balance(2.0, 0.5)
        chosen = both[-1].ask(balance, rng, undivided)
        expected = ablation[-1].ask(balance, other_rng, undivided)
        assert (chosen.frontier, chosen.action) == (expected.frontier, expected.action)
        assert chosen.intensity == pytest.approx(expected.intensity)


def test_calibration_is_tossed_only_where_it_changes_the_step():
    here, there = Allocation(0, Action.BALANCED, 0.2), Allocation(1, Action.BALANCED, 0.2)
    same = replace(here, intensity=0.4)
    assert toss_calibration(lambda _: here, CONSTANTS, 0, 1) == (here, None)

    def differing(constants):
        return here if constants.calibrates_cost else there

    def alike(constants):
        return here if constants.calibrates_cost else same

    assert toss_calibration(alike, CONSTANTS, 0, 1) == (here, None)
    chosen = {toss_calibration(differing, CONSTANTS, seed, 1)[0] for seed in range(20)}
    assert chosen == {here, there}
    for seed in range(20):
        allocation, made = toss_calibration(differing, CONSTANTS, seed, 1)
        assert made.arm == (DIVIDED if allocation == here else UNDIVIDED)


def test_only_an_experiment_on_calibration_keeps_a_second_average():
    started = CostAda.start(0.5, CONSTANTS)
    assert prepare(started, None) is prepare(started, "guides") is started
    assert len(prepare(started, "calibration").undivided) == len(started.frontiers)


@given(st.permutations(["a", "b", "c"]), st.integers(0, 50))
def test_a_uniform_model_is_one_that_can_be_paid_for_whatever_the_order_of_the_menu(menu, seed):
    """`c` costs more than what is left, and `d` is disabled."""
    dollars = {"a": 0.01, "b": 0.02, "c": 5.0, "d": 0.01}
    records = [ModelRecord(name) for name in menu] + [ModelRecord("d", is_disabled=True)]
    options = [ModelOption(name, dollars[name]) for name in (*menu, "d")]

    def chosen(router):
        money, rng = Money(1.0, 0.5), Random(seed)
        return router.choose(options, money, 1, rng, is_uniform=True)

    assert chosen(Router("fixed:a", tuple(records))) in ("a", "b")
    in_order = Router("ucb1", tuple(sorted(records, key=lambda each: each.name)))
    assert chosen(Router("fixed:a", tuple(records))) == chosen(in_order)


def test_a_uniform_model_is_each_as_often():
    router = Router("cascade", tuple(map(ModelRecord, "abc")))
    options, money = [ModelOption(name, 0.01) for name in "abc"], Money(1.0, 1.0)
    drawn = Counter(
        router.choose(options, money, 1, Random(seed), is_uniform=True) for seed in range(3000)
    )
    assert all(drawn[name] / 3000 == pytest.approx(1 / 3, abs=0.035) for name in "abc")


@pytest.mark.parametrize(
    ("experiment", "method", "num_models", "changes", "message"),
    [
        ("router", "costada", 1, {}, "'router' with one model, expected several models"),
        ("guides", "uniform", 1, {}, "'guides' with method 'uniform', which buys no guides"),
        ("guides", "costada", 1, {"guides": "always"}, "'guides' with guides 'always', expected"),
        ("calibration", "adaevolve", 1, {}, "method 'adaevolve', which never divides credit"),
        ("calibration", "no-cost-calibration", 1, {}, "'no-cost-calibration', so credit is never"),
        (
            "calibration",
            "costada",
            1,
            {"calibrates_cost": False},
            "controller.calibrates_cost = false, so credit is never",
        ),
    ],
)
def test_an_experiment_on_a_part_that_a_run_lacks_is_refused(
    experiment, method, num_models, changes, message
):
    with pytest.raises(ValueError, match=f"^experiment: got .*{message}"):
        check_experiment(experiment, METHODS[method], Constants(**changes), num_models)


@pytest.mark.parametrize("method", ["costada", "adaevolve", "costada-thompson"])
def test_an_experiment_on_a_part_that_a_run_has_is_accepted(method):
    check_experiment(None, METHODS[method], CONSTANTS, 1)
    check_experiment("guides", METHODS[method], CONSTANTS, 1)
    check_experiment("router", METHODS[method], CONSTANTS, 2)
