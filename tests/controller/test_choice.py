"""Choice of frontier, action, parent and inspirations."""

from collections import Counter
from math import log, sqrt
from random import Random

import pytest
from controller_samples import archive, candidate, ids

from costada.controller.allocation import (
    Action,
    Frontier,
    allocation_reward,
    bootstrap_action,
    intensity,
    optimism_bonus,
    sample_action,
    select_frontier,
)
from costada.controller.archive import Archive
from costada.controller.constants import Constants
from costada.controller.step import draw_inspirations, draw_parent

CONSTANTS = Constants()


def test_the_reward_is_the_global_gain_over_the_divisor() -> None:
    assert allocation_reward(0.3, 1.5) == pytest.approx(0.2)


def test_the_bonus_falls_with_visits_and_with_the_budget() -> None:
    assert optimism_bonus(3, 9, 0.5, CONSTANTS) == pytest.approx(0.25 * sqrt(log(10) / 4))
    assert optimism_bonus(3, 9, 0.0, CONSTANTS) == 0.0
    assert optimism_bonus(0, 0, 1.0, CONSTANTS) == 0.0


def test_the_bonus_ignores_the_budget_when_it_is_hidden() -> None:
    hidden = Constants(conditions_on_budget=False)
    assert optimism_bonus(3, 9, 0.0, hidden) == optimism_bonus(3, 9, 1.0, CONSTANTS)


def test_the_lowest_index_wins_a_tie() -> None:
    assert select_frontier((Frontier(0.5),) * 3, 1.0, CONSTANTS) == 0


def test_an_unvisited_frontier_follows_the_first_visit() -> None:
    assert select_frontier((Frontier(0.5, visits=1), Frontier(0.5)), 1.0, CONSTANTS) == 1


def test_the_estimate_decides_when_nothing_is_left_to_spend() -> None:
    frontiers = (Frontier(0.5, visits=1), Frontier(0.5, allocation_estimate=0.01, visits=90))
    assert select_frontier(frontiers, 0.0, CONSTANTS) == 1
    assert select_frontier(frontiers, 1.0, CONSTANTS) == 0


def test_intensity_is_highest_for_an_idle_frontier_with_all_its_budget() -> None:
    assert intensity(0.0, 1.0, CONSTANTS) == pytest.approx(0.15 + 0.35 / 1.0001)


def test_intensity_is_lowest_when_the_budget_is_gone() -> None:
    assert intensity(0.3, 0.0, CONSTANTS) == 0.15


def test_intensity_falls_with_utility() -> None:
    assert intensity(1.0, 0.5, CONSTANTS) == pytest.approx(0.15 + 0.35 * 0.5 / 2)


def test_intensity_ignores_the_budget_when_it_is_hidden() -> None:
    hidden = Constants(conditions_on_budget=False)
    assert intensity(0.2, 0.1, hidden) == intensity(0.2, 1.0, CONSTANTS)


def test_the_first_step_explores_and_first_visits_are_balanced() -> None:
    assert bootstrap_action(0, 0) is Action.EXPLORATION
    assert bootstrap_action(0, 1) is Action.BALANCED
    assert bootstrap_action(1, 1) is None


def test_actions_are_drawn_with_the_stated_probabilities() -> None:
    rng = Random(7)
    draws = Counter(sample_action(0.4, rng, CONSTANTS) for _ in range(20_000))
    assert draws[Action.EXPLORATION] / 20_000 == pytest.approx(0.40, abs=0.015)
    assert draws[Action.EXPLOITATION] / 20_000 == pytest.approx(0.42, abs=0.015)
    assert draws[Action.BALANCED] / 20_000 == pytest.approx(0.18, abs=0.015)


TEN = archive(*(candidate(f"c{rank}", rank / 10) for rank in range(10)))


def drawn(action: Action, held: Archive = TEN, times: int = 4000) -> Counter[str]:
    rng = Random(11)
    return Counter(draw_parent(held, action, rng).id for _ in range(times))


