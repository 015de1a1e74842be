"""A world that answers by resampling recorded attempts; docs/understand/recorded-world.md."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from costada.evaluators.problem import Problem
from costada.plugins.lab.landscape.landscape import LABEL_TOKENS, Wording, call_tokens
from costada.plugins.lab.landscape.landscape_answers import (
    Advice,
    Evolution,
    Request,
    draw_evolution,
)
from costada.plugins.lab.recorded.table import (
    ENTRY_POINT_MISSING,
    SCORE_DECIMALS,
    Transition,
    recorded_guides,
    recorded_transitions,
)
from costada.values.candidate import Candidate
from costada.values.evaluation import Evaluation, failed
from costada.values.usage import Usage

SEED_SCORE = 0.364237
"""Score of the recorded initial program."""

EDGES: Mapping[bool, tuple[float, ...]] = {
    False: (0.5, 0.8, 0.95, 0.99),
    True: (0.8, 0.95, 0.99),
}
"""Where bins of parent scores end, without and with a tactic: every bin holds ten attempts."""

MIN_TOKENS = 5
"""Recorded calls that a bin must hold for tokens to be drawn from it alone."""

TACTICS = 3
"""Tactics of a guide."""

UNBIASED_METHOD = "evox"
"""Method whose valid programs were all kept, and none of its failures."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A transition, and how many attempts it stands for, itself and those that were not kept."""

    transition: Transition
    weight: float


@dataclass(frozen=True, slots=True)
class Bin:
    """What came of the attempts from parents of similar scores, without or with a tactic.

    Attributes:
        failure_rate: Share of attempts that fail.
        failures: The failed attempts.
        programs: The valid ones.
        tokens: Recorded calls of failed (True) and of valid attempts (False).
    """

    failure_rate: float
    failures: tuple[Weighted, ...]
    programs: tuple[Weighted, ...]
    tokens: Mapping[bool, tuple[Usage, ...]]


@dataclass(frozen=True, slots=True)
class RecordedWorld:
    """What recorded attempts brought.

    Attributes:
        edges: Scores at which the bins without (False) and with a tactic (True) end.
        bins: The bins, by ascending scores.
        best_score: The best recorded score.
        guides: Tokens of the recorded guide calls.
    """

    edges: Mapping[bool, tuple[float, ...]]
    bins: Mapping[bool, tuple[Bin, ...]]
    best_score: float
    guides: tuple[Usage, ...]

    def bin_of(self, parent_score: float, *, is_guided: bool) -> Bin:
        """The bin that a parent's score falls into."""
        return self.bins[is_guided][bisect_right(self.edges[is_guided], parent_score)]


def world_of(
    transitions: Iterable[Transition],
    guides: Iterable[Usage],
    *,
    repairs_entry_points: bool = True,
    weighs_survivors: bool = True,
    uses_evox: bool = True,
    uses_capped: bool = False,
) -> RecordedWorld:
    """The world of a table.

    Args:
        transitions: The recorded attempts.
        guides: Tokens of the recorded guide calls.
        repairs_entry_points: Whether failures that the parser repairs are left out, as their score
            is not known; they are failures otherwise.
        weighs_survivors: Whether attempts stand for those that were not kept.
        uses_evox: Whether valid programs of EvoX count where no tactic is given.
        uses_capped: Whether runs count whose answers were cut off.

    Raises:
        ValueError: A bin would hold no attempt of known failure rate.
    """
    weighted = weighted_transitions(
        transitions,
        repairs_entry_points=repairs_entry_points,
        weighs_survivors=weighs_survivors,
        uses_evox=uses_evox,
        uses_capped=uses_capped,
    )
    bins = {
        is_guided: tuple(
            _bin(weighted, is_guided, place) for place in range(len(EDGES[is_guided]) + 1)
        )
        for is_guided in EDGES
    }
    scores = (each.transition.score for each in weighted)
    best = max(score for score in scores if score is not None)
    return RecordedWorld(EDGES, bins, best, tuple(guides))


