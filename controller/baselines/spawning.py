"""When AdaEvolve adds a frontier, and what the new one begins with.

The numbers in capitals are AdaEvolve's own, as SkyDiscover configures it.
"""

from collections.abc import Mapping, Sequence
from random import Random

from costada.controller.archive import Archive, Candidate, EliteWeights
from costada.controller.baselines.adaevolve_frontier import AdaEvolveFrontier
from costada.controller.constants import Constants
from costada.controller.migration import migrant_copy

MAX_FRONTIERS = 5
"""Frontiers after which none is added."""

MIN_PRODUCTIVITY = 0.015
"""Share of improvements below which a frontier is added."""

SPAWN_INTERVAL = 30
"""Iterations between two additions."""

NEVER_SPAWNED = -SPAWN_INTERVAL
"""Iteration of the last addition before the first: none has to be waited for."""

NUM_FOUNDERS = 5
"""Candidates a new frontier begins with."""

PRESETS: Mapping[str, EliteWeights] = {
    "balanced": EliteWeights(fitness=0.7, novelty=0.3, protected_share=0.2),
    "quality": EliteWeights(fitness=0.8, novelty=0.2, protected_share=0.3),
    "diversity": EliteWeights(fitness=0.5, novelty=0.5, protected_share=0.1),
    "pareto": EliteWeights(fitness=0.8, novelty=0.2, protected_share=0.2),
    "exploration": EliteWeights(fitness=0.5, novelty=0.5, protected_share=0.05),
}
"""How the archive of an added frontier may rank; `fitness` is w_f + w_par."""


def productivity(frontiers: Sequence[AdaEvolveFrontier]) -> float:
    """Return the share of evaluated candidates that improved their frontier, in [0, 1]."""
    evaluations = sum(frontier.evaluations for frontier in frontiers)
    improvements = sum(frontier.improvements for frontier in frontiers)
    return improvements / evaluations if evaluations else 1.0


def should_spawn(frontiers: Sequence[AdaEvolveFrontier], last_spawn: int, iteration: int) -> bool:
    """Return whether to add a frontier at the end of an iteration.

    Args:
        frontiers: Statistics after the step.
        last_spawn: Iteration of the last addition, or `NEVER_SPAWNED`.
        iteration: The iteration that ends (t).
    """
    return (
        len(frontiers) < MAX_FRONTIERS
        and iteration - last_spawn >= SPAWN_INTERVAL
        and productivity(frontiers) < MIN_PRODUCTIVITY
    )


def draw_preset(frontiers: Sequence[AdaEvolveFrontier], rng: Random) -> str:
    """Return the name of a preset, drawn evenly from those the frontiers use least."""
    used = [frontier.preset for frontier in frontiers]
    fewest = min(used.count(name) for name in PRESETS)
    return rng.choice([name for name in PRESETS if used.count(name) == fewest])


def founders(archives: Sequence[Archive]) -> tuple[Candidate, ...]:
    """Return the best candidates of all frontiers, each text once, the earliest on a tie."""
    everyone = [member for archive in archives for member in archive.members]
    distinct: dict[str, Candidate] = {}
    for candidate in sorted(everyone, key=lambda member: -member.score):
        distinct.setdefault(candidate.code, candidate)
    return tuple(distinct.values())[:NUM_FOUNDERS]


def founded_archive(
    archives: Sequence[Archive], preset: str, iteration: int, constants: Constants
) -> Archive:
    """Return the archive of a new frontier: copies of the best, entered like migrants.

    Args:
        archives: Archives of the frontiers there are; the new one comes after them.
        preset: Name of the weights it ranks with.
        iteration: The iteration that ends (t).
        constants: Source of the archive size.
    """
    founded = Archive((), constants.archive_size, PRESETS[preset])
    for founder in founders(archives):
        founded = founded.insert(migrant_copy(founder, len(archives), iteration))
    return founded
