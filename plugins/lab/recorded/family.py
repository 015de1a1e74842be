"""A family of recorded worlds: one for each combination of what could decide an outcome.

The packaged world (`costada.plugins.lab.recorded.world`) makes one assumption about each of four
questions that the recordings leave open. A world of the family answers each in one of several
ways:

- What an outcome depends on: the `bins` of the parent's score, the ten attempts from the nearest
  `parent`, or those with the nearest parent and best program shown (`context`). Only in the last
  may a program be copied from the prompt.
- Whether attempts of a run depend on each other (`+runs`): half of a simulated run's attempts are
  drawn from those of one recorded run.
- What a tactic does: what the recorded attempts with one brought, or an uncertain share of that
  (`+prior`): in each simulated run none, half or all guided attempts are like recorded ones, the
  others like attempts without.
- Whether cost and gain go together (`+costs`): tokens are those of an attempt with the same
  outcome, or else of any attempt.

Recordings say next to nothing of attempts with no program beside the parent. A world is one of the
family without `+alone`; with it, such an attempt without a tactic draws as one beside a program
as good as the parent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, product
from math import inf
from random import Random

import numpy as np

from costada.evaluators.problem import Problem
from costada.plugins.lab.landscape.landscape import LABEL_TOKENS, Wording, call_tokens
from costada.plugins.lab.landscape.landscape_answers import (
    Advice,
    Evolution,
    Request,
    draw_evolution,
)
from costada.plugins.lab.recorded.table import (
    SHOWN_ROUNDING,
    Transition,
    recorded_guides,
    recorded_transitions,
)
from costada.plugins.lab.recorded.world import (
    EDGES,
    MAX_VARIANT,
    TACTICS,
    UNBIASED_METHOD,
    Weighted,
    program_text,
    recorded_problem,
    resampled_score,
    weighted_transitions,
)
from costada.values.candidate import Candidate
from costada.values.usage import Usage

BINS, PARENT, CONTEXT = "bins", "parent", "context"
RUNS, PRIOR, COSTS, ALONE = "+runs", "+prior", "+costs", "+alone"

NEAREST = 10
"""Attempts that an outcome is drawn from, and more where several are equally near."""

MIN_OF_RUN = 5
"""Attempts of a recorded run that a simulated one may draw from, at least."""

SHARE_OF_RUN = 0.5
"""Share of a simulated run's attempts that are drawn from one recorded run."""

EFFECTS = (0.0, 0.5, 1.0)
"""Shares of guided attempts that are like recorded ones, all equally likely."""


@dataclass(frozen=True, slots=True)
class World:
    """What a world of the family assumes.

    Attributes:
        matching: What an outcome depends on: `BINS`, `PARENT` or `CONTEXT`.
        depends_on_run: Whether attempts of a run depend on each other.
        has_prior: Whether the effect of tactics is uncertain.
        has_costs: Whether cost and gain go together.
        fills_prompts: Whether attempts without a tactic and with nothing shown beside the parent
            draw as those beside a program as good as the parent.
    """

    matching: str
    depends_on_run: bool = False
    has_prior: bool = False
    has_costs: bool = False
    fills_prompts: bool = False

    @property
    def name(self) -> str:
        """Its name, such as `context+runs`."""
        marks = zip(
            (RUNS, PRIOR, COSTS, ALONE),
            (self.depends_on_run, self.has_prior, self.has_costs, self.fills_prompts),
            strict=True,
        )
        return self.matching + "".join(mark for mark, is_on in marks if is_on)

    @property
    def effects(self) -> tuple[float, ...]:
        """The possible effects of tactics, all equally likely."""
        return EFFECTS if self.has_prior else (1.0,)


_NO_YES = (False, True)

FAMILY = tuple(
    World(matching, depends_on_run, has_prior, has_costs)
    for matching, depends_on_run, has_prior, has_costs in product(
        (BINS, PARENT, CONTEXT), _NO_YES, _NO_YES, _NO_YES
    )
)

FILLED = {
    world: replace(world, fills_prompts=True) for world in FAMILY if world.matching == CONTEXT
}
"""The same worlds with `+alone`, where the prompt counts."""

Outcomes = Sequence[tuple[float | None, float, Transition]]
"""Score (None: failed), probability and recorded attempt of each possible outcome."""


MAX_DRAWS = 20_000
"""Kept answers to what an attempt may be drawn from; each takes about a kilobyte."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Recorded attempts that one is drawn from, with the sums of their probabilities so far."""

    attempts: tuple[Transition, ...]
    shares: tuple[float, ...]
    cumulative: tuple[float, ...]


