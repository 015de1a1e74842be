"""What an archive keeps, and how it ranks."""

import math
from math import floor

import pytest
from controller_samples import archive, candidate, ids
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.controller.archive import (
    FITNESS_ONLY,
    Archive,
    Arrival,
    EliteWeights,
    distance,
    elite_score,
    elite_scores,
    exchange,
    is_migration_due,
    member_elite_score,
    migrant_copy,
    migrate,
    newcomer_elite_score,
    novelty,
)
from costada.controller.constants import Constants
from costada.values.candidate import Candidate

FULL = archive(
    candidate("top", 0.9, "sun moon star"),
    candidate("near", 0.5, "alpha beta gamma"),
    candidate("second", 0.7, "red green blue"),
    candidate("third", 0.6, "one two three"),
    candidate("last", 0.4, "iron gold zinc"),
    size=5,
)


def test_everyone_enters_while_there_is_room() -> None:
    seed = candidate("seed", 0.5, "x = 1")
    twin = candidate("twin", 0.0, "x = 1")
    assert archive(seed).insert(twin).members == (seed, twin)


def test_an_id_already_present_is_refused() -> None:
    before = archive(candidate("seed", 0.5))
    assert before.insert(candidate("seed", 0.9, "y = 2")) is before


def test_a_better_ranked_newcomer_replaces_its_nearest_look_alike() -> None:
    after = FULL.insert(candidate("new", 0.65, "alpha beta delta"))
    assert ids(after.members) == ["top", "second", "third", "last", "new"]
    assert FULL.members[1].id == "near"


def test_a_newcomer_of_equal_rank_is_refused() -> None:
    newcomer = candidate("new", 0.55, "alpha beta delta")
    assert newcomer_elite_score(newcomer, FULL) == member_elite_score(FULL.members[1], FULL) == 0.25
    assert FULL.insert(newcomer) is FULL


def test_a_newcomer_never_meets_a_protected_look_alike() -> None:
    after = FULL.insert(candidate("new", 0.95, "sun moon star light"))
    assert "top" in ids(after.members)
    assert "new" in ids(after.members)


def test_the_first_of_equally_near_members_is_the_rival() -> None:
    twins = archive(
        candidate("top", 0.9, "sun"),
        candidate("a", 0.1, "alpha"),
        candidate("b", 0.2, "alpha"),
        size=3,
    )
    assert ids(twins.insert(candidate("new", 0.5, "alpha")).members) == ["top", "b", "new"]


def test_the_elite_score_is_the_rank_as_a_ratio() -> None:
    assert [elite_score(better, 5) for better in (0, 1, 4, 5)] == [1.0, 0.75, 0.0, 0.0]


def test_equal_members_rank_by_entry_and_an_equal_newcomer_is_not_behind_them() -> None:
    pair = archive(candidate("first", 0.5), candidate("second", 0.5), size=2)
    assert member_elite_score(pair.members[0], pair) == 1.0
    assert member_elite_score(pair.members[1], pair) == 0.0
    assert newcomer_elite_score(candidate("new", 0.5), pair) == 1.0


def test_a_fifth_of_the_members_is_protected_and_at_least_the_best() -> None:
    twenty = archive(*(candidate(f"c{rank}", rank / 20) for rank in range(20)))
    assert ids(twenty.protected()) == ["c19", "c18", "c17", "c16"]
    assert ids(FULL.protected()) == ["top"]
    assert ids(archive(*FULL.members[:2]).protected()) == ["top"]


def test_the_elite_is_cut_short_at_ten() -> None:
    hundred = archive(*(candidate(f"c{rank}", rank / 100) for rank in range(100)), size=100)
    assert len(hundred.elite()) == 10
    assert len(hundred.protected()) == 20


def test_top_ranks_by_score_and_then_by_entry() -> None:
    tied = archive(candidate("a", 0.2), candidate("b", 0.7), candidate("c", 0.2))
    assert ids(tied.top(2)) == ["b", "a"]
    assert ids(tied.top(9)) == ["b", "a", "c"]
    assert tied.best.id == "b"


