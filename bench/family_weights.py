"""The weights of the recorded worlds, for the comparisons over them."""

from collections.abc import Callable, Sequence
from multiprocessing import Pool
from typing import TypeVar

from costada.plugins.lab.recorded.family import FAMILY, World
from costada.plugins.lab.recorded.world_scores import (
    SCORING_SEEDS,
    compared_run,
    is_credible,
    scored_family,
    scoring_runs,
    weights,
)

Key, Value = TypeVar("Key"), TypeVar("Value")

FIRST_SEED, SEEDS = 200, 200
"""The seeds that decide, by docs/results/plan.md."""


def made_by(
    work: Callable[[Key], tuple[Key, Value]], keys: Sequence[Key], jobs: int
) -> dict[Key, Value]:
    """What work makes of each key, in several processes.

    They are forked, so that the functions of a script can be sent: the processes of
    `plugins/lab/processes.py` import modules by name and do not have them.
    """
    with Pool(jobs) as pool:
        return dict(pool.imap_unordered(work, keys, chunksize=16))


def world_weights(jobs: int, *, only_credible: bool = False) -> dict[World, float]:
    """The weight of each world, of the credible ones alone if asked for."""
    scores = scored_family(made_by(compared_run, scoring_runs(SCORING_SEEDS), jobs))
    known = dict(zip(FAMILY, weights(scores), strict=True))
    return {
        world: weight
        for world, weight in known.items()
        if not only_credible or is_credible(weight, [*known.values()])
    }
