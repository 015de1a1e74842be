"""Candidate and Archive: what one frontier keeps, and which newcomer may replace whom."""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from math import isfinite

from costada.controller.distance import code_distance

NUM_NEIGHBORS = 5
"""Nearest others that make up the novelty of a member."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One evaluated program (p_t).

    Attributes:
        id: Unique within a run.
        code: Full text of the program.
        score: Normalised score, higher is better (F).
        parent_id: Candidate it was edited or copied from, None for the seed.
        iteration: Iteration in which it entered its archive, 0 for the seed.
        generation: Edits that separate it from the seed.
        metrics: Further numbers of the evaluator, by name.
        artifacts: Texts of the evaluator, by name.
        changes: Summary of the edit.
        error: Why the evaluator refused it; only a seed may be invalid.

    Raises:
        ValueError: The score is not finite.
    """

    id: str
    code: str
    score: float
    parent_id: str | None
    iteration: int
    generation: int
    metrics: Mapping[str, float]
    artifacts: Mapping[str, str]
    changes: str
    error: str | None = None

    def __post_init__(self) -> None:
        if not isfinite(self.score):
            raise ValueError(f"score: got {self.score}, expected a finite number")


@dataclass(frozen=True, slots=True)
class Archive:
    """The candidates of one frontier, in the order they entered (D^(k), Sec. 3).

    Attributes:
        members: At most `size` candidates with different ids.
        size: Candidates it can hold.

    Raises:
        ValueError: The size is below 2, members exceed it, or an id occurs twice.
    """

    members: tuple[Candidate, ...]
    size: int

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"size: got {self.size}, expected at least 2")
        if len(self.members) > self.size:
            raise ValueError(f"members: got {len(self.members)}, expected at most {self.size}")
        if len({member.id for member in self.members}) < len(self.members):
            raise ValueError("members: got an id twice, expected different ids")

    @property
    def best(self) -> Candidate:
        """Return the member with the highest score, the earliest on a tie.

        Raises:
            ValueError: The archive is empty.
        """
        if not self.members:
            raise ValueError("members: got none, expected at least the seed")
        return self.ranked()[0]

    def ranked(self) -> list[Candidate]:
        """Return all members, best score first, in order of entry on ties."""
        return sorted(self.members, key=lambda member: -member.score)

    def top(self, count: int) -> tuple[Candidate, ...]:
        """Return the `count` best members, all of them when there are fewer."""
        return tuple(self.ranked()[:count])

    def elite(self) -> tuple[Candidate, ...]:
        """Return the best fifth of the members, at least 1 and at most 10."""
        return self.top(max(1, min(10, len(self.members) // 5)))

    def protected(self) -> tuple[Candidate, ...]:
        """Return the members eviction spares: the best fifth, at least the best one."""
        return self.top(max(1, len(self.members) // 5))

    def children_of(self, parent_id: str) -> tuple[Candidate, ...]:
        """Return the members edited or copied from a candidate, in order of entry."""
        return tuple(member for member in self.members if member.parent_id == parent_id)

    def holds_code(self, code: str) -> bool:
        """Return whether a member has exactly this text."""
        return any(member.code == code for member in self.members)

    def insert(self, candidate: Candidate) -> "Archive":
        """Return the archive after a newcomer asked for a place; itself when it is refused.

        While there is room everyone enters, except under an id already present. A full archive
        lets the newcomer meet its nearest look-alike outside the protected members, and swaps
        the two when the newcomer has the higher elite score.
        """
        if any(member.id == candidate.id for member in self.members):
            return self
        if len(self.members) < self.size:
            return Archive((*self.members, candidate), self.size)
        rival = self._nearest_unprotected(candidate)
        if newcomer_elite_score(candidate, self) <= member_elite_score(rival, self):
            return self
        kept = tuple(member for member in self.members if member.id != rival.id)
        return Archive((*kept, candidate), self.size)

    def _nearest_unprotected(self, candidate: Candidate) -> Candidate:
        protected_ids = {member.id for member in self.protected()}
        rivals = (member for member in self.members if member.id not in protected_ids)
        return min(rivals, key=lambda member: code_distance(member.code, candidate.code))


def elite_score(num_better: int, num_members: int) -> float:
    """Return the rank of a score among the members as a ratio in [0, 1], 1 for the best.

    The elite score weighs fitness rank by 1.4 and novelty rank by 0, so the common factor is
    left out: only comparisons use it.
    """
    return max(0.0, 1.0 - num_better / (num_members - 1))


def member_elite_score(member: Candidate, archive: Archive) -> float:
    """Return the elite score of a member; among equal scores the earlier one counts as better."""
    rank = [other.id for other in archive.ranked()].index(member.id)
    return elite_score(rank, len(archive.members))


def newcomer_elite_score(newcomer: Candidate, archive: Archive) -> float:
    """Return the elite score of a newcomer; only strictly better members count against it."""
    num_better = sum(member.score > newcomer.score for member in archive.members)
    return elite_score(num_better, len(archive.members))


def novelty(member: Candidate, archive: Archive) -> float:
    """Return the mean distance to the nearest other members, in [0, 1], 1 when alone."""
    others = (other for other in archive.members if other.id != member.id)
    nearest = nsmallest(NUM_NEIGHBORS, (code_distance(member.code, other.code) for other in others))
    return sum(nearest) / len(nearest) if nearest else 1.0
