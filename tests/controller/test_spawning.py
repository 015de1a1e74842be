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

from costada.controller.allocation import Allocation
from costada.controller.archive import FITNESS_ONLY, Archive, EliteWeights
from costada.controller.baselines.adaevolve_frontiers import (
    PRESETS,
    AdaEvolveFrontier,
    draw_preset,
    founded_archive,
    founders,
    productivity,
    should_spawn,
)
from costada.controller.constants import Constants
from costada.controller.intensity import Action

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
    assert [member.iteration for member in founded.members] == [70, 70]
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


def test_a_migrant_gives_a_new_frontier_its_first_best() -> None:
    many = archive(*(candidate(f"b{n}", 0.1 * n) for n in range(7)))
    held = archive(candidate("c", 0.9, "c"))
    frontiers = (BARREN[0], AdaEvolveFrontier(preset="quality"))
    after, _ = adaevolve(*frontiers, incumbent_score=0.9, iteration=74).maintain(
        (many, held), Random(1), CONSTANTS
    )
    assert after.frontiers[1].best_score == pytest.approx(0.6)
    assert after.frontiers[1].signal == pytest.approx(0.1)
    assert after.frontiers[1].visits == 0


def test_a_barren_run_spawns_late_for_each_new_frontier_begins_with_an_improvement() -> None:
    roomy = Constants(archive_size=300)
    states = [c for c, _ in played("adaevolve", [0.4] * 200, bill(200), constants=roomy)]
    grown = [t for t, state in enumerate(states, 1) if state.last_spawn == t]
    assert grown == [66, 133, 200]
    presets = [frontier.preset for frontier in states[-1].frontiers]
    assert presets[:2] == [None, None]
    assert len(set(presets[2:])) == 3
