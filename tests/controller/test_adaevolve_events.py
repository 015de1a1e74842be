"""Which events change what: the table of AdaEvolve, row by row."""

from dataclasses import replace
from random import Random

import pytest
from controller_samples import (
    CONSTANTS,
    FAILED,
    adaevolve,
    archive,
    ask,
    candidate,
    kept,
    refused,
    tell,
)

from costada.controller.allocation import Allocation
from costada.controller.archive import FITNESS_ONLY
from costada.controller.baselines.adaevolve import AdaEvolve
from costada.controller.baselines.adaevolve_frontiers import AdaEvolveFrontier
from costada.controller.intensity import Action

FIRST = Allocation(0, Action.BALANCED, 0.3)
SECOND = Allocation(1, Action.BALANCED, 0.3)
VISITED = AdaEvolveFrontier(0.4, 0.1, 2, 5, 5, 0.5, 3.0)
LEADING = AdaEvolveFrontier(0.5, 0.1, 1, 4, 4, 0.25, 2.0)
RUNNING = adaevolve(VISITED, LEADING)


def test_the_seed_is_an_evaluated_candidate_of_the_first_frontier() -> None:
    state = AdaEvolve.start(0.5, CONSTANTS)
    first = state.frontiers[0]
    assert (first.best_score, first.signal) == (0.5, pytest.approx(0.1))
    assert (first.improvements, first.evaluations, first.visits) == (1, 1, 1)
    assert (first.reward, first.decayed_visits) == (1.0, 1.0)
    assert (state.history, state.global_best, state.last_spawn) == ((True,), 0.5, -30)


def test_a_seed_copy_raises_best_score_and_signal_of_its_frontier_alone() -> None:
    second = AdaEvolve.start(0.5, CONSTANTS).frontiers[1]
    assert (second.best_score, second.signal) == (0.5, pytest.approx(0.1))
    assert (second.improvements, second.evaluations, second.visits) == (0, 0, 0)
    assert (second.reward, second.decayed_visits, second.preset) == (0.0, 0.0, None)


@pytest.mark.parametrize("seed_score", [0.5, 0.0, -2.0])
def test_every_frontier_starts_at_the_same_intensity(seed_score: float) -> None:
    controller = AdaEvolve.start(seed_score, CONSTANTS)
    assert ask(controller, 1).intensity == pytest.approx(0.4159, abs=1e-4)
    assert len({frontier.signal for frontier in controller.frontiers}) == 1
    assert controller.archive_weights == (FITNESS_ONLY, FITNESS_ONLY)


def test_a_better_candidate_updates_everything_of_its_frontier() -> None:
    after, credit = tell(RUNNING, FIRST, kept(0.6))
    frontier = after.frontiers[0]
    assert frontier.best_score == 0.6
    assert frontier.signal == pytest.approx(0.9 * 0.1 + 0.1 * 0.25)
    assert (frontier.improvements, frontier.evaluations, frontier.visits) == (3, 6, 6)
    assert frontier.reward == pytest.approx(0.9 * 0.5 + 0.2 / 0.5)
    assert frontier.decayed_visits == pytest.approx(0.9 * 3.0 + 1)
    assert after.frontiers[1] is LEADING
    assert (after.incumbent_score, after.global_best) == (0.6, 0.6)
    assert after.history == (True, True)
    assert (credit.utility, credit.allocation_reward) == (
        pytest.approx(0.25),
        pytest.approx(0.4),
    )
    assert (credit.local_gain, credit.global_gain) == (pytest.approx(0.2), pytest.approx(0.1))
    assert credit.cost_divisor == 1.0


def test_a_local_improvement_is_no_new_incumbent() -> None:
    after, _ = tell(RUNNING, FIRST, kept(0.5))
    assert after.frontiers[0].improvements == 3
    assert (after.incumbent_score, after.global_best) == (0.5, 0.5)
    assert after.history == (True, False)


