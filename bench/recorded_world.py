"""Why the recorded world settles nothing about methods.

Counts the improvements that copy a program of their prompt, and compares AdaEvolve with the paper
and with its recorded runs. Runs methods in the packaged world and in others made from the same
table by other rules: other treatments of missing attempts, and the table without one run at a time.
Prints how far methods are ahead of CostAda in each, with paired 95 % intervals over seeds.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import Pool
from random import Random
from statistics import fmean, stdev

from costada.controller.constants import Constants
from costada.experiments.comparison.comparison import AUC
from costada.experiments.comparison.metrics import normalized_auc
from costada.plugins.lab.landscape.landscape_answers import Advice
from costada.plugins.lab.landscape.simulation import SimulatedRun
from costada.plugins.lab.published.published import RUNS, printed_numbers
from costada.plugins.lab.recorded.table import (
    ENTRY_POINT_MISSING,
    Transition,
    recorded_guides,
    recorded_transitions,
)
from costada.plugins.lab.recorded.world import (
    SEED_SCORE,
    UNBIASED_METHOD,
    Bin,
    RecordedAnswers,
    RecordedWorld,
    Weighted,
    recorded_world,
    weighted_transitions,
    world_of,
)
from costada.values.candidate import Candidate

BASELINE = "costada"
METHODS = (BASELINE, "adaevolve", "uniform", "no-intervention-gating")
BUDGET = 1.0

PACKAGED = "as packaged"
CHECKED_WORLDS = (
    PACKAGED,
    "missing entry points are failures",
    "without EvoX",
    "ten nearest instead of bins",
    "ten nearest, without EvoX",
)
"""Worlds whose runs of AdaEvolve are compared with the recorded ones."""


@lru_cache(maxsize=1)
def worlds() -> dict[str, RecordedWorld]:
    """The packaged world and the others, by what differs."""
    table, guides = recorded_transitions(), recorded_guides()
    packaged = recorded_world()
    without_tactics = replace(
        packaged,
        edges=dict.fromkeys((False, True), packaged.edges[False]),
        bins=dict.fromkeys((False, True), packaged.bins[False]),
    )
    stored = [each for each in table if each.is_stored]
    found = {
        PACKAGED: packaged,
        "a tactic changes nothing": without_tactics,
        "missing entry points are failures": world_of(table, guides, repairs_entry_points=False),
        "survivors count once": world_of(table, guides, weighs_survivors=False),
        "without EvoX": world_of(table, guides, uses_evox=False),
        "stored attempts as they are": stored_as_they_are(stored),
        "the same, cut-off runs pooled": stored_as_they_are(stored, uses_capped=True),
        "the same, without EvoX": stored_as_they_are(stored, uses_capped=True, uses_evox=False),
    }
    found |= {
        "ten nearest instead of bins": nearest_world(),
        "ten nearest, without EvoX": nearest_world(uses_evox=False),
    }
    for run in sorted({each.run for each in table if not each.is_capped}):
        found[f"without {run}"] = world_of([each for each in table if each.run != run], guides)
    return found


def stored_as_they_are(
    stored: Sequence[Transition], *, uses_capped: bool = False, uses_evox: bool = True
) -> RecordedWorld:
    """A world in which stored attempts count once and all their failures count."""
    return world_of(
        stored,
        recorded_guides(),
        repairs_entry_points=False,
        weighs_survivors=False,
        uses_capped=uses_capped,
        uses_evox=uses_evox,
    )


NEAREST = 10
"""Attempts that a world without bins draws from, and more where parents have the same score."""


@dataclass(frozen=True)
class NearestWorld(RecordedWorld):
    """Draws from the attempts whose parents' scores are nearest, instead of from a bin."""

    attempts: tuple[Weighted, ...] = ()
    known: dict[tuple[float, bool], Bin] = field(default_factory=dict)

    def bin_of(self, parent_score: float, *, is_guided: bool) -> Bin:
        """What came of the nearest attempts."""
        key = (parent_score, is_guided)
        if key not in self.known:
            self.known[key] = self._nearest_bin(*key)
        return self.known[key]

    def _nearest_bin(self, parent_score: float, is_guided: bool) -> Bin:
        def nearest(matches: Callable[[Transition], bool]) -> tuple[Weighted, ...]:
            ranked = sorted(
                (abs((each.transition.parent_score or 0.0) - parent_score), place)
                for place, each in enumerate(self.attempts)
                if each.transition.is_guided is is_guided and matches(each.transition)
            )
            farthest = ranked[:NEAREST][-1][0]
            return tuple(self.attempts[place] for gap, place in ranked if gap <= farthest)

        judged = nearest(lambda each: each.method != UNBIASED_METHOD)
        failed = sum(each.weight for each in judged if each.transition.score is None)
        billed = {
            has_failed: nearest(
                lambda each, has_failed=has_failed: (
                    each.tokens is not None and (each.score is None) is has_failed
                )
            )
            for has_failed in (False, True)
        }
        return Bin(
            failure_rate=failed / sum(each.weight for each in judged),
            failures=nearest(lambda each: each.score is None),
            programs=nearest(lambda each: each.score is not None),
            tokens={
                has_failed: tuple(each.transition.tokens for each in group)
                for has_failed, group in billed.items()
            },
        )


