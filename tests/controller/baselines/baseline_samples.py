"""Candidates, steps and a small loop that the tests of this folder share."""

import json
from collections.abc import Iterator, Sequence
from random import Random

from costada.controller.archive import Archive, Candidate
from costada.controller.baselines.adaevolve import AdaEvolve, AdaEvolveState
from costada.controller.baselines.adaevolve_frontiers import AdaEvolveFrontier
from costada.controller.baselines.evox import EvoX
from costada.controller.baselines.progress import Progress
from costada.controller.constants import Constants
from costada.controller.guidance import is_active
from costada.controller.method import STRATEGY, Controller, PaidStep, ParentRule
from costada.controller.methods import METHODS

CONSTANTS = Constants()


def candidate(id: str, score: float, code: str | None = None) -> Candidate:
    """Return a candidate whose text is its own unless one is given."""
    text = f"{id} = {id}" if code is None else code
    return Candidate(id, text, score, None, 0, 1, {}, {}, "")


def archive(*members: Candidate, size: int = 20) -> Archive:
    """Return an archive that holds the members in this order."""
    return Archive(members, size)


def kept(score: float) -> PaidStep:
    """Return a step whose candidate entered the archive."""
    return PaidStep(score, is_kept=True, cost=0.01, spent=0.5)


def refused(score: float) -> PaidStep:
    """Return a step whose candidate a full archive refused."""
    return PaidStep(score, is_kept=False, cost=0.01, spent=0.5)


FAILED = PaidStep(None, is_kept=False, cost=0.01, spent=0.5)


def adaevolve(
    *frontiers: AdaEvolveFrontier,
    incumbent_score: float = 0.5,
    global_best: float | None = None,
    iteration: int = 5,
    **more: object,
) -> AdaEvolve:
    """Return a controller in the middle of a run."""
    best = incumbent_score if global_best is None else global_best
    progress = Progress(iteration, incumbent_score)
    history = more.pop("history", (True,))
    return AdaEvolve(AdaEvolveState(progress, frontiers, best, history, **more), CONSTANTS)


def open_archives(controller: Controller, seed_score: float, size: int) -> tuple[Archive, ...]:
    """Return the archives a run begins with."""
    return tuple(
        Archive((candidate(f"0.{number}", seed_score, "seed"),), size, weights)
        for number, weights in enumerate(controller.archive_weights, start=1)
    )


def bill(steps: int, amount: float = 0.01) -> list[tuple[float, float]]:
    """Return cost and ledger of each step where every step costs the same."""
    return [(amount, amount * step) for step in range(1, steps + 1)]


def guided(controller: Controller, guides: int) -> Controller:
    """Return the controller after its pending guide, or EvoX after its labels."""
    if isinstance(controller, EvoX):
        return controller.with_labels()
    return controller.fail_guide() if guides % 3 == 0 else controller.open_cycle(guides % 3)


def evolved(controller: EvoX, guides: int) -> EvoX:
    """Return the controller after the evolution that it asked for."""
    return controller.keep_strategy() if guides % 3 == 1 else controller.adopt(f"no. {guides}")


def played(
    name: str,
    scores: Sequence[float | None],
    bills: Sequence[tuple[float, float]],
    *,
    budget: float = 1.0,
    constants: Constants = CONSTANTS,
    seed: int = 0,
) -> Iterator[tuple[Controller, tuple[Archive, ...]]]:
    """Yield controller and archives after each step of a run whose scores are given.

    Two attempts are made in every fourth step. Every third guide fails, the others yield one or
    two tactics. EvoX adopts a strategy, adopts another, keeps it, and so on; in every 25th step
    the one in use fails.
    """
    controller: Controller = METHODS[name].start(0.5, budget, constants)
    archives = open_archives(controller, 0.5, constants.archive_size)
    guides = 0
    for iteration, (score, (cost, spent)) in enumerate(zip(scores, bills, strict=True), start=1):
        if controller.pending:
            guides += 1
            controller = guided(controller, guides)
        allocation = controller.allocate(Random(f"{seed}/{iteration}/allocate"))
        if isinstance(controller, EvoX) and iteration % 25 == 0:
            controller = controller.fall_back()
        for _ in range(2 if iteration % 4 == 0 else 1):
            if is_active(controller.cycle):
                controller, _ = controller.use_tactic()
        is_kept = score is not None
        if score is not None and controller.parents is ParentRule.ARCHIVE:
            before, newcomer = archives[allocation.frontier], candidate(f"c{iteration}", score)
            after = before.insert(newcomer)
            is_kept = after is not before
            archives = tuple(after if each is before else each for each in archives)
        step = PaidStep(score, is_kept, cost, spent)
        controller, _ = controller.credit(allocation, step)
        controller, archives = controller.maintain(archives, Random(f"{seed}/{iteration}/m"))
        is_last = iteration >= constants.max_iterations
        controller, _ = controller.intervene(allocation, is_last=is_last)
        if isinstance(controller, EvoX) and controller.pending == STRATEGY:
            guides += 1
            controller, _ = evolved(controller, guides).intervene(allocation)
        yield controller, archives


def records(*args: object, **settings: object) -> list[str]:
    """Return the records of a run as text, one per step."""
    return [json.dumps(controller.record()) for controller, _ in played(*args, **settings)]


def random_scores(seed: int, steps: int) -> list[float | None]:
    """Return scores that mostly stay behind, sometimes fail, and now and then rise."""
    rng = Random(seed)
    best, scores = 0.5, []
    for _ in range(steps):
        draw = rng.random()
        score = best + rng.random() * 0.2 if draw < 0.06 else best - rng.choice([0.0, 0.1, 0.3])
        scores.append(None if draw > 0.9 else score)
        best = max(best, score) if draw < 0.06 else best
    return scores
