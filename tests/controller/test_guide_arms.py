"""Guides that are learned: the chance of a guide, what its arms pay in, and what they buy."""

from dataclasses import replace
from random import Random

import pytest
from controller_samples import kept

from costada.controller.allocation import Action, Allocation
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance
from costada.controller.guidance import Mode
from costada.controller.guide_arms import (
    KEPT,
    PRIOR_CREDIT,
    PRIOR_DOLLARS,
    ArmRecord,
    GuideArms,
    chance_of_higher_rate,
)
from costada.controller.method import PaidStep
from costada.controller.step import decide_step

LEARNED = Constants(guides="learned")
HERE = Allocation(0, Action.BALANCED, 0.3)
START = CostAda.start(0.5, LEARNED)


@pytest.mark.parametrize(
    ("shape", "rate", "other_shape", "other_rate", "chance"),
    [
        (1, 1.0, 1, 1.0, 1 / 2),
        (1, 1.0, 1, 3.0, 3 / 4),
        (2, 1.0, 1, 3.0, 3 / 4 + 3 / 4 * 1 / 4),
        (1, 1.0, 2, 3.0, (3 / 4) ** 2),
        (2, 1.0, 2, 1.0, 1 / 2),
        (3, 2.0, 2, 1.0, 1 / 9 + 2 * 1 / 9 * 2 / 3 + 3 * 1 / 9 * 4 / 9),
        (2.5, 0.7, 2.5, 0.7, 1 / 2),
    ],
)
def test_the_chance_that_one_rate_is_higher(shape, rate, other_shape, other_rate, chance):
    """Whole shapes are times of events: which of two processes has its last one first."""
    found = chance_of_higher_rate(shape, rate, other_shape, other_rate)
    assert found == pytest.approx(chance)


def test_the_chance_is_that_of_drawing_both_rates():
    rng = Random(1)
    for _ in range(5):
        shape, other_shape = rng.uniform(0.5, 30.0), rng.uniform(0.5, 30.0)
        rate, other_rate = rng.uniform(0.1, 5.0), rng.uniform(0.1, 5.0)
        drawn = [
            rng.gammavariate(shape, 1 / rate) > rng.gammavariate(other_shape, 1 / other_rate)
            for _ in range(4000)
        ]
        chance = chance_of_higher_rate(shape, rate, other_shape, other_rate)
        assert chance == pytest.approx(sum(drawn) / len(drawn), abs=0.03)


def test_the_chances_of_both_arms_sum_to_one_also_for_extreme_records():
    rng = Random(2)
    for _ in range(300):
        ours = 10 ** rng.uniform(-2, 3.5), 10 ** rng.uniform(-6, 3)
        theirs = 10 ** rng.uniform(-2, 3.5), 10 ** rng.uniform(-6, 3)
        one, other = chance_of_higher_rate(*ours, *theirs), chance_of_higher_rate(*theirs, *ours)
        assert 0.0 <= one <= 1.0
        assert one + other == pytest.approx(1.0, abs=1e-9)


def test_an_arm_that_earned_more_per_dollar_is_the_likelier_one():
    arms = GuideArms(ArmRecord(1.0, 0.2), ArmRecord(1.0, 0.2))
    better = replace(arms, guided=ArmRecord(1.5, 0.2))
    costlier = replace(arms, guided=ArmRecord(1.0, 0.4))
    assert costlier.chance_of_guide < arms.chance_of_guide < better.chance_of_guide


def test_the_priors_alone_decide_before_the_first_step():
    first = chance_of_higher_rate(
        PRIOR_CREDIT[True], PRIOR_DOLLARS[True], PRIOR_CREDIT[False], PRIOR_DOLLARS[False]
    )
    assert GuideArms().chance_of_guide == first