def test_a_worse_candidate_that_enters_is_a_visit_without_reward() -> None:
    after, credit = tell(RUNNING, SECOND, kept(0.1))
    frontier = after.frontiers[1]
    assert (frontier.best_score, frontier.signal, frontier.improvements) == (0.5, 0.1, 1)
    assert (frontier.evaluations, frontier.visits) == (5, 5)
    assert (frontier.reward, frontier.decayed_visits) == (0.225, 2.8)
    assert after.history == (True, False)
    assert (credit.utility, credit.allocation_reward) == (0.0, 0.0)


@pytest.mark.parametrize("step", [refused(0.3), FAILED])
def test_a_refused_candidate_and_a_failed_step_change_no_statistic(step) -> None:
    after, credit = tell(RUNNING, FIRST, step)
    assert after == replace(RUNNING, stagnation=1)
    assert (credit.utility, credit.allocation_reward) == (0.0, 0.0)


def test_a_refused_best_is_the_incumbent_but_earns_nothing() -> None:
    after, credit = tell(RUNNING, FIRST, refused(0.9))
    assert (after.incumbent_score, after.global_best) == (0.9, 0.5)
    assert (after.frontiers, after.history) == (RUNNING.frontiers, (True,))
    assert after.record().stagnation == 0
    assert (credit.utility, credit.allocation_reward) == (0.0, 0.0)
    assert (credit.local_gain, credit.global_gain) == (pytest.approx(0.5), pytest.approx(0.4))


def test_a_migrant_that_enters_follows_the_external_rule() -> None:
    controller = adaevolve(VISITED, LEADING, iteration=14)
    archives = (archive(candidate("a", 0.4)), archive(candidate("b", 0.5)))
    after, migrated = controller.maintain(archives, Random(1), CONSTANTS)
    first, second = after.frontiers
    assert [len(held.members) for held in migrated] == [2, 2]
    assert first.best_score == 0.5
    assert first.signal == pytest.approx(0.9 * 0.1 + 0.1 * 0.25**2)
    assert replace(first, best_score=0.4, signal=0.1) == VISITED
    assert second is LEADING
    assert after.history == (True,)
    assert (after.iteration, after.incumbent_score) == (14, 0.5)


def test_each_migrant_that_enters_counts_in_the_order_of_arrival() -> None:
    source = archive(candidate("b1", 0.6), candidate("b2", 0.8))
    controller = adaevolve(VISITED, LEADING, incumbent_score=0.8, iteration=14)
    after, _ = controller.maintain((archive(candidate("a", 0.4)), source), Random(1), CONSTANTS)
    assert after.frontiers[0].signal == pytest.approx(0.9 * 0.1 + 0.1 * 1.0)
    assert after.frontiers[0].best_score == 0.8


def test_a_migrant_whose_text_is_known_or_that_is_refused_changes_nothing() -> None:
    weak = archive(candidate("weak", 0.1), candidate("twin", 0.45, "x"))
    full = archive(candidate("f1", 0.5, "x"), candidate("f2", 0.49, "y"), size=2)
    lagging = replace(LEADING, best_score=0.05)
    controller = adaevolve(VISITED, lagging, iteration=14)
    after, migrated = controller.maintain((weak, full), Random(1), CONSTANTS)
    assert migrated[1] is full
    assert after.frontiers[1] is lagging


def test_nothing_moves_between_migrations() -> None:
    archives = (archive(candidate("a", 0.4)), archive(candidate("b", 0.5)))
    after, same = RUNNING.maintain(archives, Random(1), CONSTANTS)
    assert same is archives
    assert after == RUNNING


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="score: got nan, expected a finite number or None"):
        tell(RUNNING, FIRST, kept(float("nan")))
    with pytest.raises(ValueError, match="seed_score: got inf, expected a finite number"):
        AdaEvolve.start(float("inf"), CONSTANTS)