def test_exploitation_draws_evenly_from_the_best_quarter() -> None:
    counts = drawn(Action.EXPLOITATION)
    assert set(counts) == {"c9", "c8"}
    assert counts["c9"] / 4000 == pytest.approx(0.5, abs=0.03)


def test_exploration_draws_in_proportion_to_novelty() -> None:
    trio = archive(
        candidate("a", 0.9, "aa"), candidate("twin", 0.5, "aa"), candidate("odd", 0.1, "bb")
    )
    counts = drawn(Action.EXPLORATION, trio)
    assert counts["odd"] / 4000 == pytest.approx(0.5, abs=0.03)
    assert counts["a"] / 4000 == pytest.approx(0.25, abs=0.03)


def test_exploration_reaches_every_one_of_identical_members() -> None:
    same = archive(*(candidate(name, 0.5, "aa") for name in "abc"))
    assert set(drawn(Action.EXPLORATION, same)) == {"a", "b", "c"}


def test_balanced_draws_half_of_the_time_from_the_best_fifth() -> None:
    twins = archive(*(candidate(f"c{rank}", rank / 10, "aa") for rank in range(10)))
    counts = drawn(Action.BALANCED, twins)
    assert (counts["c9"] + counts["c8"]) / 4000 == pytest.approx(0.5 + 0.5 * 0.2, abs=0.03)


def test_a_lonely_seed_is_drawn_by_every_action() -> None:
    seed = archive(candidate("seed", 0.5))
    assert {draw_parent(seed, action, Random(1)).id for action in Action} == {"seed"}


def test_no_parent_comes_from_an_empty_archive() -> None:
    with pytest.raises(ValueError, match="members: got none, expected at least the seed"):
        draw_parent(archive(), Action.BALANCED, Random(1))


def test_inspirations_are_two_that_differ_and_two_that_lead() -> None:
    parent = candidate("parent", 0.5, "aa bb cc dd")
    local = archive(
        parent,
        candidate("close", 0.6, "aa bb cc ee"),
        candidate("far", 0.7, "ff gg hh ii"),
        candidate("farther", 0.55, "jj kk ll mm nn oo pp qq rr"),
        candidate("weak", 0.1, "ss tt uu vv ww xx yy zz ab ac ad"),
    )
    other = archive(candidate("leader", 0.9, "one"), candidate("runner", 0.8, "two"))
    chosen = draw_inspirations(local, (local, other), parent, 4)
    assert ids(chosen) == ["farther", "far", "leader", "runner"]


def test_a_text_is_shown_once_and_the_parent_not_at_all() -> None:
    parent = candidate("parent", 0.5, "aa")
    local = archive(parent, candidate("best", 0.9, "bb"))
    other = archive(candidate("best-copy", 0.9, "bb"), candidate("parent-copy", 0.5, "aa"))
    assert ids(draw_inspirations(local, (local, other), parent, 4)) == ["best"]


def test_a_parent_from_another_frontier_is_left_out_too() -> None:
    local = archive(candidate("mine", 0.2))
    leader = candidate("leader", 0.9)
    chosen = draw_inspirations(local, (local, archive(leader)), leader, 4)
    assert ids(chosen) == ["mine"]


def test_only_the_better_half_of_the_frontier_inspires_by_difference() -> None:
    parent = candidate("c19", 1.9, "aa")
    codes = [f"{'zz ' * (20 - rank)}" for rank in range(19)]
    members = [candidate(f"c{rank}", rank / 10, code) for rank, code in enumerate(codes)]
    chosen = draw_inspirations(archive(*members, parent), (), parent, 4)
    assert ids(chosen) == ["c10", "c11"]


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 1), (2, 2), (4, 4)])
def test_as_many_inspirations_as_asked_for_are_drawn(count: int, expected: int) -> None:
    other = archive(candidate("leader", 5.0), candidate("runner", 4.0))
    assert len(draw_inspirations(TEN, (other,), TEN.members[0], count)) == expected