def test_children_are_listed_in_order_of_entry_until_they_are_evicted() -> None:
    family = archive(
        candidate("seed", 0.5),
        candidate("a", 0.4, "alpha", parent_id="seed"),
        candidate("b", 0.6, "beta", parent_id="seed"),
        candidate("c", 0.45, "gamma", parent_id="a"),
        size=4,
    )
    assert ids(family.children_of("seed")) == ["a", "b"]
    after = family.insert(candidate("d", 0.9, "alpha", parent_id="b"))
    assert ids(after.children_of("seed")) == ["b"]
    assert ids(after.children_of("b")) == ["d"]


def test_novelty_is_the_mean_distance_to_the_five_nearest_others() -> None:
    codes = ["aa"] * 4 + ["bb"] * 3
    mixed = archive(*(candidate(f"c{i}", 0.5, code) for i, code in enumerate(codes)))
    assert novelty(mixed.members[0], mixed) == pytest.approx((3 * 0.0 + 2 * 0.5) / 5)
    assert novelty(mixed.members[6], mixed) == pytest.approx((2 * 0.0 + 3 * 0.5) / 5)


def test_a_lonely_member_is_fully_novel() -> None:
    assert novelty(candidate("seed", 0.5), archive(candidate("seed", 0.5))) == 1.0


def test_an_empty_archive_has_no_best() -> None:
    with pytest.raises(ValueError, match="members: got none, expected at least the seed"):
        _ = archive().best


def test_an_archive_that_cannot_be_is_refused() -> None:
    seed = candidate("seed", 0.5)
    with pytest.raises(ValueError, match="size: got 1, expected at least 2"):
        Archive((), 1)
    with pytest.raises(ValueError, match="members: got 3, expected at most 2"):
        archive(seed, candidate("a", 0.1), candidate("b", 0.1), size=2)
    with pytest.raises(ValueError, match="members: got an id twice"):
        archive(seed, seed)


def test_a_candidate_without_a_finite_score_is_refused() -> None:
    with pytest.raises(ValueError, match="score: got nan, expected a finite number"):
        candidate("bad", math.nan)


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 8).map(lambda tenths: tenths / 8),
        st.lists(st.sampled_from(["aa", "bb", "cc", "dd"]), max_size=4).map(" ".join),
    ),
    max_size=40,
)


@given(ARRIVALS, st.integers(2, 12))
@settings(max_examples=60)
def test_an_archive_keeps_its_size_its_best_and_its_protected_members(
    arrivals: list[tuple[float, str]], size: int
) -> None:
    held = archive(size=size)
    for number, (score, code) in enumerate(arrivals):
        newcomer = candidate(f"c{number}", score, code)
        after = held.insert(newcomer)
        assert len(after.members) == min(size, len(held.members) + 1)
        assert set(ids(held.protected())) <= set(ids(after.members)) if held.members else True
        assert after is held or after.members[-1] is newcomer
        held = after
    if arrivals:
        assert held.best.score == max(score for score, _ in arrivals)


EVEN = EliteWeights(fitness=0.5, novelty=0.5, protected_share=0.2)

MOSTLY_NOVEL = EliteWeights(fitness=0.2, novelty=0.8, protected_share=0.2)

TRIO = (candidate("best", 0.9, "aa"), candidate("twin", 0.5, "aa"), candidate("odd", 0.1, "bb"))


def test_novelty_counts_by_the_share_of_members_that_are_less_novel() -> None:
    held = Archive(TRIO, 3, EVEN)
    assert elite_scores(held) == {
        "best": 0.5 * 1.0 + 0.5 * 0.0,
        "twin": 0.5 * 0.5 + 0.5 * 0.0,
        "odd": pytest.approx(0.5 * 0.0 + 0.5 * 2 / 3),
    }
    assert member_elite_score(TRIO[2], held) == pytest.approx(1 / 3)


def test_a_novel_newcomer_enters_that_fitness_alone_would_refuse() -> None:
    newcomer = candidate("new", 0.05, "cc")
    assert newcomer_elite_score(newcomer, Archive(TRIO, 3, EVEN)) == pytest.approx(1 / 3)
    assert newcomer_elite_score(newcomer, Archive(TRIO, 3)) == 0.0
    assert ids(Archive(TRIO, 3, EVEN).insert(newcomer).members) == ["best", "odd", "new"]
    assert ids(Archive(TRIO, 3).insert(newcomer).members) == ids(TRIO)


