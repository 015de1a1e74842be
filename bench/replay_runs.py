"""Runs of a method with the replay model, beside the cutoffs that the paper prints of AdaEvolve.

    python bench/replay_runs.py RECORDINGS --cache CACHE [--seeds 30] [--timeout 60] [--verify 20]

Graph, parser, prompts and ledger are those of any run, at the paper's prices and a budget of $1.00.
A program whose text is that of a recorded one, apart from white space at its ends, has the recorded
score. Any other is evaluated once, in the sandbox and for at most `--timeout` seconds, and its
score is kept in CACHE, so that an interrupted command resumes where it was. A program that takes
longer has failed; with a higher limit it is evaluated again. With `--timeout 0` none is evaluated,
and all that are not recorded have failed: what the evaluations change is how far apart the two are.

Prints for each run how many of its programs are recorded, known from CACHE or evaluated, and how
many of the others took too long; then the mean best score at the cutoffs, beside the paper's. With
`--verify`, so many recorded programs are evaluated as well and compared with what was recorded.
"""

import argparse
import gzip
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeGuard

from costada import create_discovery_graph, problem
from costada.evaluators.granted_models import SendableModels
from costada.evaluators.problem import Problem
from costada.experiments.comparison.metrics import (
    Point,
    RunOutcome,
    best_score_at,
    normalized_auc,
)
from costada.plugins.lab.recorded.world_scores import compared_with_paper, printed_cutoffs
from costada.runs.setting_types import PRESETS
from costada.values.candidate import Program, text_hash
from costada.values.evaluation import Evaluation, failed

PROBLEM, BUDGET = "circle_packing", 1.0
PRICE = PRESETS["glm-5"].price

SAME_SCORE = 1e-3
"""Largest difference of two evaluations of a program that count as the same score."""

RECORDED, EVALUATED, TOO_LONG, KNOWN = "recorded", "evaluated", "too long", "known"


@dataclass(frozen=True, slots=True)
class Score:
    """What an evaluation found; score 0 and an error for a program that failed."""

    score: float
    objective: float | None
    error: str | None
    seconds: float
    limit: float

    @property
    def took_too_long(self) -> bool:
        """Whether the time limit ended it."""
        return self.error is not None and self.seconds >= self.limit

    def evaluation(self) -> Evaluation:
        """The evaluation that the search gets."""
        if self.error is not None:
            return failed(self.error)
        metrics = {"combined_score": self.score}
        return Evaluation(
            score=self.score, objective=self.objective, is_valid=True, metrics=metrics
        )


@dataclass(slots=True)
class ScoreCache:
    """A file with the score of each evaluated program, by the hash of its text."""

    path: Path
    known: dict[str, Score] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the file, if there is one."""
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                fields = json.loads(line)
                self.known[fields.pop("program")] = Score(**fields)

    def put(self, text: str, found: Score) -> None:
        """Add a score."""
        self.known[text_hash(text)] = found
        names = ("score", "objective", "error", "seconds", "limit")
        fields = {"program": text_hash(text)} | {name: getattr(found, name) for name in names}
        with self.path.open("a") as file:
            file.write(json.dumps(fields) + "\n")


@dataclass(slots=True)
class RecordedScores:
    """Scores of programs: an `EvaluationBackend`.

    Attributes:
        recorded: Of recorded programs, by text.
        cache: Of programs that were evaluated.
        real: The problem that evaluates programs here.
        evaluates: Whether programs that are not recorded are evaluated; else they have failed.
        counts: Evaluations since the run began, by kind.
    """

    recorded: Mapping[str, Evaluation]
    cache: ScoreCache
    real: Problem
    evaluates: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Its name for users."""
        return "recorded scores"

    def evaluate(
        self,
        problem: Problem,
        program: Program,
        key: str,
        incumbent: float | None,
        rival: tuple[float, ...] = (),
        models: SendableModels | None = None,
    ) -> Evaluation:
        """The recorded score of a program, or that of an evaluation."""
        text = program.text.strip()
        if (known := self.recorded.get(text)) is not None:
            self.counts[RECORDED] += 1
            return known
        found = self.cache.known.get(text_hash(text))
        if not self.evaluates and text != self.real.initial_program.strip():
            self.counts[TOO_LONG] += 1
            return failed("it took too long")
        if not is_final(found, self.real):
            found = measured(self.real, program)
            self.cache.put(text, found)
            self.counts[EVALUATED] += 1
            self.seconds += found.seconds
        else:
            self.counts[KNOWN] += 1
        self.counts[TOO_LONG] += found.took_too_long
        return found.evaluation()


def is_final(found: Score | None, real: Problem) -> TypeGuard[Score]:
    """Whether a known score needs no further evaluation under the limits of a problem."""
    return found is not None and not (
        found.took_too_long and found.limit < real.limits.wall_seconds
    )


def measured(real: Problem, program: Program) -> Score:
    """Evaluate a program in the sandbox."""
    began = time.monotonic()
    found = real.evaluate_program(program)
    seconds = time.monotonic() - began
    return Score(found.score, found.objective, found.error, seconds, real.limits.wall_seconds)


