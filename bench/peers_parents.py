"""Parent choices of the real packages, replayed against the methods of `plugins/peers`.

Each package runs on a scripted model and evaluator, with its own code in charge: which parent an
attempt starts from, and what is shown beside it, comes of its own random numbers. The method here
is given the same children in the same order and the same random draws, and has to choose the same.

    pip install --target DIR openevolve==0.4.1 gepa==0.1.4 shinka-evolve==0.0.7
    python bench/peers_parents.py DIR

Prints one line per package and script: choices compared, choices that differ, and the first
difference. The exit code is 1 if any differ.
"""

import argparse
import asyncio
import logging
import random
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from costada.controller.constants import Constants
from costada.controller.credit import Balance
from costada.plugins.peers import openevolve
from costada.plugins.peers.gepa import Pool
from costada.plugins.peers.openevolve import Population
from costada.plugins.peers.peer import ShinkaEvolve
from costada.plugins.peers.peer_search import NO_GAINS
from costada.plugins.peers.shinkaevolve import META_INTERVAL, Islands, numbered_points
from costada.values.candidate import Candidate, Program
from costada.values.example_score import ExampleScore
from costada.values.numbering import TicketNumber


@dataclass
class Report:
    """What was compared, and where the package and the method differ.

    Attributes:
        name: The package and the script.
        reason: Why they may differ; empty where they must not.
        compared: Choices that were compared.
        differences: Those that differ.
    """

    name: str
    reason: str = ""
    compared: int = 0
    differences: list[str] = field(default_factory=list)

    def compare(self, place: str, theirs: object, ours: object) -> None:
        """Count a choice, and note it if it differs."""
        self.compared += 1
        if theirs != ours:
            self.differences.append(f"{place}: package {theirs}, method {ours}")

    def __str__(self) -> str:
        first = f"; first at {self.differences[0]}" if self.differences else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.name}: {self.compared} choices, {len(self.differences)} differ{why}{first}"


@dataclass(frozen=True)
class Script:
    """The children of a run: their texts and scores, drawn from a seed.

    Attributes:
        seed: Decides all of it.
        failure_rate: Part of the answers without a program.
        error_rate: Part of the programs that the evaluator refuses.
        ties: Whether scores are rounded, so that many are equal.
    """

    seed: int
    failure_rate: float = 0.1
    error_rate: float = 0.1
    ties: bool = False

    def child(self, number: int, parent: Candidate) -> Candidate | None:
        """The candidate of a step, `None` for an answer without a program."""
        rng = Random(f"{self.seed}/{number}")
        if rng.random() < self.failure_rate:
            return None
        is_valid = rng.random() >= self.error_rate
        score = min(1.0, max(0.0, parent.score + rng.gauss(0.0, 0.1))) if is_valid else 0.0
        lines = [f"x{rng.randrange(50)} = {rng.random()}" for _ in range(rng.randrange(1, 40))]
        return Candidate(
            id=f"{number}.1",
            ticket=TicketNumber(number),
            program=Program.of("\n".join(lines)),
            score=round(score, 1) if self.ties else score,
            is_valid=is_valid,
            parent_id=parent.id,
        )


SEED = Candidate(id="0.1", program=Program.of("x = 1\n"), score=0.3)


SMALL, OFTEN = 3, 0.6
"""Members of OpenEvolve's islands, and part of the answers without a program, in empty islands."""


class InsertionOrder(dict[str, None]):
    """A set that is gone through in the order of insertion.

    The packages keep ids in sets, whose order Python draws anew in each process.
    """

    def add(self, name: str) -> None:
        """Add a member."""
        self.setdefault(name)

    def discard(self, name: str) -> None:
        """Remove a member if it is one."""
        self.pop(name, None)

    remove = dict.pop

    def __sub__(self, other: object) -> "InsertionOrder":
        return InsertionOrder.fromkeys(each for each in self if each not in other)  # type: ignore


