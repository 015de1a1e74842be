"""The two floors: they never look back."""

from collections import Counter
from random import Random

import pytest
from controller_samples import (
    BALANCE,
    CONSTANTS,
    FAILED,
    archive,
    ask,
    bill,
    candidate,
    decide,
    kept,
    played,
    records,
    tell,
)

from costada.controller.allocation import Action
from costada.controller.archive import FITNESS_ONLY
from costada.controller.baselines.best_of_n import BestOfN
from costada.controller.baselines.uniform import Uniform
from costada.controller.constants import Constants
from costada.controller.method import Guided, ParentRule
from costada.controller.methods import METHODS
from costada.controller.step import num_seeds


def test_frontiers_take_turns_from_the_first() -> None:
    three = Constants(num_frontiers=3)
    controller = Uniform.start(0.5, three)
    turns = []
    for _ in range(7):
        allocation = ask(controller, 1)
        turns.append(allocation.frontier)
        controller, _ = decide(controller, allocation)
    assert turns == [0, 1, 2, 0, 1, 2, 0]
    assert controller.archive_weights == (FITNESS_ONLY,) * 3


def test_actions_are_drawn_with_the_largest_intensity_at_all_times() -> None:
    rng = Random(5)
    controller = Uniform.start(0.5, CONSTANTS)
    allocations = [controller.ask(BALANCE, rng, CONSTANTS) for _ in range(6000)]
    drawn = Counter(allocation.action for allocation in allocations)
    assert {allocation.intensity for allocation in allocations} == {0.5}
    assert drawn[Action.EXPLORATION] / 6000 == pytest.approx(0.5, abs=0.02)
    assert drawn[Action.EXPLOITATION] / 6000 == pytest.approx(0.35, abs=0.02)


def test_a_step_earns_its_gains_over_frontier_and_incumbent_and_no_utility() -> None:
    controller = Uniform.start(0.5, CONSTANTS)
    first = ask(controller, 1)
    after, credit = tell(controller, first, kept(0.7))
    assert (credit.local_gain, credit.global_gain) == (pytest.approx(0.2), pytest.approx(0.2))
    after, _ = decide(after, first)
    second = ask(after, 1)
    after, credit = tell(after, second, kept(0.6))
    assert (credit.local_gain, credit.global_gain) == (pytest.approx(0.1), 0.0)
    assert (credit.cost_divisor, credit.utility, credit.allocation_reward) == (1.0, 0.0, 0.0)
    assert after.incumbent_score == 0.7
    assert after.best_scores == (0.7, 0.6)


def test_a_failed_step_only_counts() -> None:
    controller = Uniform.start(0.5, CONSTANTS)
    first = ask(controller, 1)
    after, credit = tell(controller, first, FAILED)
    assert (credit.local_gain, credit.global_gain) == (0.0, 0.0)
    assert after.best_scores == (0.5, 0.5)
    assert after.record().stagnation == 1


def test_migration_moves_candidates_and_best_scores() -> None:
    often = Constants(migration_interval=1)
    controller = Uniform.start(0.5, often)
    archives = (archive(candidate("a", 0.5)), archive(candidate("b", 0.9)))
    after, migrated = controller.maintain(archives, Random(1), often)
    assert [len(held.members) for held in migrated] == [2, 2]
    assert after.best_scores == (0.9, 0.9)


@pytest.mark.parametrize("method", ["uniform", "best-of-n"])
def test_no_guide_is_ever_called(method: str) -> None:
    run = records(method, [0.5] * 60, bill(60))
    assert {controller.pending for controller in run} == {None}
    assert not any(isinstance(controller, Guided) for controller in run)


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


@pytest.mark.parametrize("kind", [each.kind for each in METHODS.values()])
def test_a_seed_score_that_is_no_number_is_refused(kind) -> None:
    with pytest.raises(ValueError, match="seed_score: got nan, expected a finite number"):
        kind.start(float("nan"), CONSTANTS)
