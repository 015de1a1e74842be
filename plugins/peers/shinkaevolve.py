"""The islands of ShinkaEvolve: one archive over two islands, and what the meta-calls have noted.

The rules and the numbers in capitals are those of the package `shinka-evolve` 0.0.7 from PyPI at
the defaults of `DatabaseConfig` and `EvolutionConfig`. Each docstring names the file and the
function in which a rule stands there.
"""

import json
import re
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp
from random import Random
from statistics import median
from typing import Self

from costada.plugins.peers.peer_search import NO_GAINS, Choice, TextOf
from costada.values.candidate import Candidate

NUM_ISLANDS = 2
"""Islands (`database/dbase.py`, `DatabaseConfig.num_islands`)."""

ARCHIVE_SIZE = 40
"""Members of the archive, of all islands together (`DatabaseConfig.archive_size`)."""

SHARPNESS = 10.0
"""Steepness of the sigmoid in a draw of parents (`DatabaseConfig.parent_selection_lambda`)."""

MIN_SCALE = 1e-6
"""Least deviation that scores are measured in (`database/parents.py`)."""

PATCH_TYPES: Mapping[str, float] = {"diff": 0.6, "full": 0.3, "cross": 0.1}
"""What is asked for, and how often (`defaults.py`, `default_patch_type_probs`)."""

CROSS = "cross"
"""The patch type that crosses two programs, and is shown no recommendation."""

META_INTERVAL = 10
"""Programs after which notes are due (`core/config.py`, `EvolutionConfig.meta_rec_interval`)."""

NUM_RECOMMENDATIONS = 5
"""Recommendations asked for (`EvolutionConfig.meta_max_recommendations`)."""


@dataclass(frozen=True, slots=True)
class Member:
    """A program of the archive.

    Attributes:
        candidate: Id of its candidate.
        island: Index of its island; the initial program is on each.
        score: Score of the candidate.
        landed: Programs of the run that were there before it.
        children: Programs made from it, invalid ones included.
    """

    candidate: str
    island: int
    score: float
    landed: int = 0
    children: int = 0

    @property
    def standing(self) -> tuple[float, int]:
        """Higher is better: of equal scores, the newer one is.

        `database/dbase.py`, `_is_better`.
        """
        return self.score, self.landed


