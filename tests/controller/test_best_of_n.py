from random import Random

import pytest
from controller_samples import (
    BALANCE,
    CONSTANTS,
    FAILED,
    ask,
    bill,
    kept,
    played,
    tell,
)

from costada.controller.baselines.adaevolve import AdaEvolve
from costada.controller.baselines.best_of_n import BestOfN
from costada.controller.baselines.evox import EvoX
from costada.controller.baselines.uniform import Uniform
from costada.controller.costada import CostAda
from costada.controller.intensity import Action
from costada.controller.method import ParentRule
from costada.controller.step import num_seeds

START = BestOfN.start(0.5, CONSTANTS)


def test_every_step_begins_at_the_seed_of_the_only_frontier() -> None:
    rng = Random(1)
    before = rng.getstate()
    allocation = START.ask(BALANCE, rng, CONSTANTS)
    assert (allocation.frontier, allocation.action) == (0, Action.BALANCED)
    assert rng.getstate() == before
    assert START.parents is ParentRule.SEED
    assert num_seeds(START) == 1


def test_nothing_but_the_count_changes_what_the_next_step_does() -> None:
    run = [controller for controller, _ in played("best-of-n", [0.9, None, 0.2] * 30, bill(90))]
    assert {ask(controller, 1) for controller in run} == {ask(START, 1)}
    assert {controller.pending for controller in run} == {None}
    assert [controller.iteration for controller in run] == list(range(1, 91))


def test_the_incumbent_is_the_best_of_all_steps() -> None:
    scores = [0.4, 0.7, None, 0.6]
    run = [controller for controller, _ in played("best-of-n", scores, bill(4))]
    assert [controller.incumbent_score for controller in run] == [0.5, 0.7, 0.7, 0.7]
    assert [controller.record().stagnation for controller in run] == [1, 0, 1, 2]


def test_both_gains_are_those_over_the_incumbent() -> None:
    allocation = ask(START, 1)
    _, credit = tell(START, allocation, kept(0.7))
    assert credit.local_gain == credit.global_gain == pytest.approx(0.2)
    assert (credit.cost_divisor, credit.utility, credit.allocation_reward) == (1.0, 0.0, 0.0)
    assert tell(START, allocation, FAILED)[1].local_gain == 0.0


@pytest.mark.parametrize("kind", [BestOfN, Uniform, EvoX, CostAda, AdaEvolve])
def test_a_seed_score_that_is_no_number_is_refused(kind) -> None:
    with pytest.raises(ValueError, match="seed_score: got nan, expected a finite number"):
        kind.start(float("nan"), CONSTANTS)
