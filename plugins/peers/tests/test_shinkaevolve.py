"""The rules of ShinkaEvolve's islands, on programs whose scores are drawn."""

from math import exp
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.plugins.peers.shinkaevolve import (
    ARCHIVE_SIZE,
    META_INTERVAL,
    NUM_ISLANDS,
    Islands,
    Member,
    numbered_points,
    parent_weights,
)
from costada.values.candidate import Candidate, Program

SEED = Candidate(id="0.1", program=Program.of("x = 1\n"), score=0.3)
NO_TEXTS = dict[str, str]().__getitem__
SCORES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


def landed(number: int, score: float, parent: str, *, is_valid: bool = True) -> Candidate:
    program = Program.of(f"x = {number}\n")
    return Candidate(
        id=f"{number}.1", program=program, score=score, is_valid=is_valid, parent_id=parent
    )


def begun() -> Islands:
    return Islands.begin(SEED, NO_TEXTS, Random(0))


def grown(seed: int, steps: int) -> tuple[Islands, dict[str, int]]:
    """Islands after some steps, and the island of each valid program's first ancestor."""
    islands, rng = begun(), Random(seed)
    homes: dict[str, int] = {}
    for number in range(1, steps + 1):
        island = rng.randrange(NUM_ISLANDS)
        choice = islands.choose(island, NO_TEXTS, rng)
        assert homes.get(choice.parent, island) == island
        child = landed(number, round(rng.random(), 1), choice.parent, is_valid=rng.random() < 0.9)
        islands.land(island, child if rng.random() < 0.9 else None, NO_TEXTS, rng)
        homes[child.id] = island
    return islands, homes


@given(SCORES, st.integers(0, 1000))
def test_the_weights_of_a_draw_sum_to_one(scores: list[float], seed: int) -> None:
    rng = Random(seed)
    members = [
        Member(str(number), 0, score, number, rng.randrange(50))
        for number, score in enumerate(scores)
    ]
    weights = parent_weights(members)
    assert sum(weights) == pytest.approx(1.0)
    assert min(weights) >= 0


def test_the_weight_of_a_parent_rises_with_its_score_and_falls_with_its_children() -> None:
    scores, children = (0.1, 0.2, 0.4), (0, 1, 4)
    members = [
        Member(str(number), 0, score, number, count)
        for number, (score, count) in enumerate(zip(scores, children, strict=True))
    ]
    # the median is 0.2; the deviations from it are 0.1, 0 and 0.2, and 0.1 is their median
    expected = [1 / (1 + exp(10)), 1 / 2 / 2, 1 / (1 + exp(-20)) / 5]
    found = parent_weights(members)
    assert found == pytest.approx([each / sum(expected) for each in expected])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 200))
def test_the_archive_keeps_the_best_of_both_islands_together(seed: int, steps: int) -> None:
    islands, homes = grown(seed, steps)
    assert len(islands.archive) <= ARCHIVE_SIZE
    outside = [each for group in islands.outside for each in group]
    assert bool(outside) <= (len(islands.archive) == ARCHIVE_SIZE)
    worst = min(islands.archive, key=lambda each: each.standing)
    assert all(number < worst.landed or worst.score > 0 for number, _ in outside)
    assert islands.best.score == max(each.score for each in islands.archive)
    for member in islands.archive:
        assert homes.get(member.candidate, member.island) == member.island


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_nobody_leaves_the_island_of_its_parent(seed: int) -> None:
    islands, homes = grown(seed, 150)
    for index, group in enumerate(islands.outside):
        assert group == sorted(group)
        assert {homes.get(name, index) for _, name in group} <= {index}


