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
    records,
    tell,
)

from costada.controller.archive import FITNESS_ONLY
from costada.controller.baselines.uniform import Uniform
from costada.controller.constants import Constants
from costada.controller.intensity import Action
from costada.controller.method import Guided


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
