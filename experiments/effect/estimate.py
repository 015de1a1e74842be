"""The effect of a part of the method, from tosses whose probabilities are known.

A toss has an outcome: what the steps that belong to it brought and cost. Its weight is one over the
probability of its arm, so that every toss stands for itself in both arms (Horvitz and Thompson,
"A Generalization of Sampling Without Replacement from a Finite Universe", 1952). The rate of an arm
is the weighted sum of what was brought over that of what was paid (Hajek, comment in "Foundations
of Statistical Inference", 1971); the effect is the difference of the two rates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf, sqrt
from statistics import NormalDist

LEVEL, POWER = 0.05, 0.8
"""Two-sided level of a test and of its interval, and the power that a settled effect needs."""

FEW_JUMPS = 10
"""Jumps of both arms together below which an interval is not to be trusted: five that happen to be
all of one arm are an accident of once in sixteen."""


@dataclass(frozen=True, slots=True)
class TossOutcome:
    """What the steps that belong to a toss brought and cost.

    Attributes:
        arm: What was tossed.
        probability: The probability of that arm, in (0, 1].
        gain: How far the best score rose in the steps that belong to the toss, at least 0.
        dollars: What these steps cost.
        steps: Their number.
        jumps: How many of them raised the best score by more than the threshold of progress.

    Raises:
        ValueError: The probability is not in (0, 1].
    """

    arm: str
    probability: float
    gain: float
    dollars: float
    steps: int
    jumps: int

    def __post_init__(self) -> None:
        if not 0.0 < self.probability <= 1.0:
            raise ValueError(
                f"probability: got {self.probability} for arm {self.arm!r}, expected above 0, at"
                " most 1"
            )


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate that arms are compared by: the sum of one quantity over that of another."""

    name: str
    brought: Callable[[TossOutcome], float]
    paid: Callable[[TossOutcome], float]


GAIN_PER_DOLLAR = Rate("gain per dollar", lambda each: each.gain, lambda each: each.dollars)
JUMP_RATE = Rate("jump rate", lambda each: each.jumps, lambda each: each.steps)
RATES = (GAIN_PER_DOLLAR, JUMP_RATE)

Run = Sequence[TossOutcome]
"""The tosses of one run."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The difference of two arms in a rate.

    Attributes:
        rate: Name of the rate.
        of_arm: The rate of each arm, that with the part of the method first.
        difference: The first minus the second.
        deviation: Standard error of the difference; `None` where there is no interval.
        interval: Of the difference at 1 - `LEVEL`; `None` where the data allow none.
        no_interval: Why there is none; empty if there is one.
        is_within_run: Whether the interval is over the tosses of the only run.
        has_few_jumps: Whether there are fewer than `FEW_JUMPS` jumps in all.
        dollars_more: Dollars of further runs that would settle an effect of this size, at least
            those of one; 0 if the interval excludes 0, infinite if the difference is 0, `None`
            without an interval or with few jumps.
    """

    rate: str
    of_arm: Mapping[str, float]
    difference: float
    deviation: float | None
    interval: tuple[float, float] | None
    no_interval: str
    is_within_run: bool
    has_few_jumps: bool
    dollars_more: float | None

    @property
    def is_settled(self) -> bool:
        """Whether the interval excludes 0, with enough jumps to trust it."""
        return self.dollars_more == 0.0


def effect_of(runs: Sequence[Run], arms: tuple[str, str], rate: Rate, dollars: float) -> Effect:
    """The effect of a part of the method on a rate, clustered by run.

    Args:
        runs: The tosses of each run.
        arms: The arm with the part, and the one without.
        rate: What is compared.
        dollars: What all runs have cost, also steps that belong to no toss.

    Raises:
        ValueError: An arm never came up, or its steps cost nothing.
    """
    tossed = [run for run in runs if run]
    sums = [_Sums.of(run, arms, rate) for run in tossed]
    total = _Sums.total(sums)
    for arm, paid in zip(arms, total.paid, strict=True):
        if not any(each.arm == arm for run in tossed for each in run):
            raise ValueError(f"arm {arm!r} never came up, expected tosses of both arms")
        if paid <= 0:
            raise ValueError(f"the steps of arm {arm!r} cost nothing, expected dollars")
    is_within_run = len(tossed) == 1
    if is_within_run:
        sums = [_Sums.of([each], arms, rate) for each in tossed[0]]
    deviation, reason = _deviation(sums, total, "toss" if is_within_run else "run")
    difference = total.difference
    interval = None
    if deviation is not None:
        half = t_quantile(1.0 - LEVEL / 2.0, len(sums) - 1) * deviation
        interval = difference - half, difference + half
    has_few_jumps = sum(each.jumps for run in tossed for each in run) < FEW_JUMPS
    more = None
    if deviation is not None and interval is not None and not has_few_jumps:
        is_excluded = not interval[0] <= 0.0 <= interval[1]
        needed = clusters_to_settle(difference, deviation, len(sums))
        more = 0.0 if is_excluded else dollars * (needed / len(sums) - 1.0)
    return Effect(
        rate=rate.name,
        of_arm=dict(zip(arms, total.rates, strict=True)),
        difference=difference,
        deviation=deviation,
        interval=interval,
        no_interval=reason,
        is_within_run=is_within_run,
        has_few_jumps=has_few_jumps,
        dollars_more=more,
    )