def test_of_equal_scores_the_oldest_leaves_a_full_archive() -> None:
    islands, rng = begun(), Random(0)
    for number in range(1, ARCHIVE_SIZE):
        islands.land(0, landed(number, 0.3, "0.1"), NO_TEXTS, rng)
    # both copies of the initial program are as old as each other, and that of island 0 was first
    assert islands.outside == [[(0, "0.1")], []]
    islands.land(0, landed(99, 0.2, "1.1"), NO_TEXTS, rng)
    assert islands.outside[0][1:] == [(ARCHIVE_SIZE, "99.1")]
    assert islands.best.candidate == f"{ARCHIVE_SIZE - 1}.1"


def test_an_invalid_child_counts_against_its_parent_and_no_program_does_not() -> None:
    islands, rng = begun(), Random(0)
    islands.land(1, landed(1, 0.0, "0.1", is_valid=False), NO_TEXTS, rng)
    islands.land(1, None, NO_TEXTS, rng)
    assert [each.children for each in islands.archive] == [0, 1]


def test_the_best_of_the_run_is_shown_on_its_own_island_alone() -> None:
    islands, rng = begun(), Random(0)
    for number, score in enumerate((0.9, 0.1, 0.2, 0.4), start=1):
        islands.land(int(number > 1), landed(number, score, "0.1"), NO_TEXTS, rng)
    for _ in range(50):
        first = islands.choose(0, NO_TEXTS, rng)
        assert {first.parent, *first.shown} == {"0.1", "1.1"}
        second = islands.choose(1, NO_TEXTS, rng)
        assert "1.1" not in (second.parent, *second.shown)
        assert len(second.shown) == 2
        # the second one shown is the better one, as the best left of the island is always shown
        assert second.parent == "4.1" or second.shown[1] == "4.1"


def test_an_island_without_a_place_in_the_archive_still_has_parents() -> None:
    islands, rng = begun(), Random(0)
    islands.land(1, landed(1, 0.1, "0.1"), NO_TEXTS, rng)
    for number in range(2, ARCHIVE_SIZE + 2):
        islands.land(0, landed(number, 0.9, "0.1"), NO_TEXTS, rng)
    assert {each.island for each in islands.archive} == {0}
    choices = [islands.choose(1, NO_TEXTS, rng) for _ in range(40)]
    assert {each.parent for each in choices} == {"0.1", "1.1"}
    assert {(each.shown, each.mode) for each in choices} == {((), "diff"), ((), "full")}


def test_a_recommendation_is_shown_unless_two_programs_are_crossed() -> None:
    islands, rng = begun(), Random(0)
    islands.land(0, landed(1, 0.4, "0.1"), NO_TEXTS, rng)
    islands.take_notes("what works", ["one", "two"])
    choices = [islands.choose(0, NO_TEXTS, rng) for _ in range(300)]
    assert {each.advice for each in choices if each.mode == "cross"} == {""}
    assert {each.advice for each in choices if each.mode != "cross"} == {"one", "two"}


def test_notes_are_due_after_ten_programs_with_the_initial_one_and_cover_all_of_them() -> None:
    islands = begun()
    for number in range(1, META_INTERVAL):
        assert not islands.has_notes_due
        islands.unread.append(f"{number}.1")
    assert islands.has_notes_due
    islands.take_notes("insights", ["try this"])
    assert (islands.unread, islands.insights) == ([], "insights")


def test_points_have_no_numbers_and_may_have_several_lines() -> None:
    reply = "Here they are:\n\n1. First,\nwith 2. inside\n2.  Second\n\n10. Tenth\n"
    assert numbered_points(reply) == ["First,\nwith 2. inside", "Second", "Tenth"]
    assert numbered_points("- no numbers") == []


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 120))
def test_islands_that_were_written_and_read_go_on_alike(seed: int, steps: int) -> None:
    islands, _ = grown(seed, steps)
    islands.take_notes("insights", ["one", "two"])
    read = Islands.from_json(islands.to_json())
    assert read == islands
    drawn = [each.choose(1, NO_TEXTS, Random(5)) for each in (islands, read)]
    assert drawn[0] == drawn[1]