@dataclass(slots=True)
class Islands:
    """The archive, and the notes; changed by `land` and `take_notes`.

    The best program is always in the archive, and one that has left it never returns.

    Attributes:
        archive: Its members, in the order in which they came.
        outside: The valid programs of each island that are not in it, as what landed before them
            and the id of the candidate, in the order in which they came.
        num_landed: Programs of the run so far, beside the initial one.
        unread: Ids of the candidates since the last notes.
        insights: What the programs so far have shown.
        recommendations: What to try next, one of which a prompt shows.
    """

    archive: list[Member]
    outside: list[list[tuple[int, str]]] = field(
        default_factory=lambda: [[] for _ in range(NUM_ISLANDS)]
    )
    num_landed: int = 0
    unread: list[str] = field(default_factory=list)
    insights: str = ""
    recommendations: list[str] = field(default_factory=list)

    @classmethod
    def begin(
        cls, seed: Candidate, text_of: TextOf, rng: Random, gains: Mapping[str, float] = NO_GAINS
    ) -> Self:
        """The initial program on each island; the first notes read it as well.

        `database/islands.py`, `copy_program_to_islands`; `core/async_runner.py`.
        """
        archive = [Member(seed.id, island, seed.score) for island in range(NUM_ISLANDS)]
        return cls(archive, unread=[seed.id])

    def to_json(self) -> str:
        """The islands as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The islands that a text describes."""
        plain = json.loads(text)
        archive = [Member(**each) for each in plain.pop("archive")]
        outside = [[(number, name) for number, name in each] for each in plain.pop("outside")]
        return cls(archive, outside, **plain)

    @property
    def best(self) -> Member:
        """The best program of the run (`database/dbase.py`, `_update_best_program`)."""
        return max(self.archive, key=lambda each: each.standing)

    @property
    def has_notes_due(self) -> bool:
        """Whether enough programs are unread (`core/summarizer.py`, `should_update_meta`)."""
        return len(self.unread) >= META_INTERVAL

    def choose(self, island: int, text_of: TextOf, rng: Random) -> Choice:
        """A recommendation, a parent by weight, two programs beside it, and a patch type.

        `core/async_runner.py`, `_generate_evolved_proposal`; `core/sampler.py`, `sample`: programs
        are shown the worst first, and without one there is nothing to cross. An island that has
        nobody in the archive draws from all its programs (`database/parents.py`).
        """
        advice = rng.choice(self.recommendations) if self.recommendations else ""
        home = [each for each in self.archive if each.island == island]
        if home:
            (drawn,) = rng.choices(home, parent_weights(home))
            parent = drawn.candidate
        else:
            _, parent = min(self.outside[island], key=lambda each: rng.random())
        shown = self._inspirations([each for each in home if each.candidate != parent], rng)
        odds = {name: odd for name, odd in PATCH_TYPES.items() if shown or name != CROSS}
        (patch,) = rng.choices([*odds], [*odds.values()])
        return Choice(
            parent,
            patch,
            tuple(each.candidate for each in sorted(shown, key=lambda each: each.score)),
            advice="" if patch == CROSS else advice,
        )

    def _inspirations(self, others: Sequence[Member], rng: Random) -> list[Member]:
        """The best of the run or any other of the island, and the best one left of the island.

        `database/inspirations.py`, `ArchiveInspirationSelector` with `num_archive_inspirations` 1,
        of which `elite_selection_ratio` leaves none to the elite, and `TopKInspirationSelector`
        with `num_top_k_inspirations` 1; `enforce_island_separation` keeps them on the island.
        """
        if not others:
            return []
        best = self.best
        first = best if best in others else min(others, key=lambda each: rng.random())
        left = [each for each in others if each != first]
        return [first, *([max(left, key=lambda each: each.score)] if left else [])]

    def land(
        self,
        island: int,
        landed: Candidate | None,
        text_of: TextOf,
        rng: Random,
        gains: Mapping[str, float] = NO_GAINS,
    ) -> None:
        """Count the child of its parent, and put a valid one on its parent's island.

        `database/dbase.py`, `add` and `_update_archive_fitness`; `database/islands.py`,
        `assign_island`. A full archive loses its worst for one that is not worse. Nobody migrates,
        as `migration_rate` is 0.
        """
        if landed is None:
            return
        self.num_landed += 1
        # the initial program may be outside on one island and in the archive on another one
        is_outside = any(name == landed.parent_id for _, name in self.outside[island])
        found = [each for each in self.archive if each.candidate == landed.parent_id]
        found.sort(key=lambda each: each.island != island)
        parent = found[0] if found and not is_outside else None
        if parent is not None:
            place = self.archive.index(parent)
            self.archive[place] = replace(parent, children=parent.children + 1)
        if not landed.is_valid:
            return
        home = parent.island if parent else island
        member = Member(landed.id, home, landed.score, self.num_landed)
        self.archive.append(member)
        if len(self.archive) > ARCHIVE_SIZE:
            worst = min(self.archive, key=lambda each: each.standing)
            self.archive.remove(worst)
            insort(self.outside[worst.island], (worst.landed, worst.candidate))

    def take_notes(self, insights: str, recommendations: Sequence[str]) -> None:
        """Replace the notes by those made of the unread programs.

        `core/summarizer.py`, `update_meta_memory`.
        """
        self.insights, self.recommendations = insights, [*recommendations]
        self.unread = []


def parent_weights(members: Sequence[Member]) -> list[float]:
    """The chance of each member to be the parent; they sum to one.

    `database/parents.py`, `WeightedSamplingStrategy`: a sigmoid of how many median deviations a
    score lies above the median, over one more than the children.
    """
    middle = median(each.score for each in members)
    scale = max(MIN_SCALE, median(abs(each.score - middle) for each in members))
    weights = [
        _sigmoid(SHARPNESS * (each.score - middle) / scale) / (1 + each.children)
        for each in members
    ]
    return [each / sum(weights) for each in weights]


def _sigmoid(x: float) -> float:
    # of the two forms the one whose power cannot overflow
    return 1 / (1 + exp(-x)) if x >= 0 else exp(x) / (1 + exp(x))


_POINT = re.compile(r"^\d+\.\s+", re.MULTILINE)


def numbered_points(reply: str) -> list[str]:
    """The points of a numbered list, without their numbers and what comes before the first.

    `core/summarizer.py`, `get_sampled_recommendation`.
    """
    return [each.rstrip("\n") for each in _POINT.split(reply.strip())[1:]]
