"""The archive of a frontier: who replaces whom, migration, and novelty by distance of programs.

Programs are compared by their texts alone and never parsed: a candidate may be broken.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor
from operator import attrgetter
from typing import TypeVar

from costada.controller.constants import Constants
from costada.values.candidate import Candidate, Program
from costada.values.numbering import Iteration

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
        return max(self.members, key=attrgetter("score"))

    def ranked(self) -> list[Candidate]:
        """All members, best score first, in order of entry on ties."""
        return sorted(self.members, key=attrgetter("score"), reverse=True)

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
            key=lambda member: distance(member.program, candidate.program),
            default=None,
        )


def elite_score(num_better: int, num_members: int) -> float:
    """The rank of a score among the members as a ratio in [0, 1], 1 for the best (F%)."""
    return max(0.0, 1.0 - num_better / max(num_members - 1, 1))


def elite_scores(archive: Archive) -> dict[str, float]:
    """The elite score of each member by id, from its ranks by score and by novelty."""
    ranked = archive.ranked()
    found = dict(zip((each.id for each in archive.members), novelties(archive), strict=True))
    return {
        each.id: _weighted(
            archive.weights, elite_score(rank, len(ranked)), found[each.id], found.values()
        )
        for rank, each in enumerate(ranked)
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
    return _weighted(archive.weights, rank, novelty(newcomer, archive), novelties(archive))


def _weighted(
    weights: EliteWeights, rank: float, own_novelty: float, novelties: Collection[float]
) -> float:
    num_less_novel = sum(other < own_novelty for other in novelties)
    return weights.fitness * rank + weights.novelty * num_less_novel / len(novelties)


def novelty(member: Candidate, archive: Archive) -> float:
    """The mean distance to the nearest other members, in [0, 1], 1 when alone."""
    return _mean_of_nearest(
        [
            distance(member.program, other.program)
            for other in archive.members
            if other.id != member.id
        ]
    )


def novelties(archive: Archive) -> tuple[float, ...]:
    """The novelty of each member, in order."""
    return _novelties(tuple(member.program for member in archive.members))


@lru_cache(maxsize=64)
def _novelties(programs: tuple[Program, ...]) -> tuple[float, ...]:
    """The novelty of each of several programs; a full archive changes rarely."""
    distances: list[list[float]] = [[] for _ in programs]
    for place, program in enumerate(programs):
        for other in range(place):
            found = distance(program, programs[other])
            distances[place].append(found)
            distances[other].append(found)
    return tuple(map(_mean_of_nearest, distances))


def _mean_of_nearest(distances: list[float]) -> float:
    nearest = sorted(distances)[:NUM_NEIGHBORS]
    return sum(nearest) / len(nearest) if nearest else 1.0


def is_migration_due(iteration: Iteration, constants: Constants) -> bool:
    """Whether a migration follows the completed iteration."""
    return iteration > 0 and iteration % constants.migration_interval == 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A migrant that found a place.

    Attributes:
        frontier: Index of the frontier it came to.
        candidate: The copy that entered.
    """

    frontier: int
    candidate: Candidate


def migrate(
    archives: tuple[Archive, ...], iteration: Iteration, constants: Constants
) -> tuple[Archive, ...]:
    """The archives at the end of an iteration: the same ones when no migration is due.

    Frontiers send along a ring, the last to the first, one after the other, so that a frontier
    may pass on what it just received. Copies pass the normal insertion rule; a text the
    destination already holds is not sent.
    """
    migrated, _ = exchange(archives, iteration, constants)
    return migrated


def exchange(
    archives: tuple[Archive, ...], iteration: Iteration, constants: Constants
) -> tuple[tuple[Archive, ...], tuple[Arrival, ...]]:
    """The archives that `migrate` returns, and every migrant that entered, in order.

    A migrant counts even if a later one took its place again.
    """
    archives, seeds = replace_empty_start(archives, iteration)
    if not is_migration_due(iteration, constants):
        return archives, seeds
    ring = list(archives)
    arrivals = list(seeds)
    for source in range(len(ring)):
        destination = (source + 1) % len(ring)
        for candidate in ring[source].top(constants.num_migrants):
            before = ring[destination]
            migrant = migrant_copy(candidate, destination, iteration)
            if not before.holds(migrant.program):
                ring[destination] = before.insert(migrant)
            if ring[destination] is not before:
                arrivals.append(Arrival(destination, migrant))
    return tuple(ring), tuple(arrivals)


def replace_empty_start(
    archives: tuple[Archive, ...], iteration: Iteration
) -> tuple[tuple[Archive, ...], tuple[Arrival, ...]]:
    """The archives after the first program of a run without an initial one takes its place.

    The empty program leaves every frontier, and those that held nothing else get a copy of the
    first. All others, and those of which no program is valid yet, are returned as they are.
    """
    members = [each for archive in archives for each in archive.members]
    first = next((each for each in members if not each.program.is_empty), None)
    if first is None or not any(each.program.is_empty for each in members):
        return archives, ()
    seeded = list(archives)
    arrivals: list[Arrival] = []
    for frontier, archive in enumerate(archives):
        kept = tuple(each for each in archive.members if not each.program.is_empty)
        if not kept:
            arrivals.append(Arrival(frontier, migrant_copy(first, frontier, iteration)))
            kept = (arrivals[-1].candidate,)
        if kept != archive.members:
            seeded[frontier] = replace(archive, members=kept)
    return tuple(seeded), tuple(arrivals)