def test_a_change_of_members_keeps_size_and_weights() -> None:
    grown = Archive(TRIO[:2], 3, EVEN).insert(TRIO[2])
    swapped = grown.insert(candidate("new", 0.05, "cc"))
    assert (grown.size, grown.weights, swapped.weights) == (3, EVEN, EVEN)


def test_the_best_by_score_is_protected_besides_the_best_by_elite_score() -> None:
    assert ids(Archive(TRIO, 3, MOSTLY_NOVEL).protected()) == ["odd", "best"]
    assert ids(Archive(TRIO, 3, EVEN).protected()) == ["best"]


def test_where_all_are_protected_nobody_enters() -> None:
    walled = Archive(TRIO, 3, EliteWeights(0.5, 0.5, protected_share=1.0))
    assert walled.insert(candidate("new", 2.0, "cc")) is walled


@pytest.mark.parametrize(
    ("share", "expected"), [(0.05, 1), (0.1, 2), (0.2, 4), (0.3, 6), (0.01, 1)]
)
def test_the_protected_share_is_rounded_down_and_never_nothing(share: float, expected: int) -> None:
    members = tuple(candidate(f"c{rank}", rank / 20, "aa") for rank in range(20))
    held = Archive(members, 20, EliteWeights(protected_share=share))
    assert ids(held.protected()) == [f"c{19 - rank}" for rank in range(expected)]


