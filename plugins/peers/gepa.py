"""The pool of GEPA: parents from the Pareto front over examples and objectives.

The rules and the numbers in capitals are those of the package `gepa` 0.1.4 from PyPI, at the
defaults of its entry point for programs, `optimize_anything`. Each docstring names the file and the
function in which a rule stands there.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Self

from costada.plugins.peers.peer_search import NO_GAINS, Choice, TextOf
from costada.values.candidate import Candidate
from costada.values.example_score import scores_by_place

MINIBATCH = 3
"""Examples on which a child has to beat its parent; without a data set it is the only one."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A candidate of the pool.

    Attributes:
        id: Its id.
        scores: Its score on each example; without a data set, its score alone.
        gains: Its value in each objective, by name; higher is better.
    """

    id: str
    scores: tuple[float, ...]
    gains: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Its mean score (`core/state.py`, `per_program_tracked_scores`)."""
        return sum(self.scores) / len(self.scores)


@dataclass(slots=True)
class Pool:
    """The accepted candidates, and the examples of the next minibatch; changed by `land`.

    Attributes:
        members: The candidates, in the order of their acceptance.
        iterations: Steps that have landed.
        epoch: How often all examples have been drawn; -1 before the first time.
        shuffled: The examples of this epoch, in the order in which they are drawn.
    """

    members: list[Accepted]
    iterations: int = 0
    epoch: int = -1
    shuffled: list[int] = field(default_factory=list)

    @classmethod
    def begin(
        cls, seed: Candidate, text_of: TextOf, rng: Random, gains: Mapping[str, float] = NO_GAINS
    ) -> Self:
        """The pool with the initial program, which beats nobody (`core/engine.py`, `run`)."""
        scores = scores_by_place(seed.examples) or (seed.score,)
        return cls([Accepted(seed.id, scores, dict(gains))])

    def to_json(self) -> str:
        """The pool as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The pool that a text describes."""
        plain = json.loads(text)
        members = [{**each, "scores": tuple(each["scores"])} for each in plain.pop("members")]
        return cls([Accepted(**each) for each in members], **plain)

    def choose(self, island: int, text_of: TextOf, rng: Random) -> Choice:
        """A parent of the front, shown alone, drawn by the number of places it holds.

        `gepa_utils.py`, `select_program_candidate_from_pareto_front`.
        """
        places = sorted(parent_places(self.members))
        return Choice(self.members[rng.choice(places)].id, "pareto")

    def land(
        self,
        island: int,
        landed: Candidate | None,
        text_of: TextOf,
        rng: Random,
        gains: Mapping[str, float] = NO_GAINS,
    ) -> None:
        """Accept a child that beats its parent on the minibatch of the step.

        `strategies/acceptance.py`, `StrictImprovementAcceptance`. One whose parent is not of the
        pool, as a user may submit, needs to beat nobody.
        """
        batch = self._minibatch(rng)
        self.iterations += 1
        num_examples = len(self.members[0].scores)
        if landed is None or not landed.is_valid:
            return
        scores = scores_by_place(landed.examples) or (landed.score,)
        if len(scores) < num_examples:
            return
        parents = [each for each in self.members if each.id == landed.parent_id]
        if all(_sum_of(batch, scores) > _sum_of(batch, each.scores) for each in parents):
            self.members.append(Accepted(landed.id, scores, dict(gains)))

    def _minibatch(self, rng: Random) -> list[int]:
        """The next examples of the epoch; all are shuffled when a new one begins.

        `strategies/batch_sampler.py`, `EpochShuffledBatchSampler`: what lacks to the last minibatch
        are the examples drawn least, the last of them first.
        """
        num_examples = len(self.members[0].scores)
        size = MINIBATCH if num_examples > 1 else 1
        start = self.iterations * size
        epoch = 0 if self.epoch == -1 else start // len(self.shuffled)
        if epoch > self.epoch:
            self.epoch, self.shuffled = epoch, [*range(num_examples)]
            rng.shuffle(self.shuffled)
            drawn = Counter(self.shuffled)
            while len(self.shuffled) % size:
                least = drawn.most_common()[-1][0]
                self.shuffled.append(least)
                drawn[least] += 1
        start %= len(self.shuffled)
        return self.shuffled[start : start + size]


def _sum_of(batch: Sequence[int], scores: Sequence[float]) -> float:
    return sum(scores[place] for place in batch)


def fronts(members: Sequence[Accepted]) -> list[list[int]]:
    """The members that are best on each example, then in each objective, as indices.

    `core/state.py`, `_update_pareto_front_for_val_id` and `_update_objective_pareto_front`, of the
    frontier type `hybrid`.
    """
    names = dict.fromkeys(name for each in members for name in each.gains)
    values: list[list[float | None]] = [
        [each.scores[place] for each in members] for place in range(len(members[0].scores))
    ]
    values += [[each.gains.get(name) for each in members] for name in names]
    best = [max(each for each in column if each is not None) for column in values]
    return [
        [index for index, value in enumerate(column) if value == most]
        for column, most in zip(values, best, strict=True)
    ]


def without_dominated(members: Sequence[Accepted]) -> list[list[int]]:
    """The fronts without the members that others make superfluous.

    `gepa_utils.py`, `remove_dominated_programs`: superfluous is who meets another one that is left
    on each front it is on; the lowest mean goes first.
    """
    all_fronts = fronts(members)
    found = dict.fromkeys(index for front in all_fronts for index in front)
    left = sorted(found, key=lambda index: members[index].mean)
    while True:
        superfluous = [index for index in left if _is_dominated(index, left, all_fronts)]
        if not superfluous:
            return [[index for index in front if index in left] for front in all_fronts]
        left.remove(superfluous[0])


def _is_dominated(index: int, left: Sequence[int], all_fronts: Sequence[Sequence[int]]) -> bool:
    own = [front for front in all_fronts if index in front]
    return all(any(other in left and other != index for other in front) for front in own)


def parent_places(members: Sequence[Accepted]) -> list[int]:
    """The members left on the fronts, each as often as it is on one."""
    return [index for front in without_dominated(members) for index in front]
