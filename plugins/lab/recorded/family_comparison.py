"""Methods compared over the family of recorded worlds, by docs/results/plan.md.

Runs of one method and of the baseline with equal seeds are paired in each world. The difference of
two methods over the family is the mean of the worlds' differences by weight. Its interval draws a
world by weight and then seeds in it, so that it holds how little is known about the world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean

import numpy as np

from costada.experiments.comparison.metrics import (
    CONFIDENCE,
    RANDOM_SEED,
    RESAMPLES,
    Interval,
    RunOutcome,
    best_score_at,
    dollars_to_reach,
    mean_interval,
    normalized_auc,
    overshoot_ratio,
)
from costada.plugins.lab.landscape.simulation import simulate_run
from costada.plugins.lab.recorded.family import FAMILY, World
from costada.plugins.lab.recorded.world_scores import is_credible

AUC, FINAL_SCORE, TO_95, TO_99, OVERSHOOT = "AUC", "final score", "$ to 0.95", "$ to 0.99", "over"

METRICS: Mapping[str, Callable[[RunOutcome], float]] = {
    AUC: normalized_auc,
    FINAL_SCORE: partial(best_score_at, cutoff=1.0),
    TO_95: partial(dollars_to_reach, score=0.95),
    TO_99: partial(dollars_to_reach, score=0.99),
    OVERSHOOT: overshoot_ratio,
}
"""What is measured of a run; the first is what methods are judged by."""


@dataclass(frozen=True, slots=True)
class FamilyBatch:
    """The runs of a comparison: every method with every seed in every world."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    budget: float  # dollars of each run (B)
    worlds: tuple[World, ...] = FAMILY

    @property
    def runs(self) -> list[tuple[str, World, int]]:
        """Method, world and seed of each run, seed by seed."""
        return [
            (method, world, seed)
            for seed, world, method in product(self.seeds, self.worlds, self.methods)
        ]


Measured = Mapping[tuple[str, World, int], Sequence[float]]
"""The metrics of each run, in the order of `METRICS`."""


def measure(
    run: tuple[str, World, int], budget: float
) -> tuple[tuple[str, World, int], tuple[float, ...]]:
    """The metrics of a run."""
    method, world, seed = run
    outcome = simulate_run(method, seed, budget, world=world.name)
    return run, tuple(metric(outcome) for metric in METRICS.values())


@dataclass(frozen=True, slots=True)
class InWorld:
    """How far a method is ahead of another one in a world, paired by seed."""

    mean: float
    interval: Interval | None  # None for a single seed


@dataclass(frozen=True, slots=True)
class Judgement:
    """How far a method is ahead of another one over the family.

    Attributes:
        mean: Mean of the worlds' differences, by weight.
        interval: The middle 95 % of the resampled differences, over worlds and seeds.
        p_value: Two-sided: twice the share of resampled differences on the smaller side of 0.
        in_credible: The difference in each credible world, the heaviest first.
    """

    mean: float
    interval: Interval
    p_value: float
    in_credible: Mapping[World, InWorld]

    @property
    def worst(self) -> World:
        """The credible world in which the method is least ahead."""
        return min(self.in_credible, key=lambda world: self.in_credible[world].mean)

    @property
    def in_worst(self) -> float:
        """The difference there."""
        return self.in_credible[self.worst].mean


def judge(
    differences: Mapping[World, Sequence[float]], world_weights: Mapping[World, float]
) -> Judgement:
    """Compare two methods over the family.

    Args:
        differences: The differences of their runs with equal seeds, by world.
        world_weights: The weight of each of these worlds.
    """
    weights = {world: world_weights[world] for world in differences}
    total = sum(weights.values())
    rng = np.random.default_rng(RANDOM_SEED)
    counts = rng.multinomial(RESAMPLES, [weight / total for weight in weights.values()])
    resampled = np.sort(
        np.concatenate(
            [
                rng.choice(values, (count, len(values))).mean(axis=1)
                for values, count in zip(differences.values(), counts, strict=True)
            ]
        )
    )
    tail = round(RESAMPLES * (1.0 - CONFIDENCE) / 2)
    smaller_side = int(min(np.sum(resampled <= 0.0), np.sum(resampled >= 0.0)))
    credible = [world for world in weights if is_credible(weights[world], [*weights.values()])]
    return Judgement(
        mean=sum(weights[world] * fmean(values) for world, values in differences.items()) / total,
        interval=Interval(float(resampled[tail]), float(resampled[-1 - tail])),
        p_value=min(1.0, 2 * (1 + smaller_side) / (1 + RESAMPLES)),
        in_credible={
            world: InWorld(fmean(differences[world]), mean_interval([differences[world]]))
            for world in sorted(credible, key=weights.__getitem__, reverse=True)
        },
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """The p-values of several comparisons, corrected by Holm's step-down rule."""
    corrected, highest = dict[str, float](), 0.0
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[name]))
        corrected[name] = highest
    return corrected


MAX_LOSS, MAX_CLOSE_LOSS, CLOSE = 0.005, 0.02, 0.01
"""What a better method may lose in the worst credible world, what one that is as good may lose
there, and how far from 0 its interval may reach."""


def verdict(found: Judgement, corrected: float) -> str:
    """What the plan calls a difference.

    Args:
        found: A method against the baseline.
        corrected: Its p-value after the correction for several methods.
    """
    gaps = [each.mean for each in found.in_credible.values()]
    if corrected < 1.0 - CONFIDENCE and found.mean > 0.0 and min(gaps) >= -MAX_LOSS:
        return "better"
    if corrected < 1.0 - CONFIDENCE and found.mean < 0.0 and max(gaps) <= MAX_LOSS:
        return "worse"
    is_close = max(-found.interval.low, found.interval.high) <= CLOSE
    return "as good" if is_close and min(gaps) >= -MAX_CLOSE_LOSS else "not distinguished"


def judgements(
    measured: Measured,
    batch: FamilyBatch,
    world_weights: Mapping[World, float],
    baseline: str,
    metric: str = AUC,
) -> dict[str, Judgement]:
    """Every other method of a batch against the baseline."""
    place = list(METRICS).index(metric)
    return {
        method: judge(
            {
                world: [
                    measured[method, world, seed][place] - measured[baseline, world, seed][place]
                    for seed in batch.seeds
                ]
                for world in batch.worlds
            },
            world_weights,
        )
        for method in batch.methods
        if method != baseline
    }


def weighted_means(
    measured: Measured, batch: FamilyBatch, world_weights: Mapping[World, float], method: str
) -> list[float]:
    """The mean of each metric of a method over seeds, and over worlds by weight."""
    total = sum(world_weights[world] for world in batch.worlds)
    return [
        sum(
            world_weights[world]
            * fmean(measured[method, world, seed][place] for seed in batch.seeds)
            for world in batch.worlds
        )
        / total
        for place in range(len(METRICS))
    ]
