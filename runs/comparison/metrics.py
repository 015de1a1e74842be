"""What a run is worth: quality at a share of the budget, area under its curve, overshoot."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isclose
from statistics import fmean

from costada.controller.ledger import has_crossed
from costada.runs.comparison.outcome import Point, RunOutcome

CUTOFFS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the budget (q) at which quality is reported (Sec. 5.1)."""

ROUNDING = 1e-12
"""Largest relative difference of two sums of dollars that count as equal."""


def has_reached(dollars: float, spent: float) -> bool:
    """Return whether so many dollars were spent (C_t >= qB); equal but for rounding counts."""
    return has_crossed(dollars, spent) or isclose(dollars, spent, rel_tol=ROUNDING)


def point_at(outcome: RunOutcome, dollars: float) -> Point:
    """Return the run after the first completed iteration with so many dollars spent.

    The last iteration if it ended before; the initial program if it has none.
    """
    for point in outcome.points:
        if has_reached(dollars, point.spent):
            return point
    if outcome.points:
        return outcome.points[-1]
    return Point(0, 0.0, outcome.seed_score, outcome.seed_objective)


def crossing(outcome: RunOutcome, cutoff: float = 1.0) -> Point:
    """Return the run where it crosses a share of its budget (tau_q: first t with C_t >= qB).

    Args:
        outcome: The run.
        cutoff: The share (q), in (0, 1].
    """
    return point_at(outcome, cutoff * outcome.budget)


def best_score_at(outcome: RunOutcome, cutoff: float) -> float:
    """Return the best normalised score up to the crossing (BestScore@qB, Sec. 5.1)."""
    return crossing(outcome, cutoff).best_score


def objective_at(outcome: RunOutcome, cutoff: float) -> float | None:
    """Return the objective of the candidate that is best by score at the crossing.

    It need not improve with the cutoff where objective and score measure different things.
    """
    return crossing(outcome, cutoff).best_objective


def cost_at_crossing(outcome: RunOutcome) -> float:
    """Return the dollars charged when the run crossed its budget (C_tau; its mean is AvgCost)."""
    return crossing(outcome).spent


def overshoot_ratio(outcome: RunOutcome) -> float:
    """Return the share of the budget spent beyond it ((C_tau - B) / B).

    Negative for a run that ended within the budget.
    """
    return (cost_at_crossing(outcome) - outcome.budget) / outcome.budget


@dataclass(frozen=True, slots=True)
class Curve:
    """The best score so far over the share of the budget, as a step function.

    Attributes:
        shares: Where it steps, in [0, 1], first 0; the crossing of the budget is at 1.
        scores: Its value from there on.
    """

    shares: tuple[float, ...]
    scores: tuple[float, ...]

    def at(self, share: float) -> float:
        """Return the value at a share: each step is charged before its score counts."""
        return self.scores[bisect_right(self.shares, share) - 1]


def curve_of(outcome: RunOutcome) -> Curve:
    """Return the curve of a run up to its crossing; it goes on flat if it ended before."""
    shares, scores = [0.0], [outcome.seed_score]
    for point in outcome.points:
        is_over = has_reached(outcome.budget, point.spent)
        shares.append(1.0 if is_over else point.spent / outcome.budget)
        scores.append(point.best_score)
        if is_over:
            break
    return Curve(tuple(shares), tuple(scores))


def normalized_auc(outcome: RunOutcome) -> float:
    """Return the mean height of the curve over the budget (normalised AUC, Sec. 5.1).

    The score of the iteration that crosses the budget counts from there on, so it adds nothing.
    """
    curve = curve_of(outcome)
    ends = (*curve.shares[1:], 1.0)
    steps = zip(curve.scores, curve.shares, ends, strict=True)
    return fsum(score * (end - start) for score, start, end in steps)


def mean_at(curves: Sequence[Sequence[Curve]], share: float) -> float:
    """Return the mean over benchmarks of the mean over runs; one sequence per benchmark."""
    return fmean(fmean(curve.at(share) for curve in of_problem) for of_problem in curves)


def share_to_reach(curves: Sequence[Sequence[Curve]], score: float) -> float | None:
    """Return the smallest share of the budget at which the mean curve reaches a score, if any."""
    shares = sorted({share for some in curves for curve in some for share in curve.shares})
    first = bisect_left(shares, True, key=lambda share: mean_at(curves, share) >= score)
    return shares[first] if first < len(shares) else None