def migrant_copy(candidate: Candidate, destination: int, iteration: Iteration) -> Candidate:
    """The copy that travels, a child of the original with the same generation.

    Its id follows from the original's, the index of the destination and the iteration.
    """
    return replace(
        candidate,
        id=f"{candidate.id}>{destination}@{iteration}",
        parent_id=candidate.id,
        migrated_in=iteration,
    )


Item = TypeVar("Item")

TOKEN_WEIGHT = 0.5

FEATURE_WEIGHT = 0.3

LENGTH_WEIGHT = 0.2

TOKEN = re.compile(r"[^\W\d]\w+|\d[\d.]+")

IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n#;]+)", re.MULTILINE)

FROM_IMPORT = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import\b", re.MULTILINE)

DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+)?(def|class)[ \t]+(\w+)", re.MULTILINE)

NAME_ENDING = re.compile(r"(\.[\w.]++)([ \t]*+\()?")

DOTTED_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)+")

# Both patterns begin with a literal, which `re` finds many times faster than it tries a lookbehind
# or a word boundary at every character.
KEYWORDS = {
    word: re.compile(rf"{word}\b(?<!\w{word})")
    for word in ("for", "while", "try", "with", "yield", "async", "lambda")
}


@dataclass(frozen=True, slots=True)
class Features:
    """What the distance looks at in one program.

    Attributes:
        tokens: Identifiers and numbers of at least two characters.
        structure: Imported modules, defined names, dotted calls, keywords and paths of several
            files, each with its kind.
        length: Characters of all texts.
    """

    tokens: frozenset[str]
    structure: frozenset[tuple[str, str]]
    length: int


def distance(one: Program, other: Program) -> float:
    """The distance of two programs, symmetric, in [0, 1], 0 for equal ones."""
    if one == other:
        return 0.0
    return _distance(one, other) if one.files < other.files else _distance(other, one)


# Several times what the programs of all archives need. More would keep those of a long run alive.
@lru_cache(maxsize=4096)
def _distance(one: Program, other: Program) -> float:
    left, right = program_features(one), program_features(other)
    return (
        TOKEN_WEIGHT * jaccard_distance(left.tokens, right.tokens)
        + FEATURE_WEIGHT * jaccard_distance(left.structure, right.structure)
        + LENGTH_WEIGHT * length_distance(left.length, right.length)
    )


def program_features(program: Program) -> Features:
    """What the distance looks at in a program: in all its files, and in their paths."""
    return features(program.text) if program.is_one_text else _features_of_files(program)


@lru_cache(maxsize=64)
def _features_of_files(program: Program) -> Features:
    # Candidates share most of their files: each text is looked at once.
    found = [features(text) for _, text in program.files]
    return Features(
        frozenset().union(*(each.tokens for each in found)),
        frozenset(("file", path) for path in program).union(*(each.structure for each in found)),
        sum(each.length for each in found),
    )


@lru_cache(maxsize=256)
def features(code: str) -> Features:
    """The features of a text, from which its distance to other texts is computed."""
    tokens = frozenset(TOKEN.findall(code))
    return Features(tokens, frozenset(_structure(code, tokens)), len(code))


def jaccard_distance(left: frozenset[Item], right: frozenset[Item]) -> float:
    """The share of the union that is not common, 0 for two empty sets."""
    common = len(left & right)
    union = len(left) + len(right) - common
    return 0.0 if union == 0 else 1.0 - common / union


def length_distance(length: int, other: int) -> float:
    """The difference of two lengths relative to the longer one, 0 for two empty texts."""
    longer = max(length, other)
    return 0.0 if longer == 0 else abs(length - other) / longer


def _structure(code: str, tokens: frozenset[str]) -> set[tuple[str, str]]:
    """Imports, definitions, calls and keywords; a keyword is a token, if a whole word."""
    modules = {name.split()[0] for line in IMPORT.findall(code) for name in _listed(line)}
    modules.update(FROM_IMPORT.findall(code))
    return (
        {("import", module) for module in modules}
        | {(kind, name) for kind, name in DEFINITION.findall(code)}
        | {("call", name) for name in _dotted_calls(code)}
        | {("keyword", word) for word in KEYWORDS.keys() & tokens if KEYWORDS[word].search(code)}
    )


def _dotted_calls(code: str) -> Iterator[str]:
    """The names with dots that are called, such as `np.random.seed`."""
    for ending in NAME_ENDING.finditer(code):
        if ending[2] is None:
            continue
        start = ending.start()
        while start and (code[start - 1].isalnum() or code[start - 1] == "_"):
            start -= 1
        name = code[start : ending.end(1)]
        if DOTTED_NAME.fullmatch(name):
            yield name


def _listed(line: str) -> list[str]:
    return [name for name in line.split(",") if name.strip()]
