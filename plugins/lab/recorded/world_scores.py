"""How well each world of the family predicts what it was not made from, and its weight.

A world is made without one recorded run, and predicts that run's attempts one by one: the class of
the score (failed, or one of nine ranges) and, where tokens were recorded, the third of the output
tokens. Where a world has unknowns (the recorded run that attempts resemble, the effect of tactics),
they are equally likely at first and are learned from the run's attempts so far. The loss of a
world is the mean over runs of the mean of -log(probability).

Attempts of one run depend on each other, so a run counts as one observation: a world's evidence is
exp(-loss * runs). The paper prints the objective of AdaEvolve at cutoffs of the budget. With z the
difference to the world's mean in standard errors, it counts as one observation more:
exp(-mean(z^2) / 2), since the cutoffs of a run depend on each other too. The product, scaled to
sum 1, is the weight. A world is credible if its weight is at least a twentieth of the largest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import fmean, variance

from costada.experiments.comparison.comparison import OBJECTIVES
from costada.experiments.comparison.metrics import RunOutcome, best_score_at
from costada.plugins.lab.landscape.simulation import simulate_run
from costada.plugins.lab.published.published import RUNS, printed_numbers
from costada.plugins.lab.recorded.family import FAMILY, SHARE_OF_RUN, Pool, World
from costada.plugins.lab.recorded.table import Transition, recorded_transitions
from costada.plugins.lab.recorded.world import UNBIASED_METHOD, weighted_transitions

CLASS_EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99)
"""Where ranges of scores end."""

NUM_CLASSES = len(CLASS_EDGES) + 2
COST_CLASSES = 3

MIXED_IN = 0.1
"""Share of every prediction that is the same for all classes, so that none is impossible."""

MIN_ATTEMPTS = 10
"""Attempts of a run that is predicted, at least."""

REFERENCE = 2.635
"""Objective of circle packing that is score 1."""

METHOD, MODEL, PROBLEM, BUDGET = "adaevolve", "GLM-5", "circle_packing", 1.0
"""What the paper's cutoffs are taken of."""

COMPARED_CUTOFFS = (0.25, 0.5, 1.0)
"""The paper prints the same at 0.75 as at the end."""

CREDIBLE_SHARE = 1 / 20

SCORING_SEEDS = 40
"""Runs in each world that the family is scored by before methods are compared in it."""


@dataclass(frozen=True, slots=True)
class PrintedCutoff:
    """What the paper prints of the best score at a share of the budget."""

    cutoff: float
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class WorldScore:
    """The score of a world.

    Attributes:
        world: The world.
        losses: Loss on each held-out run, by run.
        reached: Mean best score of AdaEvolve at each compared cutoff.
        z: Its difference to the printed mean there, in standard errors.
    """

    world: World
    losses: Mapping[str, float]
    reached: Mapping[float, float]
    z: Mapping[float, float]

    @property
    def loss(self) -> float:
        """Mean loss over the held-out runs, in nats an attempt."""
        return fmean(self.losses.values())

    @property
    def log_evidence(self) -> float:
        """Logarithm of its weight, up to a constant."""
        penalty = fmean(each**2 for each in self.z.values()) / 2
        return -self.loss * len(self.losses) - penalty


def weights(scores: Sequence[WorldScore]) -> list[float]:
    """The weight of each world; they sum to 1."""
    highest = max(each.log_evidence for each in scores)
    shares = [exp(each.log_evidence - highest) for each in scores]
    return [share / sum(shares) for share in shares]


def is_credible(weight: float, all_weights: Sequence[float]) -> bool:
    """Whether a world counts where the worst one is looked for."""
    return weight >= CREDIBLE_SHARE * max(all_weights)


def printed_cutoffs() -> tuple[PrintedCutoff, ...]:
    """The printed best scores of AdaEvolve.

    Raises:
        ValueError: The file lacks one.
    """
    wanted = {OBJECTIVES[cutoff]: cutoff for cutoff in COMPARED_CUTOFFS}
    found = {
        wanted[each.metric]: each
        for each in printed_numbers()
        if (each.problem, each.model, each.method, each.budget) == (PROBLEM, MODEL, METHOD, BUDGET)
        and each.metric in wanted
    }
    cutoffs = []
    for cutoff in COMPARED_CUTOFFS:
        mean, deviation = (found[cutoff].value(name) for name in ("mean", "std"))
        if mean is None or deviation is None:
            raise ValueError(f"published.csv: got no mean and std of {METHOD} at {cutoff}")
        cutoffs.append(PrintedCutoff(cutoff, mean / REFERENCE, deviation / REFERENCE))
    return tuple(cutoffs)


def scoring_runs(seeds: int) -> list[tuple[str, int]]:
    """World and seed of each run that the family is scored by: so many in each world."""
    return [(world.name, seed) for world in FAMILY for seed in range(seeds)]


def scored_family(outcomes: Mapping[tuple[str, int], RunOutcome]) -> list[WorldScore]:
    """The score of each world of the family, from what `compared_run` made of the scoring runs."""
    losses = held_out_losses(FAMILY)
    return [
        WorldScore(
            world,
            losses[world],
            *compared_with_paper(
                [found for (name, _), found in outcomes.items() if name == world.name]
            ),
        )
        for world in FAMILY
    ]


