"""How an archive ranks whose weights also count novelty."""

from math import floor

import pytest
from archive_samples import candidate, ids
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.controller.archive import (
    FITNESS_ONLY,
    Archive,
    Candidate,
    EliteWeights,
    elite_scores,
    member_elite_score,
    newcomer_elite_score,
)
from costada.controller.distance import code_distance

EVEN = EliteWeights(fitness=0.5, novelty=0.5, protected_share=0.2)
MOSTLY_NOVEL = EliteWeights(fitness=0.2, novelty=0.8, protected_share=0.2)
TRIO = (
    candidate("best", 0.9, "aa"),
    candidate("twin", 0.5, "aa"),
    candidate("odd", 0.1, "bb"),
)


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


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 8).map(lambda eighths: eighths / 8),
        st.lists(st.sampled_from(["aa", "bb", "cc", "dd"]), max_size=4).map(" ".join),
    ),
    max_size=25,
)
WEIGHTS = st.sampled_from([EVEN, MOSTLY_NOVEL, EliteWeights(0.8, 0.2, 0.3), FITNESS_ONLY])


def novelties(newcomer: Candidate, members: tuple[Candidate, ...]) -> float:
    """Return the mean distance to the five nearest others, spelt out."""
    near = sorted(code_distance(newcomer.code, m.code) for m in members if m.id != newcomer.id)[:5]
    return sum(near) / len(near) if near else 1.0


def members_after(held: Archive, newcomer: Candidate) -> list[str]:
    """Return who is left after an insertion, by the rule spelt out step by step."""
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
    rival = min(rivals, key=lambda m: code_distance(m.code, newcomer.code))
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
