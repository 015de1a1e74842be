"""Metrics of a run: quality at a share of the budget, area under its curve, overshoot."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import fsum, isclose
from statistics import fmean

import numpy as np

from costada.controller.credit import has_crossed
from costada.evaluators.scoring import TARGET_TOLERANCE, normalize
from costada.values.evaluation import Direction

BUDGET_AT_START = "budget_at_start"
"""Fact of a run that began with another budget than it has now."""


@dataclass(frozen=True, slots=True)
class Point:
    """The run after one iteration."""

    iteration: int  # completed (t)
    spent: float  # dollars the ledger shows (C_t)
    best_score: float  # y_t
    # objective of the candidate with that score, in the benchmark's units
    best_objective: float | None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One finished run."""

    problem: str
    method: str
    model: str
    seed: int  # where its randomness started; runs of different methods are paired by it
    budget: float  # dollars (B)
    seed_score: float  # score of the initial program (y_0)
    seed_objective: float | None  # None if it has none
    is_minimized: bool
    points: tuple[Point, ...]  # one per iteration, in order
    # dollars of its calls, by role
    dollars_by_role: Mapping[str, float] = field(default_factory=dict)
    # whether too many attempts in a row without a usable program ended it
    has_given_up: bool = False
    # what distinguishes problems of the same name, as texts by name
    problem_facts: Mapping[str, str] = field(default_factory=dict)
    # other facts that affect its result, as texts by name
    settings: Mapping[str, str] = field(default_factory=dict)
    place: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Hash of all facts that affect the result; equal for the same run."""
        apart = (self.problem, self.model, self.method, self.seed, self.budget)
        return digest([*apart, dict(self.problem_facts), dict(self.settings)])


def digest(facts: object) -> str:
    """The hash of plain values."""
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


RESAMPLES = 5_000
CONFIDENCE = 0.95
RANDOM_SEED = 20_250_101
"""Fixed, so that the same runs always have the same intervals."""

MIN_VALUES = 2
"""Values of a stratum that can be resampled."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile bootstrap interval at `CONFIDENCE`."""

    low: float
    high: float


def mean_interval(strata: Sequence[Sequence[float]]) -> Interval | None:
    """The interval of the mean over strata of the mean in each.

    A stratum holds the values of one benchmark, one per seed, and is resampled by itself. For a
    paired comparison the values are the differences between two runs of the same seed. Without
    strata, or with fewer than two values in one, there is no interval.
    """
    from scipy.stats import bootstrap

    if not strata or min(map(len, strata)) < MIN_VALUES:
        return None
    found = bootstrap(
        strata,  # not paired: each is resampled by itself
        lambda *resampled, axis: np.mean([each.mean(axis) for each in resampled], axis=0),
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        # BCa is undefined where all values are equal.
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(RANDOM_SEED),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


CUTOFFS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the budget (q) at which quality is reported (Sec. 5.1)."""

ROUNDING = 1e-12
"""Largest relative difference of two sums of dollars that count as equal."""


def has_reached(dollars: float, spent: float) -> bool:
    """Whether so many dollars were spent (C_t >= qB); equal but for rounding counts."""
    return has_crossed(dollars, spent) or isclose(dollars, spent, rel_tol=ROUNDING)


def point_at(outcome: RunOutcome, dollars: float) -> Point:
    """The run after the first completed iteration with so many dollars spent.

    The last iteration if it ended before; the initial program if it has none.
    """
    for point in outcome.points:
        if has_reached(dollars, point.spent):
            return point
    if outcome.points:
        return outcome.points[-1]
    return Point(0, 0.0, outcome.seed_score, outcome.seed_objective)


def crossing(outcome: RunOutcome, cutoff: float = 1.0) -> Point:
    """The run where it crosses a share q of its budget (tau_q: first t with C_t >= qB)."""
    return point_at(outcome, cutoff * outcome.budget)


def best_score_at(outcome: RunOutcome, cutoff: float) -> float:
    """The best normalised score up to the crossing (BestScore@qB, Sec. 5.1)."""
    return crossing(outcome, cutoff).best_score


def objective_at(outcome: RunOutcome, cutoff: float) -> float | None:
    """The objective of the candidate that is best by score at the crossing.

    It need not improve with the cutoff where objective and score measure different things.
    """
    return crossing(outcome, cutoff).best_objective


def cost_at_crossing(outcome: RunOutcome) -> float:
    """The dollars charged when the run crossed its budget (C_tau; its mean is AvgCost)."""
    return crossing(outcome).spent


def target_score(outcome: RunOutcome) -> float | None:
    """The score of the target at which a run ends; `None` if it has none."""
    target, reference = outcome.settings.get("target"), outcome.problem_facts.get("reference")
    if target is None:
        return None
    direction = Direction.MINIMIZE if outcome.is_minimized else Direction.MAXIMIZE
    goal = normalize(float(target), None if reference is None else float(reference), direction)
    return goal - TARGET_TOLERANCE * abs(goal)


def dollars_to_reach(outcome: RunOutcome, score: float) -> float:
    """The dollars spent when the best score reached one, at most the budget.

    The whole budget for a run that did not reach it.
    """
    if outcome.seed_score >= score:
        return 0.0
    reached = (point.spent for point in outcome.points if point.best_score >= score)
    return min(next(reached, outcome.budget), outcome.budget)


def overshoot_ratio(outcome: RunOutcome) -> float:
    """The share of the budget spent beyond it ((C_tau - B) / B).

    Negative for a run that ended within the budget.
    """
    return (cost_at_crossing(outcome) - outcome.budget) / outcome.budget


@dataclass(frozen=True, slots=True)
class Curve:
    """The best score so far over the share of the budget, as a step function."""

    # where it steps, in [0, 1], first 0; the crossing of the budget is at 1
    shares: tuple[float, ...]
    scores: tuple[float, ...]  # its value from there on

    def at(self, share: float) -> float:
        """The value at a share: each step is charged before its score counts."""
        return self.scores[bisect_right(self.shares, share) - 1]


def curve_of(outcome: RunOutcome) -> Curve:
    """The curve of a run up to its crossing; flat after an earlier end."""
    shares, scores = [0.0], [outcome.seed_score]
    for point in outcome.points:
        is_over = has_reached(outcome.budget, point.spent)
        # The dollars beyond the budget lie outside of the curve, which ends at 1.
        shares.append(1.0 if is_over else point.spent / outcome.budget)
        scores.append(point.best_score)
        if is_over:
            break
    return Curve(tuple(shares), tuple(scores))


def normalized_auc(outcome: RunOutcome) -> float:
    """The mean height of the curve over the budget (normalised AUC, Sec. 5.1).

    The score of the iteration that crosses the budget counts from there on, so it adds nothing.
    """
    curve = curve_of(outcome)
    ends = (*curve.shares[1:], 1.0)
    steps = zip(curve.scores, curve.shares, ends, strict=True)
    return fsum(score * (end - start) for score, start, end in steps)


def mean_at(curves: Sequence[Sequence[Curve]], share: float) -> float:
    """The mean over benchmarks of the mean over runs; one sequence per benchmark."""
    return fmean(fmean(curve.at(share) for curve in of_problem) for of_problem in curves)


def share_to_reach(curves: Sequence[Sequence[Curve]], score: float) -> float | None:
    """The smallest share of the budget at which the mean curve reaches a score, if any."""
    shares = sorted({share for some in curves for curve in some for share in curve.shares})
    # No best score ever falls, nor does their mean, so a binary search finds the first share.
    first = bisect_left(shares, True, key=lambda share: mean_at(curves, share) >= score)
    return shares[first] if first < len(shares) else None