class ScriptedPool:
    """An executor for the package's own loop: each iteration is answered by the script at once."""

    def __init__(self, script: Script, database: Any, report: Report) -> None:
        self.script, self.database, self.report = script, database, report
        self.known = {"0.1": SEED}
        self.names = {SEED.program.text: SEED.id}
        self.chosen: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.results: list[tuple[int, int, Candidate | None]] = []

    def candidate_id(self, name: str) -> str:
        """The candidate of a program; that of a copy is the original's."""
        return self.names[self.database.programs[name].code]

    def submit(
        self, work: object, iteration: int, snapshot: Any, parent: str, inspirations: list[str]
    ) -> Future[Any]:
        """Note what the package chose, and answer."""
        from openevolve.database import Program as TheirProgram
        from openevolve.process_parallel import SerializableResult
        from openevolve.utils.metrics_utils import get_fitness_score

        island = snapshot["sampling_island"]
        programs = self.database.programs
        home = [programs[id] for id in self.database.islands[programs[parent].metadata["island"]]]
        home.sort(key=lambda each: get_fitness_score(each.metrics), reverse=True)
        # as `_run_iteration` of the package shows them
        shown = [each.id for each in home[:5]] + inspirations
        chosen = self.candidate_id(parent)
        self.chosen[iteration] = chosen, tuple(dict.fromkeys(map(self.candidate_id, shown)))
        child = self.script.child(iteration, self.known[chosen])
        self.results.append((iteration, island, child))
        result = SerializableResult(iteration=iteration, target_island=island, error="no program")
        if child is not None:
            self.known[child.id] = child
            self.names[child.program.text] = child.id
            made = TheirProgram(
                id=child.id,
                code=child.program.text,
                parent_id=parent,
                metrics={"combined_score": child.score} if child.is_valid else {"error": 0.0},
            )
            result = SerializableResult(
                child_program_dict=made.to_dict(),
                parent_id=parent,
                iteration=iteration,
                target_island=island,
            )
        done: Future[Any] = Future()
        done.set_result(result)
        return done


def openevolve_report(
    script: Script, iterations: int, population_size: int = openevolve.POPULATION_SIZE
) -> Report:
    """The loop and the database of `openevolve` against `Population`, draw by draw.

    With a small population, islands lose all their members.
    """
    from openevolve.config import Config
    from openevolve.database import Program as TheirProgram
    from openevolve.database import ProgramDatabase
    from openevolve.process_parallel import ProcessParallelController

    report = Report(f"openevolve, {script}, population {population_size}")
    config = Config()
    config.database.population_size = openevolve.POPULATION_SIZE = population_size
    database = ProgramDatabase(config.database)
    database.islands = [InsertionOrder() for _ in database.islands]
    database.archive = InsertionOrder()
    initial = TheirProgram(id="0.1", code=SEED.program.text, metrics={"combined_score": SEED.score})
    begun = Random()
    begun.setstate(random.getstate())
    database.add(initial)
    controller = ProcessParallelController(config, "", database)
    pool = ScriptedPool(script, database, report)
    controller.executor = pool
    asyncio.run(controller.run_evolution(1, iterations))

    texts = {each.program.hash: each.program.text for each in pool.known.values()}
    ours = Population.begin(SEED, texts.__getitem__, begun)
    for number, island, child in pool.results:
        choice = ours.choose(island, texts.__getitem__, begun)
        ours_chosen = choice.parent, choice.shown
        report.compare(f"iteration {number}", pool.chosen[number], ours_chosen)
        ours.land(island, child, texts.__getitem__, begun)
    return report


class SortedChoice(Random):
    """Draws from a list in ascending order, as `gepa` makes its lists of sets."""

    def choice(self, members: Any) -> Any:
        """A member of the list."""
        return super().choice(sorted(members))


EXAMPLES = 7


def judged(child: Candidate, parent: Candidate, seed: int) -> Candidate:
    """A child with scores on all examples, near those of its parent; many are equal."""
    rng = Random(f"{seed}/{child.id}")
    before = [each.score for each in parent.examples]
    scores = [round(min(1.0, max(0.0, each + rng.gauss(0.02, 0.2))), 1) for each in before]
    examples = tuple(ExampleScore(place, score) for place, score in enumerate(scores))
    gains = {"speed": round(rng.random(), 1), "size": round(rng.random(), 1)}
    return replace(child, examples=examples, score=sum(scores) / EXAMPLES, metrics=gains)