def held_out_losses(worlds: Sequence[World]) -> dict[World, dict[str, float]]:
    """The loss of each world on each run that it was made without."""
    table = recorded_transitions()
    everything = [each.transition for each in weighted_transitions(table)]
    judged = [each for each in everything if each.method != UNBIASED_METHOD]
    runs = sorted({each.run for each in judged})
    losses: dict[World, dict[str, float]] = {world: {} for world in worlds}
    for run in runs:
        attempts = [each for each in judged if each.run == run]
        if len(attempts) < MIN_ATTEMPTS:
            continue
        attempts.sort(key=lambda each: each.iteration)
        pool = Pool(weighted_transitions([each for each in table if each.run != run]))
        for world in worlds:
            losses[world][run] = _loss(world, pool, attempts)
    return losses


def _loss(world: World, pool: Pool, attempts: Sequence[Transition]) -> float:
    """Mean -log(probability) of a run's attempts in their order."""
    runs = pool.runs if world.depends_on_run else [None]
    beliefs = {(run, effect): 1.0 for run in runs for effect in world.effects}
    total = 0.0
    for each in attempts:
        likelihoods = {
            (run, effect): probability_of_class(world, pool, each, run, effect)
            for run, effect in beliefs
        }
        sum_before = sum(beliefs.values())
        beliefs = {key: belief * likelihoods[key] for key, belief in beliefs.items()}
        total -= log(sum(beliefs.values()) / sum_before)
        if each.tokens is not None:
            total -= log(probability_of_cost(world, pool, each))
    return total / len(attempts)


def probability_of_class(
    world: World, pool: Pool, attempt: Transition, run: str | None, effect: float
) -> float:
    """The probability of an attempt's class of score, if the unknowns are these.

    Args:
        world: The world.
        pool: What it draws from.
        attempt: The attempt.
        run: The recorded run that attempts resemble; None where they resemble none.
        effect: Share of guided attempts that are like recorded ones.
    """
    parent = attempt.parent_score or 0.0
    shown = -inf if attempt.best_shown_score is None else attempt.best_shown_score
    wanted = class_of(attempt.score)
    found = 0.0
    for is_guided, share in ((True, effect), (False, 1.0 - effect)):
        share = share if attempt.is_guided else float(not is_guided)
        for source, part in ((run, SHARE_OF_RUN), (None, 1.0 - SHARE_OF_RUN)):
            if share:
                outcomes = pool.outcomes(
                    world.matching, parent, shown, is_guided=is_guided, run=source
                )
                same = sum(chance for score, chance, _ in outcomes if class_of(score) == wanted)
                found += share * part * same
    return (1.0 - MIXED_IN) * found + MIXED_IN / NUM_CLASSES


def class_of(score: float | None) -> int:
    """The class of a score: 0 for a failure, above it the number of its range."""
    return 0 if score is None else 1 + bisect_right(CLASS_EDGES, score)


def probability_of_cost(world: World, pool: Pool, attempt: Transition) -> float:
    """The probability of the third that an attempt's output tokens are in.

    Thirds are those of all calls with or without a tactic; one call is added to each of them.
    """
    if attempt.tokens is None:
        raise ValueError(f"tokens: got none in {attempt}, expected recorded ones")
    known = sorted(each.output_tokens for each in pool.tokens(None, is_guided=attempt.is_guided))
    edges = [known[len(known) * k // COST_CLASSES] for k in range(1, COST_CLASSES)]
    same = pool.tokens(attempt.outcome if world.has_costs else None, is_guided=attempt.is_guided)
    thirds = [bisect_right(edges, each.output_tokens) for each in same]
    mine = bisect_right(edges, attempt.tokens.output_tokens)
    return (thirds.count(mine) + 1) / (len(thirds) + COST_CLASSES)


def compared_run(run: tuple[str, int]) -> tuple[tuple[str, int], RunOutcome]:
    """A scoring run: AdaEvolve in a world, by the world's name, with a seed."""
    world, seed = run
    return run, simulate_run(METHOD, seed, BUDGET, world=world)


def compared_with_paper(
    outcomes: Sequence[RunOutcome],
) -> tuple[dict[float, float], dict[float, float]]:
    """Mean best score at each compared cutoff, and its difference to the paper's in errors."""
    reached, z = dict[float, float](), dict[float, float]()
    for each in printed_cutoffs():
        scores = [best_score_at(outcome, each.cutoff) for outcome in outcomes]
        error = sqrt(variance(scores) / len(scores) + each.deviation**2 / RUNS)
        reached[each.cutoff] = fmean(scores)
        z[each.cutoff] = (reached[each.cutoff] - each.mean) / error
    return reached, z


HEADER = (
    "world",
    "loss",
    *(f"AdaEvolve at {cutoff:.0%}" for cutoff in COMPARED_CUTOFFS),
    "weight",
    "credible",
)


def table_rows(scores: Sequence[WorldScore]) -> Iterator[tuple[str, ...]]:
    """The scores of the worlds, the heaviest first, as cells."""
    all_weights = weights(scores)
    ranked = sorted(zip(all_weights, scores, strict=True), key=lambda pair: -pair[0])
    for weight, each in ranked:
        yield (
            each.world.name,
            f"{each.loss:.3f}",
            *(f"{each.reached[q]:.3f} ({each.z[q]:+.1f})" for q in COMPARED_CUTOFFS),
            f"{weight:.3f}",
            "yes" if is_credible(weight, all_weights) else "no",
        )