class Group:
    """Recorded attempts of one kind, and where their scores lie among all recorded ones."""

    def __init__(self, attempts: Sequence[Weighted], pool: Pool) -> None:
        self.attempts = tuple(attempts)
        known = [each.transition for each in attempts]
        parents = [each.parent_score or 0.0 for each in known]
        self._bins = np.array([pool.bin_of(each, known[0].is_guided) for each in parents])
        self._parents = np.array([pool.parent_place(each) for each in parents])
        self._shown = np.array([pool.shown_place(_shown(each)) for each in known])
        self._scale = pool.scale

    def near(self, matching: str, place: int, shown: int) -> list[Weighted]:
        """The attempts that are near enough to two places, at least one."""
        if matching == BINS:
            gaps = np.abs(self._bins - place)
            farthest = gaps.min()
        else:
            gaps = np.abs(self._parents - place) / self._scale
            if matching == CONTEXT:
                gaps = gaps + np.abs(self._shown - shown) / self._scale
            last = min(NEAREST, len(gaps)) - 1
            farthest = np.partition(gaps, last)[last]
        return [self.attempts[index] for index in np.flatnonzero(gaps <= farthest)]


class Pool:
    """Recorded attempts that a world draws from, each with how many it stands for."""

    def __init__(self, attempts: Sequence[Weighted]) -> None:
        self._attempts = tuple(attempts)
        known = [each.transition for each in attempts]
        self._parents = sorted(each.parent_score or 0.0 for each in known)
        self._shown = sorted(map(_shown, known))
        self._best = max(each.score for each in known if each.score is not None)
        self._groups: dict[tuple[bool, str | None], tuple[Group, Group | None, Group | None]] = {}
        self._tokens: dict[tuple[bool, str | None], tuple[Usage, ...]] = {}
        self._draws = lru_cache(maxsize=MAX_DRAWS)(self._found)
        self.runs = sorted({each.transition.run for each in attempts})
        self.scale = 2 * len(known)

    def bin_of(self, parent: float, is_guided: bool) -> int:
        """The number of the bin of a parent's score."""
        return bisect_right(EDGES[is_guided], parent)

    def parent_place(self, score: float) -> int:
        """Where a parent's score lies among recorded ones, in halves of an attempt."""
        return bisect_left(self._parents, score) + bisect_right(self._parents, score)

    def shown_place(self, score: float) -> int:
        """The same for the best score shown beside a parent."""
        return bisect_left(self._shown, score) + bisect_right(self._shown, score)

    def draws(
        self, matching: str, parent: float, shown: float, *, is_guided: bool, run: str | None = None
    ) -> Draws:
        """What an attempt is drawn from.

        Args:
            matching: What it depends on.
            parent: Score of its parent.
            shown: Best score of the other programs in its prompt, -inf without any.
            is_guided: Whether it is like recorded ones with a tactic.
            run: The recorded run that it is drawn from; None: all. All serve as well where the run
                has too few attempts of the kind.
        """
        is_binned = matching == BINS
        place = self.bin_of(parent, is_guided) if is_binned else self.parent_place(parent)
        shown_place = self.shown_place(shown) if matching == CONTEXT else 0
        return self._draws(matching, place, shown_place, is_guided, run)

    def outcomes(
        self, matching: str, parent: float, shown: float, *, is_guided: bool, run: str | None = None
    ) -> Outcomes:
        """What an attempt may bring, with the arguments of `draws`."""
        found = self.draws(matching, parent, shown, is_guided=is_guided, run=run)
        return [
            (self.carried(matching, parent, shown, each), share, each)
            for each, share in zip(found.attempts, found.shares, strict=True)
        ]

    def _found(
        self, matching: str, place: int, shown: int, is_guided: bool, run: str | None
    ) -> Draws:
        key = (is_guided, run)
        if key not in self._groups:
            self._groups[key] = self._grouped(is_guided, run)
        judged, failures, programs = self._groups[key]
        near = judged.near(matching, place, shown)
        lost = sum(each.weight for each in near if each.transition.score is None)
        failure_rate = lost / sum(each.weight for each in near)
        attempts: list[Transition] = []
        shares: list[float] = []
        for group, share in ((failures, failure_rate), (programs, 1.0 - failure_rate)):
            if share == 0.0 or group is None:
                continue
            drawn = group.near(matching, place, shown)
            total = sum(each.weight for each in drawn)
            attempts += [each.transition for each in drawn]
            shares += [share * each.weight / total for each in drawn]
        return Draws(tuple(attempts), tuple(shares), tuple(accumulate(shares)))

    def _grouped(
        self, is_guided: bool, run: str | None
    ) -> tuple[Group, Group | None, Group | None]:
        """What tells how often attempts fail, the failures, and the other attempts."""
        everywhere = [each for each in self._attempts if each.transition.is_guided is is_guided]
        own = [each for each in everywhere if run is None or each.transition.run == run]
        taken = own if len(own) >= MIN_OF_RUN else everywhere
        # EvoX keeps no failures, so its programs say nothing of how often attempts fail.
        judged = [each for each in taken if each.transition.method != UNBIASED_METHOD]
        kinds = []
        for has_failed in (True, False):
            own_kind, any_kind = (
                [each for each in among if (each.transition.score is None) is has_failed]
                for among in (taken, everywhere)
            )
            group = own_kind or any_kind
            kinds.append(Group(group, self) if group else None)
        return Group(judged or everywhere, self), kinds[0], kinds[1]

    def carried(
        self, matching: str, parent: float, shown: float, drawn: Transition
    ) -> float | None:
        """The score that a recorded attempt brings from another parent.

        Where the prompt counts, an improvement that scores no more than a program of its prompt
        moves the same share of the way towards the best one shown here, and brings nothing where
        none is better than the parent. One that scores more closes the same share of the gap from
        the best of parent and prompt to the best recorded score.
        """
        best = self._best
        if matching != CONTEXT or drawn.outcome != "improved":
            return resampled_score(parent, drawn, best)
        from_score, to_score = drawn.parent_score or 0.0, drawn.score or 0.0
        if drawn.exceeds_shown:
            start = max(from_score, drawn.best_shown_score or 0.0)
            now = max(parent, shown)
            return now + (to_score - start) / (best - start) * max(0.0, best - now)
        way = (drawn.best_shown_score or 0.0) - from_score
        share = min(1.0, (to_score - from_score) / way) if way > SHOWN_ROUNDING else 0.0
        return parent + share * max(0.0, shown - parent)

    def tokens(self, outcome: str | None, *, is_guided: bool) -> tuple[Usage, ...]:
        """The recorded tokens of calls without or with a tactic, of one outcome or of any."""
        key = (is_guided, outcome)
        if key not in self._tokens:
            same = (each.transition for each in self._attempts)
            self._tokens[key] = tuple(
                each.tokens
                for each in same
                if each.tokens is not None
                and each.is_guided is is_guided
                and outcome in (None, each.outcome)
            )
        return self._tokens[key]