class Ascending(set[int]):
    """A set of numbers that is gone through in ascending order."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(super().__iter__()))


@contextmanager
def ascending_fronts() -> Iterator[None]:
    """Let `gepa` go through the candidates of a front in the order of their acceptance."""
    from gepa.core.state import GEPAState

    as_it_is = GEPAState.get_pareto_front_mapping

    def in_order(state: Any) -> dict[Any, set[int]]:
        return {key: Ascending(front) for key, front in as_it_is(state).items()}

    GEPAState.get_pareto_front_mapping = in_order  # type: ignore[method-assign]
    try:
        yield
    finally:
        GEPAState.get_pareto_front_mapping = as_it_is  # type: ignore[method-assign]


SET_ORDER = "of equal means, the package drops the one that comes first in a Python set"


def gepa_report(script: Script, iterations: int, reason: str = "") -> Report:
    """The engine of `gepa` against `Pool`, draw by draw, on examples and two objectives."""
    import gepa
    from gepa.core.adapter import EvaluationBatch
    from gepa.strategies.batch_sampler import EpochShuffledBatchSampler
    from gepa.strategies.candidate_selector import ParetoCandidateSelector

    report = Report(f"gepa, {script}", reason)
    seed = replace(SEED, examples=tuple(ExampleScore(each, 0.3) for each in range(EXAMPLES)))
    known: dict[str, Candidate] = {seed.id: replace(seed, metrics={"speed": 0.5, "size": 0.5})}
    chosen: list[str] = []
    children: list[Candidate | None] = []

    class Adapter:
        """Scores by the script; a candidate's text is its id."""

        propose_new_texts = None

        def evaluate(self, batch: list[int], candidate: Any, capture_traces: bool = False) -> Any:
            """The scores of a candidate on some examples."""
            found = known[candidate["program"]]
            scores = [found.examples[place].score for place in batch]
            gains = [dict(found.metrics) for _ in batch]
            return EvaluationBatch(batch, scores, [*batch], gains)

        def make_reflective_dataset(self, candidate: Any, judged: Any, names: Any) -> Any:
            """Something for each component."""
            return {name: [{}] for name in names}

    def propose(candidate: dict[str, str], dataset: Any, names: Any) -> dict[str, str]:
        parent = known[candidate["program"]]
        chosen.append(parent.id)
        child = script.child(len(chosen), parent)
        if child is not None:
            child = known[child.id] = judged(child, parent, script.seed)
        children.append(child)
        return {"program": child.id} if child else {}

    rng = SortedChoice(script.seed)
    gepa.optimize(
        {"program": seed.id},
        [*range(EXAMPLES)],
        adapter=Adapter(),  # type: ignore[arg-type]
        custom_candidate_proposer=propose,
        candidate_selection_strategy=ParetoCandidateSelector(rng),
        batch_sampler=EpochShuffledBatchSampler(3, rng),
        frontier_type="hybrid",
        skip_perfect_score=False,
        stop_callbacks=lambda state: state.i + 1 >= iterations,
        logger=SimpleNamespace(log=lambda text: None),
    )
    begun, texts = Random(script.seed), dict[str, str]()
    ours = Pool.begin(seed, texts.__getitem__, begun, known[seed.id].metrics)
    for number, (theirs, child) in enumerate(zip(chosen, children, strict=True), start=1):
        choice = ours.choose(0, texts.__getitem__, begun)
        report.compare(f"iteration {number}", theirs, choice.parent)
        ours.land(0, child, texts.__getitem__, begun, child.metrics if child else NO_GAINS)
    return report