def nearest_world(*, uses_evox: bool = True) -> NearestWorld:
    """The packaged world without bins."""
    packaged = recorded_world()
    attempts = weighted_transitions(recorded_transitions(), uses_evox=uses_evox)
    return NearestWorld(
        packaged.edges, packaged.bins, packaged.best_score, packaged.guides, tuple(attempts)
    )


@dataclass(frozen=True, slots=True)
class NotedAnswers(RecordedAnswers):
    """Notes the best score at each guide."""

    best_at_guides: list[float] = field(default_factory=list)

    def advise(self, mode: str, best: Candidate, rng: Random) -> Advice:
        """The tactics of a guide."""
        self.best_at_guides.append(best.score)
        return RecordedAnswers.advise(self, mode, best, rng)


@dataclass(frozen=True, slots=True)
class Found:
    """What is kept of a run: its normalised AUC, and the best score at each guide."""

    auc: float
    best_at_guides: tuple[float, ...]


Key = tuple[str, str, int]
"""World, method and seed of a run."""


def made(key: Key) -> tuple[Key, Found]:
    """Make a run."""
    world, method, seed = key
    answers = NotedAnswers(worlds()[world])
    run = SimulatedRun(method, seed, BUDGET, Constants(), answers)
    for _ in run.steps():
        pass
    return key, Found(normalized_auc(run.outcome()), tuple(answers.best_at_guides))


def paired(found: dict[Key, Found], world: str, method: str, seeds: range) -> str:
    """Mean difference to the baseline with a 95 % interval (normal approximation)."""
    gaps = [found[world, method, seed].auc - found[world, BASELINE, seed].auc for seed in seeds]
    half = 1.96 * stdev(gaps) / len(gaps) ** 0.5
    return f"{fmean(gaps):+.4f} [{fmean(gaps) - half:+.4f}, {fmean(gaps) + half:+.4f}]"


STUCK_AFTER = 6
"""Iterations since the best score of a run last rose, after which it counts as stuck here."""

HIGH_SCORE = 0.95


def improvements_where_stuck() -> Iterator[str]:
    """How often stored attempts improved on their parent, by how long their run was stuck.

    Without EvoX, and without the failures that the parser repairs.
    """
    counts: dict[tuple[bool, bool], list[bool]] = {}
    best, risen_at = dict[str, float](), dict[str, int]()
    for each in recorded_transitions():
        if each.is_capped or each.method == "evox" or not each.is_stored:
            continue
        is_stuck = each.iteration - risen_at.get(each.run, 0) > STUCK_AFTER
        is_low = each.parent_score is not None and each.parent_score < HIGH_SCORE
        if is_low and each.failure != ENTRY_POINT_MISSING:
            kind = (each.is_guided, is_stuck)
            counts.setdefault(kind, []).append(each.outcome == "improved")
        if each.score is not None and each.score > best.get(each.run, SEED_SCORE):
            best[each.run], risen_at[each.run] = each.score, each.iteration
    for (is_guided, is_stuck), improved in sorted(counts.items()):
        name = f"{'with a tactic' if is_guided else 'without'}, {'stuck' if is_stuck else 'not'}"
        yield f"{name:36}{sum(improved):9} of {len(improved)}"


HIGH_JUMP, HIGH_SHOWN = 0.97, 0.96
"""Scores of improvements that start below and end above, and of programs shown to their models."""


def copies() -> Iterator[str]:
    """How many improvements without a tactic score no more than a program of their prompt."""
    improved = [
        each
        for each in recorded_transitions()
        if each.outcome == "improved" and not each.is_capped and not each.is_guided
    ]
    num_copies = sum(not each.exceeds_shown for each in improved)
    yield (
        f"improvements without a tactic: {len(improved)}; {num_copies} of them score no more than"
        " a program shown beside the parent"
    )
    jumps = [
        each for each in improved if (each.parent_score or 0.0) <= HIGH_JUMP < (each.score or 0.0)
    ]
    num_shown = sum((each.best_shown_score or 0.0) >= HIGH_SHOWN for each in jumps)
    yield (
        f"from at most {HIGH_JUMP} to above: {len(jumps)}; {num_shown} of them were shown a program"
        f" of at least {HIGH_SHOWN}"
    )


