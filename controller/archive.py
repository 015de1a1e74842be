"""Archive: the candidates that one frontier keeps, and which newcomer may replace whom."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import floor

from costada.controller.distance import code_distance
from costada.values.candidate import Candidate
from costada.values.program import Program

NUM_NEIGHBORS = 5
"""Nearest others that make up the novelty of a member."""


@dataclass(frozen=True, slots=True)
class EliteWeights:
    """How an archive ranks its members: the weights of the elite score, and whom it protects.

    Attributes:
        fitness: Weight of the rank by score (w_f + w_par).
        novelty: Weight of the rank by novelty (w_n).
        protected_share: Part of the members, best elite score first, that eviction spares.
    """

    fitness: float = 1.4
    novelty: float = 0.0
    protected_share: float = 0.2


FITNESS_ONLY = EliteWeights()
"""The weights of every frontier that a run begins with."""


@dataclass(frozen=True, slots=True)
class Archive:
    """The candidates of one frontier, in the order they entered (D^(k), Sec. 3).

    Attributes:
        members: At most `size` candidates with different ids.
        size: Candidates it can hold.
        weights: How it ranks its members against a newcomer.

    Raises:
        ValueError: The size is below 2, members exceed it, or an id occurs twice.
    """

    members: tuple[Candidate, ...]
    size: int
    weights: EliteWeights = FITNESS_ONLY

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"size: got {self.size}, expected at least 2")
        if len(self.members) > self.size:
            raise ValueError(f"members: got {len(self.members)}, expected at most {self.size}")
        if len({member.id for member in self.members}) < len(self.members):
            raise ValueError("members: got an id twice, expected different ids")

    @property
    def best(self) -> Candidate:
        """The member with the highest score, the earliest on a tie.

        Raises:
            ValueError: The archive is empty.
        """
        if not self.members:
            raise ValueError("members: got none, expected at least the seed")
        return self.ranked()[0]

    def ranked(self) -> list[Candidate]:
        """All members, best score first, in order of entry on ties."""
        return sorted(self.members, key=lambda member: -member.score)

    def top(self, count: int) -> tuple[Candidate, ...]:
        """The `count` best members, all of them when there are fewer."""
        return tuple(self.ranked()[:count])

    def elite(self) -> tuple[Candidate, ...]:
        """The best fifth of the members, at least 1 and at most 10."""
        return self.top(max(1, min(10, len(self.members) // 5)))

    def protected(self) -> tuple[Candidate, ...]:
        """The members eviction spares: the best by elite score, and the best by score."""
        ranked = self.ranked()
        count = max(1, floor(self.weights.protected_share * len(ranked)))
        if not self.weights.novelty:
            return tuple(ranked[:count])
        scores = elite_scores(self)
        spared = sorted(ranked, key=lambda member: -scores[member.id])[:count]
        return tuple(spared if ranked[0] in spared else [*spared, ranked[0]])

    def children_of(self, parent_id: str) -> tuple[Candidate, ...]:
        """The members edited or copied from a candidate, in order of entry."""
        return tuple(member for member in self.members if member.parent_id == parent_id)

    def holds(self, program: Program) -> bool:
        """Whether a member is exactly this program."""
        return any(member.program == program for member in self.members)

    def insert(self, candidate: Candidate) -> "Archive":
        """The archive after a candidate was offered; itself when that is refused.

        While there is room every candidate enters, unless its id is present. In a full archive it
        replaces the most similar unprotected member if its elite score is higher.
        """
        if any(member.id == candidate.id for member in self.members):
            return self
        if len(self.members) < self.size:
            return replace(self, members=(*self.members, candidate))
        rival = self._nearest_unprotected(candidate)
        if rival is None:
            return self
        if newcomer_elite_score(candidate, self) <= member_elite_score(rival, self):
            return self
        kept = tuple(member for member in self.members if member.id != rival.id)
        return replace(self, members=(*kept, candidate))

    def _nearest_unprotected(self, candidate: Candidate) -> Candidate | None:
        protected_ids = {member.id for member in self.protected()}
        rivals = (member for member in self.members if member.id not in protected_ids)
        return min(
            rivals,
            key=lambda member: code_distance(member.program.text, candidate.program.text),
            default=None,
        )


def elite_score(num_better: int, num_members: int) -> float:
    """The rank of a score among the members as a ratio in [0, 1], 1 for the best (F%)."""
    return max(0.0, 1.0 - num_better / max(num_members - 1, 1))


def elite_scores(archive: Archive) -> dict[str, float]:
    """The elite score of each member by id, from its ranks by score and by novelty."""
    ranked = archive.ranked()
    novelties = {member.id: novelty(member, archive) for member in ranked}
    return {
        id: _weighted(
            archive.weights, elite_score(rank, len(ranked)), novelties[id], novelties.values()
        )
        for rank, id in enumerate(novelties)
    }


def member_elite_score(member: Candidate, archive: Archive) -> float:
    """The elite score of a member; among equal scores the earlier one counts as better.

    Only comparisons within one archive use it. Without a weight on novelty it is the rank by
    score alone, for a common factor decides nothing.
    """
    if archive.weights.novelty:
        return elite_scores(archive)[member.id]
    rank = [other.id for other in archive.ranked()].index(member.id)
    return elite_score(rank, len(archive.members))


def newcomer_elite_score(newcomer: Candidate, archive: Archive) -> float:
    """The elite score of a newcomer; only strictly better members count against it."""
    num_better = sum(member.score > newcomer.score for member in archive.members)
    rank = elite_score(num_better, len(archive.members))
    if not archive.weights.novelty:
        return rank
    novelties = [novelty(member, archive) for member in archive.members]
    return _weighted(archive.weights, rank, novelty(newcomer, archive), novelties)


def _weighted(
    weights: EliteWeights, rank: float, own_novelty: float, novelties: Collection[float]
) -> float:
    num_duller = sum(other < own_novelty for other in novelties)
    return weights.fitness * rank + weights.novelty * num_duller / len(novelties)


def novelty(member: Candidate, archive: Archive) -> float:
    """The mean distance to the nearest other members, in [0, 1], 1 when alone."""
    others = (other for other in archive.members if other.id != member.id)
    nearest = sorted(code_distance(member.program.text, other.program.text) for other in others)[
        :NUM_NEIGHBORS
    ]
    return sum(nearest) / len(nearest) if nearest else 1.0