class ScriptedMetaModel:
    """The meta model of `shinka-evolve`: its recommendations are numbered by its notes."""

    def __init__(self) -> None:
        self.num_queries = 0

    def get_kwargs(self) -> dict[str, Any]:
        """No options."""
        return {}

    def batch_kwargs_query(self, num_samples: int, msg: list[str], **options: Any) -> list[Any]:
        """A summary of each program."""
        return [SimpleNamespace(content="a summary", cost=0.0) for _ in msg]

    def query(self, **options: Any) -> Any:
        """Insights, then recommendations."""
        self.num_queries += 1
        return SimpleNamespace(content=recommended(self.num_queries // 2), cost=0.0)


def recommended(number: int) -> str:
    """The recommendations of some notes, by their number."""
    return f"Next:\n1. first of {number}\n2. second of {number}\n   goes on\n3. third of {number}"


@contextmanager
def shinka_draws(rng: Random, islands: Random) -> Iterator[None]:
    """Let `shinka-evolve` draw from these, as it draws from three generators of its own."""
    import numpy
    from shinka.core import summarizer
    from shinka.database import island_sampler

    def choice(members: Any, p: Any) -> Any:
        return rng.choices([*members], [*p])[0]

    before = summarizer.random, island_sampler.random, numpy.random.choice
    summarizer.random, island_sampler.random, numpy.random.choice = rng, islands, choice
    try:
        yield
    finally:
        summarizer.random, island_sampler.random, numpy.random.choice = before


def shinkaevolve_report(script: Script, iterations: int) -> Report:
    """Database, sampler and summarizer of `shinka-evolve` against `Islands`, draw by draw."""
    from rich.console import Console
    from shinka.core.sampler import PromptSampler
    from shinka.core.summarizer import MetaSummarizer
    from shinka.database import DatabaseConfig, ProgramDatabase
    from shinka.database import Program as TheirProgram

    report = Report(f"shinkaevolve, {script}")
    rng, islands = Random(script.seed), Random(f"islands {script.seed}")
    database, sampler = ProgramDatabase(DatabaseConfig()), PromptSampler()
    database.set_display_console(Console(quiet=True))
    database.conn.create_function("RANDOM", 0, rng.random)
    meta = MetaSummarizer(ScriptedMetaModel())  # type: ignore[arg-type]
    known = {SEED.id: SEED}
    chosen: list[tuple[object, ...]] = []
    children: list[Candidate | None] = []

    def candidate_id(program: Any) -> str:
        return str(program.metadata.get("_original_program_id", program.id))

    def add(child: Candidate, number: int, parent: Any = None) -> None:
        program = TheirProgram(
            id=child.id,
            code=child.program.text,
            parent_id=parent.id if parent else None,
            generation=number,
            timestamp=float(number),
            combined_score=child.score,
            correct=child.is_valid,
            metadata={"patch_name": child.id},
        )
        database.add(program)
        database.check_scheduled_operations()
        meta.add_evaluated_program(program)
        if meta.should_update_meta(META_INTERVAL):
            meta.update_meta_memory(database.get_best_program())

    with shinka_draws(rng, islands):
        add(SEED, 0)
        for number in range(1, iterations + 1):
            advice = meta.get_sampled_recommendation() or ""
            parent, archived, top, _ = database.sample_with_fix_mode()
            system, _, patch = sampler.sample(parent, archived, top, advice or None)
            shown = sampler.context_builder.build_context(archived, top)
            chosen.append(
                (
                    parent.island_idx,
                    candidate_id(parent),
                    tuple(map(candidate_id, shown)),
                    str(patch),
                    advice if advice in system else "",
                )
            )
            child = script.child(number, known[candidate_id(parent)])
            children.append(child)
            if child is not None:
                known[child.id] = child
                add(child, number, parent)

    begun, allotted = Random(script.seed), Random(f"islands {script.seed}")
    texts, num_notes = dict[str, str](), 0
    controller = ShinkaEvolve(incumbent_score=SEED.score)
    ours = Islands.begin(SEED, texts.__getitem__, begun)
    for number, (theirs, child) in enumerate(zip(chosen, children, strict=True), start=1):
        island = controller.ask(Balance(1.0, 0.0), allotted, Constants()).frontier
        choice = ours.choose(island, texts.__getitem__, begun)
        found = island, choice.parent, choice.shown, choice.mode, choice.advice
        report.compare(f"iteration {number}", theirs, found)
        ours.land(island, child, texts.__getitem__, begun)
        if child is not None:
            ours.unread.append(child.id)
            if ours.has_notes_due:
                num_notes += 1
                ours.take_notes("insights", numbered_points(recommended(num_notes)))
    return report


def main() -> int:
    """Compare all packages that are installed in the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the packages are installed")
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    sys.path.append(str(given.folder))
    logging.disable(logging.CRITICAL)
    scripts = [Script(seed, ties=seed % 2 == 1) for seed in range(given.seeds)]
    reports = [openevolve_report(each, given.iterations) for each in scripts]
    failing = [replace(each, failure_rate=OFTEN) for each in scripts]
    reports += [openevolve_report(each, given.iterations, SMALL) for each in failing]
    # the evaluator of the script refuses no program of a data set
    judging = [replace(each, error_rate=0.0) for each in scripts]
    reports += [gepa_report(each, given.iterations, SET_ORDER) for each in judging]
    with ascending_fronts():
        reports += [gepa_report(each, given.iterations) for each in judging]
    reports += [shinkaevolve_report(each, given.iterations) for each in scripts]
    print(*reports, sep="\n")
    return any(each.differences for each in reports if not each.reason)


if __name__ == "__main__":
    sys.exit(main())
