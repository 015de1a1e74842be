from random import Random

import pytest
from baseline_samples import CONSTANTS, FAILED, archive, bill, candidate, kept, played

from costada.controller.archive import FITNESS_ONLY
from costada.controller.baselines.best_of_n import BestOfN
from costada.controller.intensity import Action
from costada.controller.method import ParentRule

START = BestOfN.start(0.5, 1.0, CONSTANTS)


def test_every_step_begins_at_the_seed_of_the_only_frontier() -> None:
    rng = Random(1)
    before = rng.getstate()
    allocation = START.allocate(rng)
    assert (allocation.frontier, allocation.action) == (0, Action.BALANCED)
    assert rng.getstate() == before
    assert START.parents is ParentRule.SEED
    assert START.archive_weights == (FITNESS_ONLY,)


def test_nothing_but_the_count_changes_what_the_next_step_does() -> None:
    run = [controller for controller, _ in played("best-of-n", [0.9, None, 0.2] * 30, bill(90))]
    assert {controller.allocate(Random(1)) for controller in run} == {START.allocate(Random(1))}
    assert {controller.pending for controller in run} == {None}
    assert [controller.iteration for controller in run] == list(range(1, 91))


def test_the_incumbent_is_the_best_of_all_steps() -> None:
    scores = [0.4, 0.7, None, 0.6]
    run = [controller for controller, _ in played("best-of-n", scores, bill(4))]
    assert [controller.incumbent_score for controller in run] == [0.5, 0.7, 0.7, 0.7]
    assert [controller.evidence.stagnation for controller in run] == [1, 0, 1, 2]


def test_both_gains_are_those_over_the_incumbent() -> None:
    allocation = START.allocate(Random(1))
    _, credit = START.credit(allocation, kept(0.7))
    assert credit.local_gain == credit.global_gain == pytest.approx(0.2)
    assert (credit.cost_divisor, credit.utility, credit.allocation_reward) == (1.0, 0.0, 0.0)
    assert START.credit(allocation, FAILED)[1].local_gain == 0.0


def test_the_archives_are_left_alone_even_when_a_migration_would_be_due() -> None:
    archives = (archive(candidate("seed", 0.5)),)
    fourteen = [controller for controller, _ in played("best-of-n", [0.4] * 14, bill(14))][-1]
    after, same = fourteen.maintain(archives, Random(1))
    assert same is archives
    assert after is fourteen


def test_calls_that_no_step_asks_for_are_refused() -> None:
    with pytest.raises(ValueError, match="num_tactics: got 1, expected no guide to be called"):
        START.open_cycle(1)
    with pytest.raises(ValueError, match="seed_score: got nan, expected a finite number"):
        BestOfN.start(float("nan"), 1.0, CONSTANTS)