def recorded_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of recorded answers that hold a program and its score."""
    data = path.read_bytes()
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    rows = [json.loads(line) for line in text.decode().splitlines() if line.strip()]
    return [each for each in rows if each["kind"] == "proposal" and each.get("code")]


def recorded_evaluation(row: Mapping[str, Any]) -> Evaluation:
    """The evaluation of a recorded program."""
    if not row["valid"]:
        return failed(row["error"] or row["failure"] or "it failed")
    return Evaluation(
        score=row["score"],
        objective=row["sum_radii"],
        is_valid=True,
        metrics={"combined_score": row["score"]},
    )


def made_run(path: Path, method: str, seed: int, scores: RecordedScores) -> RunOutcome:
    """Make a run with the replay model."""
    searched = replace(scores.real, backend=scores)
    graph = create_discovery_graph(
        searched, f"replay:{path}", budget=BUDGET, method=method, seed=seed, price=PRICE
    )
    rows = [row for row in graph.stream({}, stream_mode="custom") if "best_score" in row]
    first, *steps = rows
    points = [
        Point(row["iteration"], row["spent"], row["best_score"], row["best_objective"])
        for row in steps
    ]
    return RunOutcome(
        problem=PROBLEM,
        method=method,
        model="replay",
        seed=seed,
        budget=BUDGET,
        seed_score=first["best_score"],
        seed_objective=first["best_objective"],
        is_minimized=False,
        points=tuple(points),
    )


def verify(rows: Sequence[Mapping[str, Any]], count: int, real: Problem, cache: ScoreCache) -> None:
    """Evaluate some recorded programs and print how many have the score that was recorded."""
    drawn = random.Random(0).sample(list(rows), count)
    counts: Counter[str] = Counter()
    for row in drawn:
        text = row["code"].strip()
        found = cache.known.get(text_hash(text))
        if not is_final(found, real):
            found = measured(real, Program.of(row["code"]))
            cache.put(text, found)
        is_same = abs(found.score - row["score"]) <= SAME_SCORE
        is_valid = found.error is None
        if found.took_too_long and row["valid"]:
            kind = "took too long here"
        elif is_valid != row["valid"]:
            kind = "valid only here" if is_valid else "valid only when recorded"
        else:
            kind = "same score" if is_same else "other score"
        counts[kind] += 1
        print(f"verified: recorded {row['score']:.4f}, here {found.score:.4f}: {kind}", flush=True)
    print(f"of {count} recorded programs: " + ", ".join(f"{n} {k}" for k, n in counts.items()))


def compare(outcomes: Sequence[RunOutcome]) -> None:
    """Print the mean curve beside the paper's band: the mean and a standard deviation around it."""
    reached, z = compared_with_paper(outcomes)
    print("cutoff  mean of runs  deviation  the paper       outside by  standard errors")
    for each in printed_cutoffs():
        mean = reached[each.cutoff]
        deviation = stdev(best_score_at(outcome, each.cutoff) for outcome in outcomes)
        outside = max(0.0, abs(mean - each.mean) - each.deviation)
        print(
            f"{each.cutoff:6.0%}  {mean:12.3f}  {deviation:9.3f}  {each.mean:.3f} +- "
            f"{each.deviation:.3f}  {outside:10.3f}  {z[each.cutoff]:+15.1f}"
        )
    aucs = [normalized_auc(outcome) for outcome in outcomes]
    print(f"normalised AUC: {fmean(aucs):.3f}, deviation {stdev(aucs):.3f}")


def main() -> None:
    """Make the runs and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--method", default="adaevolve")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--verify", type=int, default=0)
    given = parser.parse_args()
    rows = recorded_rows(given.recordings)
    found = problem(PROBLEM)
    evaluates = given.timeout > 0
    limits = replace(found.limits, wall_seconds=given.timeout) if evaluates else found.limits
    real = replace(found, limits=limits)
    cache = ScoreCache(given.cache)
    if given.verify:
        verify(rows, given.verify, real, cache)
    recorded = {each["code"].strip(): recorded_evaluation(each) for each in rows}
    outcomes = []
    print("seed  steps   25 %   50 %  100 %    AUC  recorded  known  evaluated  seconds  too long")
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        scores = RecordedScores(recorded, cache, real, evaluates)
        outcome = made_run(given.recordings, given.method, seed, scores)
        outcomes.append(outcome)
        best = "".join(f"{best_score_at(outcome, cut):7.3f}" for cut in (0.25, 0.5, 1.0))
        counts = scores.counts
        print(
            f"{seed:4}  {len(outcome.points):5}{best}{normalized_auc(outcome):7.3f}"
            f"{counts[RECORDED]:10}{counts[KNOWN]:7}{counts[EVALUATED]:11}{scores.seconds:9.0f}"
            f"{counts[TOO_LONG]:10}",
            flush=True,
        )
    if len(outcomes) > 1:
        compare(outcomes)


if __name__ == "__main__":
    main()
