"""When AdaEvolve adds a frontier, and what the new one begins with.

The numbers in capitals are AdaEvolve's own, as SkyDiscover configures it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log, sqrt
from operator import attrgetter
from random import Random
from typing import Literal

from costada.controller.allocation import moving_average
from costada.controller.archive import Archive, EliteWeights, migrant_copy
from costada.controller.constants import Constants
from costada.values.candidate import Candidate, Program
from costada.values.numbering import Iteration

DECAY = 0.9
"""Share that signal, reward and visits keep (rho_G)."""

STABILIZER = 1e-8
"""Keeps relative improvements finite at a best score of zero (epsilon)."""

MAX_IMPROVEMENT = 1.0
"""Largest relative improvement that counts."""

OPTIMISM_SCALE = 1.41
"""Weight of the bonus for rarely visited frontiers (C)."""

MIN_VISITS = 3
"""Evaluations of a frontier before its reward is compared."""


Preset = Literal["balanced", "quality", "diversity", "pareto", "exploration"]
"""How the archive of an added frontier ranks; see `PRESETS`."""


@dataclass(frozen=True, slots=True)
class AdaEvolveFrontier:
    """Statistics of one frontier; they begin empty and forget nothing while it is idle.

    Attributes:
        best_score: Highest score entered here, -inf before the first (best_k).
        signal: Moving average of squared improvements, in [0, 1] (G_k).
        improvements: Own candidates that rose above the best score (imp_k).
        evaluations: Own candidates that entered the archive (ev_k).
        visits: The same, as the choice among frontiers counts it (V_k).
        reward: Decayed sum of rewards, at least 0 (W_k).
        decayed_visits: Decayed number of visits, at least 0 (D_k).
        preset: Name of the archive weights of a spawned frontier, None for one of the start.
    """

    best_score: float = -inf
    signal: float = 0.0
    improvements: int = 0
    evaluations: int = 0
    visits: int = 0
    reward: float = 0.0
    decayed_visits: float = 0.0
    preset: Preset | None = None


def relative_improvement(score: float, best_score: float, reference: float) -> float:
    """How far a score rises above a frontier's best, in [0, 1].

    Relative to that same best it is the improvement that the signal averages (delta), relative
    to the best of all frontiers it is the reward of the step (x).

    Args:
        score: Score of the candidate.
        best_score: Best of the frontier before it.
        reference: What the rise is relative to, before it; against -inf it counts in full.
    """
    if score <= best_score:
        return 0.0
    if reference == -inf:
        return MAX_IMPROVEMENT
    return min((score - best_score) / (abs(reference) + STABILIZER), MAX_IMPROVEMENT)


def with_score(frontier: AdaEvolveFrontier, score: float) -> AdaEvolveFrontier:
    """The frontier after a copy came from elsewhere: only best score and signal may rise.

    The signal moves with an improvement alone; a step without one does not lower it.
    """
    if score <= frontier.best_score:
        return frontier
    improvement = relative_improvement(score, frontier.best_score, frontier.best_score)
    signal = moving_average(frontier.signal, improvement**2, DECAY)
    return replace(frontier, best_score=score, signal=signal)


def after_visit(frontier: AdaEvolveFrontier, score: float, global_best: float) -> AdaEvolveFrontier:
    """The frontier after an own candidate entered its archive.

    Args:
        frontier: Statistics before it.
        score: Score of the candidate.
        global_best: Best of all frontiers before it, -inf when there was none.
    """
    earned = relative_improvement(score, frontier.best_score, global_best)
    return replace(
        with_score(frontier, score),
        improvements=frontier.improvements + (score > frontier.best_score),
        evaluations=frontier.evaluations + 1,
        visits=frontier.visits + 1,
        reward=DECAY * frontier.reward + earned,
        decayed_visits=DECAY * frontier.decayed_visits + 1.0,
    )


def ucb_score(frontier: AdaEvolveFrontier, iteration: int, in_flight: int = 0) -> float:
    """The mean decayed reward of a visited frontier, plus the bonus for few visits.

    A step in flight is a visit without a reward: it lowers the bonus and leaves the mean alone,
    which is 0 until a step has landed.

    Args:
        frontier: A frontier with at least one visit, completed or in flight.
        iteration: Iterations completed and in flight (t).
        in_flight: Steps in flight on the frontier.
    """
    bonus = OPTIMISM_SCALE * sqrt(log(iteration + 1) / (frontier.visits + in_flight))
    if frontier.decayed_visits == 0.0:
        return bonus
    return frontier.reward / frontier.decayed_visits + bonus


def select_frontier(
    frontiers: tuple[AdaEvolveFrontier, ...],
    iteration: int,
    rng: Random,
    in_flight: Sequence[int] = (),
) -> int:
    """The index of the next frontier.

    Frontiers with too few visits come first, drawn evenly; then the most promising, the lowest
    on a tie. `rng` is read only for the draw.

    Args:
        frontiers: Statistics of the completed steps.
        iteration: Iterations completed (t).
        rng: Source of the draw.
        in_flight: The frontier of each step that was launched and has not landed.
    """
    launched = [in_flight.count(index) for index in range(len(frontiers))]
    pairs = list(zip(frontiers, launched, strict=True))
    rarely_visited = [
        index for index, (each, count) in enumerate(pairs) if each.visits + count < MIN_VISITS
    ]
    if rarely_visited:
        return rng.choice(rarely_visited)
    started = iteration + len(in_flight)
    scores = [ucb_score(frontier, started, count) for frontier, count in pairs]
    return scores.index(max(scores))


MAX_FRONTIERS = 5
"""Frontiers after which none is added."""

MIN_PRODUCTIVITY = 0.015
"""Share of improvements below which a frontier is added."""

SPAWN_INTERVAL = 30
"""Iterations between two additions."""

NEVER_SPAWNED = Iteration(-SPAWN_INTERVAL)
"""Iteration of the last addition before the first: none has to be waited for."""

NUM_FOUNDERS = 5
"""Candidates a new frontier begins with."""

PRESETS: Mapping[Preset, EliteWeights] = {
    "balanced": EliteWeights(fitness=0.7, novelty=0.3, protected_share=0.2),
    "quality": EliteWeights(fitness=0.8, novelty=0.2, protected_share=0.3),
    "diversity": EliteWeights(fitness=0.5, novelty=0.5, protected_share=0.1),
    "pareto": EliteWeights(fitness=0.8, novelty=0.2, protected_share=0.2),
    "exploration": EliteWeights(fitness=0.5, novelty=0.5, protected_share=0.05),
}
"""How the archive of an added frontier may rank; `fitness` is w_f + w_par."""


def productivity(frontiers: Sequence[AdaEvolveFrontier]) -> float:
    """The share of evaluated candidates that improved their frontier, in [0, 1]."""
    evaluations = sum(frontier.evaluations for frontier in frontiers)
    improvements = sum(frontier.improvements for frontier in frontiers)
    return improvements / evaluations if evaluations else 1.0


def should_spawn(
    frontiers: Sequence[AdaEvolveFrontier], last_spawn: Iteration, iteration: Iteration
) -> bool:
    """Whether to add a frontier at the end of an iteration.

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


def draw_preset(frontiers: Sequence[AdaEvolveFrontier], rng: Random) -> Preset:
    """The name of a preset, drawn evenly from those the frontiers use least."""
    used = [frontier.preset for frontier in frontiers]
    fewest = min(used.count(name) for name in PRESETS)
    return rng.choice([name for name in PRESETS if used.count(name) == fewest])


def founders(archives: Sequence[Archive]) -> tuple[Candidate, ...]:
    """The best candidates of all frontiers, each text once, the earliest on a tie."""
    members = [member for archive in archives for member in archive.members]
    distinct: dict[Program, Candidate] = {}
    for candidate in sorted(members, key=attrgetter("score"), reverse=True):
        distinct.setdefault(candidate.program, candidate)
    return tuple(distinct.values())[:NUM_FOUNDERS]


def founded_archive(
    archives: Sequence[Archive], preset: Preset, iteration: Iteration, constants: Constants
) -> Archive:
    """The archive of a new frontier: copies of the best, entered like migrants.

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