def test_credit_is_the_gain_in_usual_gains_and_older_steps_are_discounted():
    first = GuideArms().after_step(0.06, 0.01, is_guided=False)
    # the first gain is the usual one, and three of them earn full credit
    assert first.unguided == ArmRecord(pytest.approx(1 / 3), 0.01)
    assert (first.guided, first.scale) == (ArmRecord(0.0, 0.0), 0.06)
    second = first.after_step(0.09, 0.03, is_guided=True)
    assert second.guided == ArmRecord(pytest.approx(1 / 2), 0.03)
    assert second.unguided == ArmRecord(pytest.approx(KEPT / 3), pytest.approx(KEPT * 0.01))
    assert second.scale == pytest.approx(0.9 * 0.06 + 0.1 * 0.09)
    third = second.after_step(0.0, 0.02, is_guided=True)
    assert third.guided == ArmRecord(pytest.approx(KEPT / 2), pytest.approx(KEPT * 0.03 + 0.02))
    assert third.scale == second.scale


def told(controller: CostAda, step: PaidStep, spent: float) -> CostAda:
    return controller.tell(HERE, step, Balance(1.0, spent), LEARNED)[0]


def test_a_step_counts_for_its_arm_with_the_guide_that_it_paid_for():
    unguided = told(START, PaidStep(0.6, True, 0.01), 0.01)
    assert unguided.arms.unguided == ArmRecord(pytest.approx(1 / 3), 0.01)
    opened = replace(unguided, pending=Mode.BREAKTHROUGH).open_cycle(3, LEARNED)
    used, _ = opened.use_tactic(is_first=True)
    guided = told(used, PaidStep(0.4, True, 0.03, is_guided=True), 0.04)
    assert guided.arms.guided == ArmRecord(0.0, 0.03)
    failed = replace(unguided, pending=Mode.BREAKTHROUGH).fail_guide()
    assert told(failed, PaidStep(0.4, True, 0.03), 0.04).arms == guided.arms


def test_other_rules_keep_no_records():
    after, _ = START.tell(HERE, kept(0.6), Balance(1.0, 0.5), Constants())
    assert after.arms == START.arms


def test_a_choice_is_due_again_when_the_uses_of_a_guide_have_passed():
    controller, chosen = START, []
    for step in range(1, 15):
        controller = told(controller, PaidStep(0.4, True, 0.01), 0.01 * step)
        controller, decided = controller.decide(HERE, Balance(1.0, 0.01 * step), LEARNED)
        controller = replace(controller, pending=None)
        chosen += [step] if decided.scheduled else []
    assert chosen == [1, 7, 13]


def test_the_next_choice_is_due_as_soon_as_tactics_are_used_up():
    bought = replace(START, pending=Mode.BREAKTHROUGH, arms=GuideArms(wait=6))
    assert bought.open_cycle(3, LEARNED).arms.wait == 0


@pytest.mark.parametrize(("spent", "buys"), [(0.969, True), (0.971, False)])
def test_no_guide_is_bought_that_the_budget_cannot_hold(spent, buys):
    for credit in (0.0, 50.0):
        eager = replace(START, arms=GuideArms(guided=ArmRecord(credit, 0.1)))
        _, decided = eager.decide(HERE, Balance(1.0, spent), LEARNED)
        assert (decided.scheduled is not None) is buys
        assert (decided.chance is not None) is buys


@pytest.mark.parametrize(
    ("rule", "chance"),
    [("always", None), ("learned", START.arms.chance_of_guide)],
)
def test_the_toss_follows_from_the_seed_and_the_chance(rule, chance):
    constants = Constants(guides=rule)
    bought = 0
    for seed in range(400):
        ended, decided = decide_step(START, HERE, Balance(1.0, 0.1), seed, constants)
        again = decide_step(START, HERE, Balance(1.0, 0.1), seed, constants)
        assert (ended, decided) == again
        assert decided.chance == chance
        assert ended.pending == decided.scheduled
        assert decided.scheduled in (None, Mode.BREAKTHROUGH)
        bought += decided.scheduled is not None
    assert bought / 400 == pytest.approx(1.0 if chance is None else chance, abs=0.08)


def test_a_guide_in_flight_is_neither_bought_again_nor_declined():
    pending = replace(START, pending=Mode.BREAKTHROUGH)
    ended, decided = pending.decide(HERE, Balance(1.0, 0.1), LEARNED)
    assert (ended.pending, decided.scheduled, decided.chance) == (Mode.BREAKTHROUGH, None, None)