def clusters_to_settle(difference: float, deviation: float, clusters: int) -> float:
    """Runs, or tosses of the only run, with which a test finds a difference of this size.

    The variance of the difference falls as they rise in number. A two-sided normal test at `LEVEL`
    has `POWER` once the difference is `z(1 - LEVEL / 2) + z(POWER)` standard errors; Student's t
    needs `z(1 - LEVEL / 2)^2 / 2` more (Guenther, "Sample Size Formulas for Normal Theory T Tests",
    1981). It is at least one more than there are.

    Args:
        difference: Assumed to be the true one.
        deviation: Standard error of its estimate.
        clusters: How many are behind the estimate.
    """
    if difference == 0.0:
        return inf
    normal = NormalDist()
    quantile = normal.inv_cdf(1.0 - LEVEL / 2.0)
    ratio = (quantile + normal.inv_cdf(POWER)) * deviation / abs(difference)
    return max(clusters + 1.0, clusters * ratio * ratio + quantile * quantile / 2.0)


def t_quantile(share: float, degrees: int) -> float:
    """A quantile of Student's t distribution."""
    # not of scipy.stats, whose import takes a second
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))


@dataclass(frozen=True, slots=True)
class _Sums:
    """Weighted sums of a cluster by arm: what was brought, and what was paid."""

    brought: tuple[float, float]
    paid: tuple[float, float]

    @classmethod
    def of(cls, outcomes: Run, arms: tuple[str, str], rate: Rate) -> _Sums:
        def weighted(quantity: Callable[[TossOutcome], float]) -> tuple[float, float]:
            first, second = (
                fsum(quantity(each) / each.probability for each in outcomes if each.arm == arm)
                for arm in arms
            )
            return first, second

        return cls(weighted(rate.brought), weighted(rate.paid))

    @classmethod
    def total(cls, sums: Sequence[_Sums]) -> _Sums:
        def added(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
            return fsum(first for first, _ in parts), fsum(second for _, second in parts)

        return cls(added([each.brought for each in sums]), added([each.paid for each in sums]))

    def without(self, other: _Sums) -> _Sums:
        (first, second), (third, fourth) = self.brought, other.brought
        (one, two), (three, four) = self.paid, other.paid
        return _Sums((first - third, second - fourth), (one - three, two - four))

    @property
    def rates(self) -> tuple[float, float]:
        """The rate of each arm."""
        first, second = (
            brought / paid for brought, paid in zip(self.brought, self.paid, strict=True)
        )
        return first, second

    @property
    def difference(self) -> float:
        """The first rate minus the second."""
        first, second = self.rates
        return first - second


def _deviation(sums: Sequence[_Sums], total: _Sums, cluster: str) -> tuple[float | None, str]:
    """Standard error of the difference of two rates, or why it is not known.

    The jackknife over clusters: the cluster-robust variance (Liang and Zeger, "Longitudinal Data
    Analysis Using Generalized Linear Models", 1986) in the form that is less biased with few of
    them (Bell and McCaffrey, "Bias Reduction in Standard Errors for Linear Regression with
    Multi-Stage Samples", 2002). Outcomes within a cluster may depend on each other.
    """
    count = len(sums)
    if not any(total.brought):
        return None, "no step that belongs to a toss raised the best score"
    if min(sum(each.paid[arm] > 0 for each in sums) for arm in (0, 1)) < 2:
        return None, f"an arm came up in one {cluster} only"
    differences = [total.without(each).difference for each in sums]
    mean = fsum(differences) / count
    spread = fsum((each - mean) ** 2 for each in differences)
    return sqrt((count - 1) / count * spread), ""
