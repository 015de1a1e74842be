"""Statistics of one AdaEvolve frontier, and when one is added."""

import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from controller_samples import (
    CONSTANTS,
    adaevolve,
    archive,
    ask,
    bill,
    candidate,
    decide,
    kept,
    played,
    tell,
)

from costada.controller.allocation import Action, Allocation, intensity
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights
from costada.controller.baselines.adaevolve_frontiers import (
    PRESETS,
    AdaEvolveFrontier,
    after_visit,
    draw_preset,
    founded_archive,
    founders,
    productivity,
    relative_improvement,
    select_frontier,
    should_spawn,
    ucb_score,
    with_score,
)
from costada.controller.constants import Constants

STARTED = AdaEvolveFrontier(
    best_score=0.5,
    signal=0.1,
    improvements=1,
    evaluations=1,
    visits=1,
    reward=1.0,
    decayed_visits=1.0,
)


def test_a_tenth_above_the_best_moves_signal_and_intensity_by_hand_computed_amounts() -> None:
    assert relative_improvement(0.55, 0.5, 0.5) == pytest.approx(0.1, abs=1e-8)
    after = after_visit(STARTED, 0.55, global_best=0.5)
    assert after.signal == pytest.approx(0.091, abs=1e-8)
    assert intensity(after.signal, 1.0, CONSTANTS) == pytest.approx(0.41889, abs=1e-5)


def test_a_rise_above_zero_counts_in_full() -> None:
    from_zero = AdaEvolveFrontier(best_score=0.0, signal=0.1)
    assert relative_improvement(0.2, 0.0, 0.0) == 1.0
    after = after_visit(from_zero, 0.2, global_best=0.0)
    assert after.signal == pytest.approx(0.19)
    assert intensity(after.signal, 1.0, CONSTANTS) == pytest.approx(0.39375, abs=1e-5)


@pytest.mark.parametrize(
    ("score", "best_score", "reference", "expected"),
    [
        (0.5, 0.5, 0.5, 0.0),
        (0.4, 0.5, 0.5, 0.0),
        (0.4, -math.inf, -math.inf, 1.0),
        (-9.0, -math.inf, 0.5, 1.0),
        (1.5, 0.5, 0.5, 1.0),
        (-0.9, -1.0, -1.0, 0.1),
        (1e308, -1e308, -1e308, 1.0),
    ],
)
def test_an_improvement_is_between_nothing_and_one(
    score: float, best_score: float, reference: float, expected: float
) -> None:
    found = relative_improvement(score, best_score, reference)
    assert found == pytest.approx(expected, abs=1e-7)


def test_a_copy_from_elsewhere_raises_best_score_and_signal_alone() -> None:
    after = with_score(STARTED, 0.75)
    assert after.best_score == 0.75
    assert after.signal == pytest.approx(0.9 * 0.1 + 0.1 * 0.25, abs=1e-8)
    assert (after.improvements, after.evaluations, after.visits) == (1, 1, 1)
    assert (after.reward, after.decayed_visits) == (1.0, 1.0)


@pytest.mark.parametrize("score", [0.5, 0.1])
def test_a_copy_that_is_not_better_changes_nothing(score: float) -> None:
    assert with_score(STARTED, score) is STARTED


def test_the_promise_is_mean_reward_plus_bonus_by_hand() -> None:
    first = AdaEvolveFrontier(visits=4, reward=0.06, decayed_visits=3.0)
    second = AdaEvolveFrontier(visits=3, reward=0.0, decayed_visits=2.71)
    assert ucb_score(first, 7) == pytest.approx(1.0366, abs=1e-4)
    assert ucb_score(second, 7) == pytest.approx(1.1739, abs=1e-4)
    assert select_frontier((first, second), 7, Random(1)) == 1


def test_the_lowest_frontier_wins_a_tie_without_a_draw() -> None:
    same = AdaEvolveFrontier(visits=3, reward=0.5, decayed_visits=2.71)
    rng = Random(1)
    before = rng.getstate()
    assert select_frontier((same, same, same), 9, rng) == 0
    assert rng.getstate() == before


def test_frontiers_below_three_visits_are_drawn_evenly_before_all_others() -> None:
    busy = AdaEvolveFrontier(visits=9, reward=9.0, decayed_visits=5.0)
    twice = AdaEvolveFrontier(visits=2, reward=9.0, decayed_visits=1.9)
    rng = Random(3)
    drawn = Counter(
        select_frontier((busy, twice, busy, AdaEvolveFrontier()), 20, rng) for _ in range(2000)
    )
    assert set(drawn) == {1, 3}
    assert drawn[1] / 2000 == pytest.approx(0.5, abs=0.04)


IDLE = AdaEvolveFrontier(0.5, 0.1, 0, 33, 33, 0.5, 3.0)

BARREN = (replace(IDLE, improvements=1, evaluations=34), IDLE)

PAIR = (archive(candidate("a", 0.4)), archive(candidate("b", 0.5)))


def test_productivity_is_the_share_of_improvements_over_all_frontiers() -> None:
    first = AdaEvolveFrontier(improvements=2, evaluations=10)
    second = AdaEvolveFrontier(improvements=1, evaluations=2)
    assert productivity((first, second)) == 0.25
    assert productivity((AdaEvolveFrontier(), AdaEvolveFrontier())) == 1.0


def test_sixty_six_entries_without_an_improvement_spawn_a_frontier_and_sixty_five_do_not() -> None:
    assert should_spawn(BARREN, -30, 66)
    assert not should_spawn((replace(BARREN[0], evaluations=33), IDLE), -30, 66)