def beside_the_paper(found: dict[Key, Found], seeds: range) -> str:
    """AUC of AdaEvolve here and in the paper, which prints no deviation of it."""
    (published,) = [
        each
        for each in printed_numbers()
        if (each.problem, each.model, each.method, each.metric, each.budget)
        == ("circle_packing", "GLM-5", "adaevolve", AUC, BUDGET)
    ]
    value = published.value("mean")
    if value is None:
        raise ValueError("published.csv: got no AUC of adaevolve, expected its mean")
    reached = [found[PACKAGED, "adaevolve", seed].auc for seed in seeds]
    error = stdev(reached) / RUNS**0.5
    return (
        f"AUC of adaevolve: {fmean(reached):.4f}; the paper prints {value:.4f} for {RUNS} runs,"
        f" which is {(fmean(reached) - value) / error:.1f} standard errors of {RUNS} runs"
        f" ({error:.4f}) below"
    )


CHECKED_AT = (5, 10, 20, 30, 40)
"""Iterations at which recorded and simulated runs of AdaEvolve are compared."""


def checked(seeds: range) -> Iterator[str]:
    """Best scores of AdaEvolve by iteration, recorded and in each kind of world.

    The recorded runs made one attempt in an iteration, so the simulated ones do as well.
    """
    table = [each for each in recorded_transitions() if each.method == "adaevolve"]
    runs = sorted({each.run for each in table})
    recorded = [
        [
            max(
                each.score or SEED_SCORE
                for each in table
                if each.run == run and each.iteration <= last
            )
            for last in CHECKED_AT
        ]
        for run in runs
    ]
    yield f"{f'recorded, {len(runs)} runs':36}" + _means(recorded)
    constants = Constants(max_attempts=1, max_iterations=CHECKED_AT[-1])
    for name in CHECKED_WORLDS:
        reached = []
        for seed in seeds:
            answers = RecordedAnswers(worlds()[name])
            run = SimulatedRun("adaevolve", seed, 100.0, constants, answers)
            best = [controller.incumbent_score for controller in run.steps()]
            reached.append([best[last - 1] for last in CHECKED_AT])
        yield f"{name:36}" + _means(reached)


def _means(rows: Sequence[Sequence[float]]) -> str:
    return "".join(f"{fmean(column):9.3f}" for column in zip(*rows, strict=True))


def lines(found: dict[Key, Found], seeds: range) -> Iterator[str]:
    """What is printed."""
    yield from copies()
    yield beside_the_paper(found, seeds)
    yield ""
    yield f"AUC minus {BASELINE}, {len(seeds)} seeds, budget ${BUDGET:g}"
    yield f"{'world':36}{BASELINE:>9}" + "".join(f"{method:>28}" for method in METHODS[1:])
    for world in worlds():
        mean = fmean(found[world, BASELINE, seed].auc for seed in seeds)
        gaps = (f"{paired(found, world, method, seeds):>28}" for method in METHODS[1:])
        yield f"{world:36}{mean:9.4f}" + "".join(gaps)
    yield ""
    yield f"{'guides, ' + PACKAGED:36}{'a run':>9}{'best score at the first (mean)':>34}"
    for method in METHODS:
        bought = [found[PACKAGED, method, seed].best_at_guides for seed in seeds]
        first = [scores[0] for scores in bought if scores]
        shown = f"{fmean(first):.3f}" if first else "-"
        yield f"{method:36}{fmean(map(len, bought)):9.2f}{shown:>34}"
    yield ""
    yield f"{'an attempt improves, ' + PACKAGED:36}{'chance, by score of the parent':>34}"
    for is_guided, edges in recorded_world().edges.items():
        for place, each in enumerate(recorded_world().bins[is_guided]):
            low, high = ((0.0, *edges)[place], (*edges, 1.0)[place])
            improving = sum(
                program.weight
                for program in each.programs
                if program.transition.outcome == "improved"
            )
            total = sum(program.weight for program in each.programs)
            chance = (1.0 - each.failure_rate) * improving / total
            name = "with a tactic" if is_guided else "without"
            yield f"{name:36}{low:9.2f} to {high:.2f}{chance:8.2f}"
    yield ""
    yield f"stored attempts from below {HIGH_SCORE} that improved; stuck: {STUCK_AFTER} iterations"
    yield from improvements_where_stuck()
    yield ""
    yield f"{'best score of adaevolve (mean)':36}" + "".join(f"{f't = {t}':>9}" for t in CHECKED_AT)
    yield from checked(seeds)


def main() -> None:
    """Make the runs and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    seeds = range(given.seeds)
    keys = [(world, method, seed) for world in worlds() for method in METHODS for seed in seeds]
    with Pool(given.jobs) as pool:
        found = dict(pool.imap_unordered(made, keys, chunksize=16))
    for line in lines(found, seeds):
        print(line)


if __name__ == "__main__":
    main()