def _shown(each: Transition) -> float:
    return -inf if each.best_shown_score is None else each.best_shown_score


@lru_cache(maxsize=1)
def recorded_pool() -> Pool:
    """The attempts of the packaged table."""
    return Pool(weighted_transitions(recorded_transitions()))


@dataclass(frozen=True, slots=True)
class FamilyAnswers:
    """The answers of one run in a world of the family.

    Attributes:
        world: The world.
        pool: The recorded attempts.
        run: The recorded run that attempts are drawn from; None without one.
        effect: Share of guided attempts that are like recorded ones.
    """

    world: World
    pool: Pool
    run: str | None
    effect: float

    @classmethod
    def of(cls, world: World, seed: int) -> FamilyAnswers:
        """The answers of the run with a seed."""
        rng, pool = Random(f"{world.matching}/{seed}"), recorded_pool()
        run, effect = rng.choice(pool.runs), rng.choice(EFFECTS)
        return cls(
            world,
            pool,
            run if world.depends_on_run else None,
            effect if world.has_prior else 1.0,
        )

    @property
    def problem(self) -> Problem:
        """The problem whose programs name their score."""
        return recorded_problem()

    def attempt(self, request: Request, rng: Random) -> tuple[str, Usage]:
        """A program with the outcome of a recorded attempt, and the tokens of a recorded call."""
        has_tactic = request.wording in (Wording.BREAKTHROUGH, Wording.REFINEMENT)
        is_guided = has_tactic and rng.random() < self.effect
        matching, parent, shown = self.world.matching, request.parent.score, request.best_other
        if self.world.fills_prompts and not (is_guided or request.other_scores):
            shown = parent
        found = self.pool.draws(
            matching,
            parent,
            shown,
            is_guided=is_guided,
            run=self.run if rng.random() < SHARE_OF_RUN else None,
        )
        drawn = rng.choices(found.attempts, cum_weights=found.cumulative)[0]
        score = self.pool.carried(matching, parent, shown, drawn)
        text = program_text(score, rng.randrange(1, MAX_VARIANT))
        return text, self._tokens(drawn, has_tactic, rng)

    def _tokens(self, drawn: Transition, has_tactic: bool, rng: Random) -> Usage:
        if self.world.has_costs and drawn.tokens is not None:
            return drawn.tokens
        outcome = drawn.outcome if self.world.has_costs else None
        return rng.choice(self.pool.tokens(outcome, is_guided=has_tactic))

    def with_score(self, code: str, score: float, rng: Random) -> str:
        """A program with that score."""
        return program_text(score, rng.randrange(1, MAX_VARIANT))

    def advise(self, mode: str, best: Candidate, rng: Random) -> Advice:
        """Three tactics of a recorded guide call."""
        return Advice((None,) * TACTICS, rng.choice(recorded_guides()))

    def label(self, rng: Random) -> Usage:
        """The tokens of the label call, those of the landscape."""
        return call_tokens(LABEL_TOKENS, rng)

    def evolve(self, shown: str, rng: Random) -> Evolution:
        """An evolution of EvoX, that of the landscape."""
        return draw_evolution(shown, rng)