def test_two_spawns_are_thirty_iterations_apart_and_the_first_waits_for_none() -> None:
    assert should_spawn(BARREN, -30, 1)
    assert not should_spawn(BARREN, 70, 99)
    assert should_spawn(BARREN, 70, 100)


def test_a_fifth_frontier_is_the_last() -> None:
    assert should_spawn((*BARREN, IDLE, IDLE), -30, 66)
    assert not should_spawn((*BARREN, IDLE, IDLE, IDLE), -30, 66)


def test_the_presets_fold_the_objective_weight_into_fitness() -> None:
    assert {
        "balanced": EliteWeights(0.7, 0.3, 0.2),
        "quality": EliteWeights(0.8, 0.2, 0.3),
        "diversity": EliteWeights(0.5, 0.5, 0.1),
        "pareto": EliteWeights(0.8, 0.2, 0.2),
        "exploration": EliteWeights(0.5, 0.5, 0.05),
    } == PRESETS


def test_a_preset_is_drawn_evenly_from_those_used_least() -> None:
    rng = Random(6)
    fresh = Counter(draw_preset(BARREN, rng) for _ in range(5000))
    assert set(fresh) == set(PRESETS)
    assert all(count / 5000 == pytest.approx(0.2, abs=0.03) for count in fresh.values())
    used = (*BARREN, replace(IDLE, preset="quality"), replace(IDLE, preset="pareto"))
    rest = {draw_preset(used, rng) for _ in range(200)}
    assert rest == {"balanced", "diversity", "exploration"}


def test_the_best_five_of_all_frontiers_found_a_frontier_and_a_text_only_once() -> None:
    first = archive(candidate("a1", 0.9, "x"), candidate("a2", 0.3), candidate("a3", 0.7))
    second = archive(candidate("b1", 0.9, "x"), candidate("b2", 0.8), candidate("b3", 0.7))
    third = archive(candidate("c1", 0.1), candidate("c2", 0.6))
    assert [c.id for c in founders((first, second, third))] == ["a1", "b2", "a3", "b3", "c2"]


def test_founders_enter_as_copies_under_the_weights_of_the_preset() -> None:
    founded = founded_archive(PAIR, "diversity", 70, CONSTANTS)
    assert [member.id for member in founded.members] == ["b>2@70", "a>2@70"]
    assert [member.parent_id for member in founded.members] == ["b", "a"]
    assert [member.migrated_in for member in founded.members] == [70, 70]
    assert (founded.size, founded.weights) == (20, PRESETS["diversity"])


@pytest.mark.parametrize("preset", PRESETS)
def test_even_the_smallest_archive_can_be_founded(preset: str) -> None:
    small = Constants(archive_size=2)
    sources = tuple(Archive((candidate(f"s{n}", n / 10),), 2) for n in range(6))
    founded = founded_archive(sources, preset, 70, small)
    assert founded.best.score == 0.5
    assert len(founded.members) == 2


def test_a_spawn_leaves_the_new_frontier_without_a_best_and_is_noted() -> None:
    controller = adaevolve(*BARREN, iteration=69)
    after, archives = controller.maintain(PAIR, Random(1), CONSTANTS)
    assert archives[:2] == PAIR
    assert archives[0] is PAIR[0]
    new = after.frontiers[2]
    assert new == AdaEvolveFrontier(preset=new.preset)
    assert after.archive_weights == (FITNESS_ONLY, FITNESS_ONLY, archives[2].weights)
    assert (after.last_spawn, after.global_best) == (70, 0.5)
    ended, decided = decide(after, ask(after, 1))
    assert decided.notes == ("spawned_frontier",)
    assert decide(ended, ask(ended, 1))[1].notes == ()


def test_a_new_frontier_is_searched_next_for_it_has_no_visit() -> None:
    spawned, _ = adaevolve(*BARREN, iteration=69).maintain(PAIR, Random(1), CONSTANTS)
    ended, _ = decide(spawned, ask(spawned, 1))
    assert {ask(ended, seed).frontier for seed in range(9)} == {2}


def test_the_first_own_candidate_of_a_new_frontier_counts_in_full() -> None:
    controller = adaevolve(BARREN[0], AdaEvolveFrontier(preset="quality"))
    after, credit = tell(controller, Allocation(1, Action.BALANCED, 0.3), kept(0.3))
    frontier = after.frontiers[1]
    assert (frontier.best_score, frontier.improvements, frontier.reward) == (0.3, 1, 1.0)
    assert frontier.signal == pytest.approx(0.1)
    assert (credit.local_gain, credit.global_gain, credit.utility) == (1.0, 0.0, 1.0)
    assert after.history == (True, False)


def test_a_frontier_spawned_in_the_iteration_of_a_migration_takes_part_in_it() -> None:
    after, archives = adaevolve(*BARREN, iteration=74).maintain(PAIR, Random(1), CONSTANTS)
    assert [member.id for member in archives[1].members] == ["b", "a>1@75"]
    assert [member.id for member in archives[2].members] == ["b>2@75", "a>2@75"]
    assert [member.id for member in archives[0].members] == ["a", "b>2@75>0@75"]
    assert after.frontiers[0].best_score == 0.5
    assert after.frontiers[2].best_score == -float("inf")


def test_a_barren_run_spawns_late_for_each_new_frontier_begins_with_an_improvement() -> None:
    roomy = Constants(archive_size=300)
    states = [c for c, _ in played("adaevolve", [0.4] * 200, bill(200), constants=roomy)]
    grown = [t for t, state in enumerate(states, 1) if state.last_spawn == t]
    assert grown == [66, 133, 200]
    presets = [frontier.preset for frontier in states[-1].frontiers]
    assert presets[:2] == [None, None]
    assert len(set(presets[2:])) == 3