def test_a_fifth_is_a_whole_fifth_at_every_size() -> None:
    assert all(floor(FITNESS_ONLY.protected_share * n) == n // 5 for n in range(10_000))


def test_a_lonely_or_missing_member_needs_no_rank() -> None:
    assert ids(Archive(TRIO[:1], 3, EVEN).protected()) == ["best"]
    assert elite_scores(Archive(TRIO[:1], 3, EVEN)) == {"best": 0.5}
    assert elite_scores(Archive((), 3, EVEN)) == {}


WEIGHTS = st.sampled_from([EVEN, MOSTLY_NOVEL, EliteWeights(0.8, 0.2, 0.3), FITNESS_ONLY])


def novelties(newcomer: Candidate, members: tuple[Candidate, ...]) -> float:
    others = [member.program for member in members if member.id != newcomer.id]
    near = sorted(distance(newcomer.program, other) for other in others)[:5]
    return sum(near) / len(near) if near else 1.0


def members_after(held: Archive, newcomer: Candidate) -> list[str]:
    members, weights, n = held.members, held.weights, len(held.members)
    if n < held.size:
        return [*ids(members), newcomer.id]
    by_score = sorted(members, key=lambda m: -m.score)
    dull = [novelties(m, members) for m in members]
    elite = {
        m.id: weights.fitness * (1 - rank / (n - 1))
        + weights.novelty * sum(d < novelties(m, members) for d in dull) / n
        for rank, m in enumerate(by_score)
    }
    count = max(1, int(weights.protected_share * n + 1e-9))
    spared = {m.id for m in sorted(by_score, key=lambda m: -elite[m.id])[:count]}
    rivals = [m for m in members if m.id not in spared | {by_score[0].id}]
    if not rivals:
        return ids(members)
    rival = min(rivals, key=lambda m: distance(m.program, newcomer.program))
    better = sum(m.score > newcomer.score for m in members)
    rank = max(0.0, 1 - better / (n - 1))
    duller = sum(d < novelties(newcomer, members) for d in dull)
    if weights.fitness * rank + weights.novelty * duller / n <= elite[rival.id]:
        return ids(members)
    return [*(m.id for m in members if m is not rival), newcomer.id]


@given(ARRIVALS, st.integers(2, 8), WEIGHTS)
@settings(max_examples=80)
def test_every_insertion_follows_the_rule(
    arrivals: list[tuple[float, str]], size: int, weights: EliteWeights
) -> None:
    held = Archive((), size, weights)
    for number, (score, code) in enumerate(arrivals):
        newcomer = candidate(f"c{number}", score, code)
        expected = members_after(held, newcomer)
        best = max((member.score for member in held.members), default=score)
        held = held.insert(newcomer)
        assert ids(held.members) == expected
        assert held.best.score >= best


CONSTANTS = Constants(num_migrants=2)


def test_a_migration_follows_every_fifteenth_iteration() -> None:
    assert [t for t in range(46) if is_migration_due(t, CONSTANTS)] == [15, 30, 45]


def test_nothing_moves_between_migrations() -> None:
    archives = (archive(candidate("a", 0.5)), archive(candidate("b", 0.6)))
    assert migrate(archives, 14, CONSTANTS) is archives


def test_the_best_of_each_frontier_are_copied_along_the_ring() -> None:
    archives = (
        archive(candidate("a1", 0.1), candidate("a2", 0.5), candidate("a3", 0.6)),
        archive(candidate("b1", 0.4)),
        archive(candidate("c1", 0.9)),
    )
    first, second, third = migrate(archives, 15, CONSTANTS)
    assert ids(second.members) == ["b1", "a3>1@15", "a2>1@15"]
    assert ids(third.members) == ["c1", "a3>1@15>2@15", "a2>1@15>2@15"]
    assert ids(first.members) == ["a1", "a2", "a3", "c1>0@15"]


def test_a_text_the_destination_holds_is_not_sent() -> None:
    archives = (archive(candidate("a", 0.5, "x")), archive(candidate("b", 0.1, "x")))
    assert migrate(archives, 15, CONSTANTS) == archives


def test_a_full_destination_applies_its_insertion_rule() -> None:
    full = archive(candidate("b1", 0.8, "aa"), candidate("b2", 0.7, "bb"), size=2)
    weak, strong = candidate("weak", 0.1, "cc"), candidate("strong", 0.9, "dd")
    assert migrate((archive(weak), full), 15, CONSTANTS)[1] is full
    assert ids(migrate((archive(strong), full), 15, CONSTANTS)[1].members) == ["b1", "strong>1@15"]


def test_every_migrant_that_entered_arrives_in_order_and_no_other_does() -> None:
    first = archive(candidate("weak", 0.6), candidate("strong", 0.9), candidate("rest", 0.1))
    full = archive(candidate("b1", 0.8, "aa"), candidate("b2", 0.65, "bb"), size=2)
    archives, arrivals = exchange((first, full), 15, CONSTANTS)
    assert archives == migrate((first, full), 15, CONSTANTS)
    assert [(each.frontier, each.candidate.id) for each in arrivals] == [
        (1, "strong>1@15"),
        (0, "b1>0@15"),
    ]
    assert arrivals[1] == Arrival(0, migrant_copy(full.members[0], 0, 15))


def test_a_migrant_arrived_even_if_the_next_one_took_its_place() -> None:
    full = archive(
        candidate("b1", 0.9, "xx"),
        candidate("b2", 0.5, "yy"),
        candidate("b3", 0.1, "aa bb"),
        size=3,
    )
    equals = archive(candidate("a1", 0.5, "aa bb cc"), candidate("a2", 0.5, "aa bb cc dd"))
    archives, arrivals = exchange((equals, full), 15, CONSTANTS)
    assert ids(archives[1].members) == ["b1", "b2", "a2>1@15"]
    assert [each.candidate.id for each in arrivals] == ["a1>1@15", "a2>1@15", "b1>0@15", "b2>0@15"]


def test_nobody_arrives_between_migrations() -> None:
    archives = (archive(candidate("a", 0.5)), archive(candidate("b", 0.6)))
    assert exchange(archives, 14, CONSTANTS) == (archives, ())


def test_a_single_frontier_sends_nothing_to_itself() -> None:
    alone = (archive(candidate("a", 0.5)),)
    assert migrate(alone, 15, CONSTANTS) == alone


def test_a_copy_is_a_child_of_its_original_and_keeps_the_rest() -> None:
    original = candidate("a", 0.5, parent_id="seed", ticket=3)
    copy = migrant_copy(original, 1, 15)
    assert (copy.id, copy.parent_id, copy.ticket, copy.migrated_in) == ("a>1@15", "a", 3, 15)
    assert (copy.program.text, copy.score, copy.generation) == (original.program.text, 0.5, 1)


def test_a_copy_of_a_copy_has_both_moves_in_its_id() -> None:
    twice = migrant_copy(migrant_copy(candidate("a", 0.5), 1, 15), 0, 30)
    assert (twice.id, twice.parent_id) == ("a>1@15>0@30", "a>1@15")
