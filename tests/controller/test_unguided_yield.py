"""Learned guides: what steps without a tactic bring, and which guides they make unnecessary."""

from dataclasses import replace

import pytest
from controller_samples import kept

from costada.controller.allocation import Action, Allocation
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance
from costada.controller.guidance import Mode, required_patience
from costada.controller.method import PaidStep
from costada.controller.unguided_yield import KEPT, UnguidedYield

LEARNED = Constants(guides="learned")
HERE = Allocation(0, Action.BALANCED, 0.3)
START = CostAda.start(0.5, LEARNED)
EARLY = Balance(1.0, 0.1)


def test_credit_is_the_gain_in_usual_gains_and_older_steps_are_discounted():
    first = UnguidedYield().after_step(0.06, 0.01, is_guided=False)
    # the first gain is the usual one, and three of them earn full credit
    assert first == UnguidedYield(pytest.approx(1 / 3), 0.01, 0.06)
    second = first.after_step(0.09, 0.03, is_guided=True)
    assert second.credit == pytest.approx(KEPT / 3)
    assert second.dollars == pytest.approx(KEPT * 0.01)
    assert second.scale == pytest.approx(0.9 * 0.06 + 0.1 * 0.09)
    third = second.after_step(0.0, 0.02, is_guided=False)
    assert third.credit == pytest.approx(KEPT**2 / 3)
    assert third.dollars == pytest.approx(KEPT**2 * 0.01 + 0.02)
    assert third.scale == second.scale


@pytest.mark.parametrize(
    ("credit", "dollars", "pays"),
    # the prior counts as credit of 1 for $0.25: 1 / (1/3) = 3 and 2 / (2/3) = 3
    [(0.0, 0.0, True), (0.0, 0.083, True), (0.0, 0.084, False), (1.0, 0.416, True)],
)
def test_steps_pay_that_are_expected_to_bring_three_of_credit_a_dollar(credit, dollars, pays):
    assert UnguidedYield(credit, dollars).pays is pays


def told(controller: CostAda, step: PaidStep, spent: float) -> CostAda:
    return controller.tell(HERE, step, Balance(1.0, spent), LEARNED)[0]


def test_a_step_that_paid_for_a_guide_does_not_count():
    before = told(START, PaidStep(0.6, True, 0.01), 0.01)
    assert before.unguided.credit == pytest.approx(1 / 3)
    opened = replace(before, pending=Mode.BREAKTHROUGH).open_cycle(3, LEARNED)
    used, _ = opened.use_tactic(is_first=True)
    guided = told(used, PaidStep(0.4, True, 0.03, is_guided=True), 0.04)
    assert guided.unguided.dollars == pytest.approx(KEPT * 0.01)
    failed = replace(before, pending=Mode.BREAKTHROUGH).fail_guide()
    assert told(failed, PaidStep(0.4, True, 0.03), 0.04).unguided == guided.unguided


def test_other_rules_keep_no_records():
    after, _ = START.tell(HERE, kept(0.6), Balance(1.0, 0.5), Constants())
    assert after.unguided == START.unguided


def bought(controller: CostAda, rule: str) -> bool:
    return controller.decide(HERE, EARLY, Constants(guides=rule))[1].scheduled is not None


def test_low_yield_buys_a_guide_only_once_other_steps_pay_no_longer():
    num_frontiers = len(START.frontiers)
    low = replace(START, stagnation=num_frontiers, low_yield_cost=1.0)
    assert bought(low, "paper")
    assert not bought(low, "learned")
    poor = replace(low, unguided=UnguidedYield(dollars=0.1))
    assert bought(poor, "learned")


def test_stagnation_buys_a_guide_whatever_other_steps_pay():
    patience = required_patience(EARLY.ratio, len(START.frontiers), LEARNED)
    stagnant = replace(START, stagnation=patience)
    assert stagnant.unguided.pays
    assert bought(stagnant, "learned")
    assert not bought(replace(stagnant, stagnation=patience - 1), "learned")
