"""Which events change what in AdaEvolve, and what it decides."""

from collections import Counter
from dataclasses import FrozenInstanceError, replace
from random import Random

import pytest
from controller_samples import (
    BALANCE,
    CONSTANTS,
    FAILED,
    adaevolve,
    archive,
    ask,
    bill,
    candidate,
    decide,
    kept,
    played,
    refused,
    tell,
)

from costada.controller.allocation import Action, Allocation
from costada.controller.archive import FITNESS_ONLY
from costada.controller.baselines.adaevolve import AdaEvolve, is_fruitless
from costada.controller.baselines.adaevolve_frontiers import AdaEvolveFrontier
from costada.controller.guidance import GuidanceCycle, Mode

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
    assert (credit.utility, credit.allocation_reward) == (pytest.approx(0.25), pytest.approx(0.4))
    assert (credit.local_gain, credit.global_gain) == (pytest.approx(0.2), pytest.approx(0.1))
    assert credit.cost_divisor == 1.0


@pytest.mark.parametrize("step", [refused(0.3), FAILED])
def test_a_refused_candidate_and_a_failed_step_change_no_statistic(step) -> None:
    after, credit = tell(RUNNING, FIRST, step)
    assert after == replace(RUNNING, stagnation=1)
    assert (credit.cost_divisor, credit.utility, credit.allocation_reward) == (1.0, 0.0, 0.0)


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


SEEN = AdaEvolveFrontier(0.5, 0.1, 2, 5, 5, 0.5, 3.0)

FRUITLESS = (True, *(False,) * 9)


def test_the_first_step_takes_the_first_frontier_and_draws_the_action_alone() -> None:
    controller = AdaEvolve.start(0.5, CONSTANTS)
    rng, action_only = Random(4), Random(4)
    assert controller.ask(BALANCE, rng, CONSTANTS).frontier == 0
    action_only.random()
    assert rng.getstate() == action_only.getstate()


def test_later_steps_count_completed_iterations_in_the_bonus() -> None:
    first = AdaEvolveFrontier(0.5, 0.1, 1, 4, 4, 0.06, 3.0)
    second = AdaEvolveFrontier(0.5, 0.4, 1, 3, 3, 0.0, 2.71)
    allocation = ask(adaevolve(first, second, iteration=7), 1)
    assert allocation.frontier == 1
    assert allocation.intensity == pytest.approx(0.15 + 0.35 / (1 + 0.4**0.5), abs=1e-6)


def test_actions_are_drawn_with_the_intensity_of_the_frontier() -> None:
    controller = adaevolve(SEEN)
    rng = Random(2)
    drawn = Counter(controller.ask(BALANCE, rng, CONSTANTS).action for _ in range(6000))
    intensity = 0.4159
    assert drawn[Action.EXPLORATION] / 6000 == pytest.approx(intensity, abs=0.02)
    assert drawn[Action.EXPLOITATION] / 6000 == pytest.approx(0.7 * (1 - intensity), abs=0.02)
    assert drawn[Action.BALANCED] / 6000 == pytest.approx(0.3 * (1 - intensity), abs=0.02)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (FRUITLESS, True),
        ((False,) * 10, True),
        ((True, True, *(False,) * 8), False),
        ((False,) * 9, False),
        ((), False),
    ],
)
def test_at_most_one_new_incumbent_in_ten_entries_is_fruitless(
    history: tuple[bool, ...], expected: bool
) -> None:
    assert is_fruitless(history) is expected


def test_the_history_of_this_step_decides_on_the_guide_of_the_next() -> None:
    before = adaevolve(SEEN, history=(True, True, *(False,) * 8))
    credited, _ = tell(before, FIRST, kept(0.1))
    after, decided = decide(credited, FIRST)
    assert after.history == FRUITLESS
    assert (decided.scheduled, after.pending) == (Mode.BREAKTHROUGH, "breakthrough")
    assert (decided.opened_consolidation, decided.backed_off, decided.notes) == (False, False, ())
    assert after.iteration == before.iteration + 1


def test_no_guide_is_bought_while_a_tactic_is_left() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (0, 1), 1, is_guided=True)
    after, decided = decide(adaevolve(SEEN, history=FRUITLESS, cycle=cycle), FIRST)
    assert decided.scheduled is None
    assert after.cycle == GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (0, 1), 1, is_guided=False)


def test_a_guide_can_follow_at_once_when_a_batch_ends() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (0, 1), 1)
    guided, tactic = adaevolve(SEEN, history=FRUITLESS, cycle=cycle).use_tactic(is_first=True)
    landed, _ = tell(guided, FIRST, replace(FAILED, is_guided=True))
    after, decided = decide(landed, FIRST)
    assert tactic == 1
    assert after.cycle is None
    assert decided.scheduled is Mode.BREAKTHROUGH


def test_success_neither_ends_a_batch_nor_holds_a_frontier() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (2, 2, 2))
    guided, _ = adaevolve(SEEN, history=FRUITLESS, cycle=cycle).use_tactic(is_first=True)
    landed, _ = tell(guided, FIRST, replace(kept(0.9), is_guided=True))
    after, decided = decide(landed, FIRST)
    assert after.cycle == GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (1, 2, 2), 1)
    assert decided.opened_consolidation is False
    assert after.record().consolidation_left == 0


def test_a_failed_guide_is_tried_again_after_the_step() -> None:
    pending = adaevolve(SEEN, history=FRUITLESS, pending=Mode.BREAKTHROUGH)
    failed = pending.fail_guide()
    assert failed.pending is None
    after, decided = decide(tell(failed, FIRST, FAILED)[0], FIRST)
    assert (decided.scheduled, decided.backed_off) == (Mode.BREAKTHROUGH, False)
    assert after.pending == "breakthrough"


def test_a_guide_opens_two_uses_of_each_tactic_in_rotation() -> None:
    controller = adaevolve(SEEN, pending=Mode.BREAKTHROUGH).open_cycle(3, CONSTANTS)
    assert controller.pending is None
    used = []
    for _ in range(6):
        controller, tactic = controller.use_tactic(is_first=not used)
        used.append(tactic)
    assert used == [0, 1, 2, 0, 1, 2]


def test_calls_out_of_turn_are_refused() -> None:
    idle = adaevolve(SEEN)
    with pytest.raises(ValueError, match="pending: got None, expected a scheduled guide"):
        idle.open_cycle(3, CONSTANTS)
    with pytest.raises(ValueError, match="pending: got None, expected a scheduled guide"):
        idle.fail_guide()
    with pytest.raises(ValueError, match="cycle: no tactic has a use left"):
        idle.use_tactic(is_first=True)
    with pytest.raises(ValueError, match="num_tactics: got 4, expected 1 to 3"):
        adaevolve(SEEN, pending=Mode.BREAKTHROUGH).open_cycle(4, CONSTANTS)


def test_stagnation_counts_all_steps_since_the_incumbent_rose() -> None:
    scores = [0.4, None, 0.6, 0.6, None, 0.1]
    counts = [c.record().stagnation for c, _ in played("adaevolve", scores, bill(6))]
    assert counts == [1, 2, 0, 1, 2, 3]


def test_a_step_replaces_the_controller_and_never_changes_it() -> None:
    controller = adaevolve(SEEN, history=FRUITLESS)
    before = replace(controller)
    decide(tell(controller, FIRST, kept(0.9))[0], FIRST)
    assert controller == before
    with pytest.raises(FrozenInstanceError):
        controller.frontiers[0].visits = 9  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        controller.history = ()  # type: ignore[misc]