def weighted_transitions(
    transitions: Iterable[Transition],
    *,
    repairs_entry_points: bool = True,
    weighs_survivors: bool = True,
    uses_evox: bool = True,
    uses_capped: bool = False,
) -> list[Weighted]:
    """The attempts that a world draws from, with the arguments of `world_of`."""
    taken = [
        each
        for each in transitions
        if (uses_capped or not each.is_capped)
        and (uses_evox or each.method != UNBIASED_METHOD)
        and not (repairs_entry_points and each.failure == ENTRY_POINT_MISSING)
    ]
    weights = survivor_weights(taken) if weighs_survivors else {}
    # After the weights, which also count attempts whose parent is not known.
    usable = [each for each in taken if each.parent_score is not None]
    return [Weighted(each, _weight(each, weights)) for each in usable]


WeightKey = tuple[bool, bool, str]
"""Whether all iterations of its run are known, whether it had a tactic, and its outcome."""


def survivor_weights(transitions: Sequence[Transition]) -> dict[WeightKey, float]:
    """How many attempts one stands for, by the shares that the logged runs kept.

    In a logged run, it stands for those of its kind whose parent is not known. In another run, it
    stands for those of its kind that were not kept as well.
    """
    logged = [each for each in transitions if each.is_logged]
    weights = dict[WeightKey, float]()
    for is_guided in (False, True):
        for outcome in ("failed", "valid", "improved"):
            kind = [x for x in logged if x.is_guided is is_guided and x.outcome == outcome]
            usable = sum(each.parent_score is not None for each in kind)
            stored = sum(each.is_stored for each in kind)
            weights[True, is_guided, outcome] = len(kind) / usable if usable else 1.0
            weights[False, is_guided, outcome] = len(kind) / stored if stored else 1.0
    return weights


def _weight(each: Transition, weights: Mapping[WeightKey, float]) -> float:
    if each.method == UNBIASED_METHOD:
        return 1.0
    return weights.get((each.is_logged, each.is_guided, each.outcome), 1.0)


def _bin(weighted: Sequence[Weighted], is_guided: bool, place: int) -> Bin:
    same_kind = [each for each in weighted if each.transition.is_guided is is_guided]
    inside = [each for each in same_kind if _place(each.transition) == place]
    failures = tuple(each for each in inside if each.transition.score is None)
    programs = tuple(each for each in inside if each.transition.score is not None)
    known = [each for each in programs if each.transition.method != UNBIASED_METHOD]
    if not (failures or known):
        raise ValueError(
            f"transitions: got none in bin {place} {'with' if is_guided else 'without'} a tactic,"
            " expected at least one outside EvoX"
        )
    # EvoX keeps no failures, so its programs say nothing of how often attempts fail.
    lost, kept = (sum(each.weight for each in group) for group in (failures, known))
    tokens = {
        has_failed: _tokens(inside, same_kind, has_failed=has_failed)
        for has_failed in (False, True)
    }
    return Bin(lost / (lost + kept), failures, programs, tokens)


def _place(each: Transition) -> int:
    score = 0.0 if each.parent_score is None else each.parent_score
    return bisect_right(EDGES[each.is_guided], score)


def _tokens(
    inside: Sequence[Weighted], same_kind: Sequence[Weighted], *, has_failed: bool
) -> tuple[Usage, ...]:
    """Recorded calls of a bin, of all bins where it has too few."""
    found, everywhere = (
        tuple(
            each.transition.tokens
            for each in group
            if each.transition.tokens is not None and (each.transition.score is None) is has_failed
        )
        for group in (inside, same_kind)
    )
    return found if len(found) >= MIN_TOKENS else everywhere


@lru_cache(maxsize=1)
def recorded_world() -> RecordedWorld:
    """The world of the packaged table."""
    return world_of(recorded_transitions(), recorded_guides())


@dataclass(frozen=True, slots=True)
class RecordedAnswers:
    """Draws every answer from recorded ones.

    The wording of a prompt, the mode of a guide and the programs shown make no difference.
    """

    world: RecordedWorld

    @property
    def problem(self) -> Problem:
        """The problem whose programs name their score."""
        return recorded_problem()

    def attempt(self, request: Request, rng: Random) -> tuple[str, Usage]:
        """A program with the outcome of a recorded attempt, and the tokens of a recorded call."""
        is_guided = request.wording in (Wording.BREAKTHROUGH, Wording.REFINEMENT)
        parent = request.parent.score
        place = self.world.bin_of(parent, is_guided=is_guided)
        has_failed = rng.random() < place.failure_rate
        group = place.failures if has_failed else place.programs
        drawn = rng.choices(group, [each.weight for each in group])[0].transition
        tokens = drawn.tokens or rng.choice(place.tokens[has_failed])
        variant = rng.randrange(1, MAX_VARIANT)
        score = resampled_score(parent, drawn, self.world.best_score)
        return program_text(score, variant), tokens

    def with_score(self, code: str, score: float, rng: Random) -> str:
        """A program with that score."""
        return program_text(score, rng.randrange(1, MAX_VARIANT))

    def advise(self, mode: str, best: Candidate, rng: Random) -> Advice:
        """Three tactics of a recorded guide call."""
        return Advice((None,) * TACTICS, rng.choice(self.world.guides))

    def label(self, rng: Random) -> Usage:
        """The tokens of the label call, those of the landscape."""
        return call_tokens(LABEL_TOKENS, rng)

    def evolve(self, shown: str, rng: Random) -> Evolution:
        """An evolution of EvoX, that of the landscape."""
        return draw_evolution(shown, rng)


def resampled_score(parent: float, drawn: Transition, best: float) -> float | None:
    """The score that a recorded attempt brings from another parent, None where it fails.

    An improvement closes the share of the gap to the best recorded score that the recorded one
    closed. Any other program keeps the share of its parent's score.
    """
    if drawn.score is None:
        return None
    if drawn.parent_score is None:
        raise ValueError(f"parent_score: got none in {drawn}, expected the recorded score")
    if drawn.outcome == "improved":
        share = (drawn.score - drawn.parent_score) / (best - drawn.parent_score)
        return parent + share * max(0.0, best - parent)
    # the share first: it is at most 1, so rounding cannot lift the score above the parent's
    return parent * (drawn.score / drawn.parent_score)


PROGRAM = re.compile(r"recorded\(score=(?P<score>\d\.\d{6}|failed), variant=\d{1,6}\)\n", re.ASCII)
FAILED = "failed"
MAX_VARIANT = 1_000_000


def program_text(score: float | None, variant: int) -> str:
    """The program of a score; the variant only tells programs apart."""
    shown = FAILED if score is None else f"{score:.{SCORE_DECIMALS}f}"
    return f"recorded(score={shown}, variant={variant})\n"


def evaluate(code: str) -> Evaluation:
    """The score that a program names."""
    match = PROGRAM.fullmatch(code)
    if match is None:
        return failed("program: expected one of the recorded world")
    if match["score"] == FAILED:
        return failed("the recorded program failed")
    score = float(match["score"])
    return Evaluation(score=score, objective=score, is_valid=True)


@lru_cache(maxsize=1)
def recorded_problem() -> Problem:
    """The problem of the recorded world; its programs are read and never executed."""
    return Problem(
        name="recorded",
        task="Outcomes of recorded attempts at circle packing. A program names its score.",
        initial_program=program_text(SEED_SCORE, 0),
        evaluate=evaluate,
        reference=1.0,
        seed_objective=SEED_SCORE,
        source="resampled from recordings; docs/understand/recorded-world.md",
    )
