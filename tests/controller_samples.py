"""Candidates, steps and a small loop that the tests of this folder share."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from costada.controller.allocation import Allocation
from costada.controller.archive import Archive
from costada.controller.baselines.adaevolve import AdaEvolve
from costada.controller.baselines.adaevolve_frontiers import AdaEvolveFrontier
from costada.controller.constants import Constants
from costada.controller.credit import Balance, Credit
from costada.controller.guidance import Intervention, is_active
from costada.controller.method import Controller, Guided, PaidStep, ParentRule
from costada.controller.methods import METHODS
from costada.controller.step import num_seeds, seed_archives, tell_step
from costada.values.candidate import Candidate, Program

CONSTANTS = Constants()
BALANCE = Balance(1.0, 0.5)


def candidate(
    id: str,
    score: float,
    code: str | None = None,
    *,
    parent_id: str | None = None,
    ticket: int = 0,
) -> Candidate:
    text = f"{id} = {id}" if code is None else code
    return Candidate(
        id=id,
        program=Program.of(text),
        score=score,
        parent_id=parent_id,
        ticket=ticket,
        generation=1,
        metrics={"speed": 2.0},
        artifacts={"note": "x"},
    )


def ids(members: tuple[Candidate, ...]) -> list[str]:
    return [member.id for member in members]


def archive(*members: Candidate, size: int = 20) -> Archive:
    return Archive(members, size)


def kept(score: float) -> PaidStep:
    return PaidStep(score, is_kept=True, cost=0.01)


def refused(score: float) -> PaidStep:
    return PaidStep(score, is_kept=False, cost=0.01)


FAILED = PaidStep(None, is_kept=False, cost=0.01)


def ask(controller: Any, seed: int = 1, constants: Constants = CONSTANTS) -> Allocation:
    return controller.ask(BALANCE, Random(seed), constants)


def tell(
    controller: Any, allocation: Allocation, step: PaidStep, constants: Constants = CONSTANTS
) -> tuple[Any, Credit]:
    return controller.tell(allocation, step, BALANCE, constants)


def decide(
    controller: Any,
    allocation: Allocation,
    constants: Constants = CONSTANTS,
    *,
    is_last: bool = False,
) -> tuple[Any, Intervention]:
    return controller.decide(allocation, BALANCE, constants, is_last=is_last)


def adaevolve(
    *frontiers: AdaEvolveFrontier,
    incumbent_score: float = 0.5,
    global_best: float | None = None,
    iteration: int = 5,
    history: tuple[bool, ...] = (True,),
    **more: Any,
) -> AdaEvolve:
    return AdaEvolve(
        iteration=iteration,
        incumbent_score=incumbent_score,
        frontiers=frontiers,
        global_best=incumbent_score if global_best is None else global_best,
        history=history,
        **more,
    )


def bill(steps: int, amount: float = 0.01) -> list[tuple[float, float]]:
    return [(amount, amount * step) for step in range(1, steps + 1)]


def is_evox(controller: Any) -> bool:
    return "evox" in METHODS and type(controller) is METHODS["evox"].kind


def advised(controller: Any, guides: int, constants: Constants) -> Controller:
    if is_evox(controller):
        return controller.with_labels()
    if guides % 3 == 0:
        return controller.fail_guide()
    return controller.open_cycle(guides % 3, constants)


def evolved(controller: Any, guides: int, constants: Constants) -> Any:
    if guides % 3 == 1:
        return controller.keep_strategy(constants)
    return controller.adopt(f"no. {guides}", constants)


def played(
    name: str,
    scores: Sequence[float | None],
    bills: Sequence[tuple[float, float]],
    *,
    budget: float = 1.0,
    constants: Constants = CONSTANTS,
    seed: int = 0,
) -> Iterator[tuple[Any, tuple[Archive, ...]]]:
    """Yield controller and archives after each step of a run whose scores are given.

    Two attempts are made in every fourth step. Every third guide fails, the others yield one or
    two tactics. EvoX adopts a strategy, adopts another, keeps it, and so on; in every 25th step
    the one in use fails.
    """
    controller: Controller = METHODS[name].start(0.5, constants)
    seeds = [candidate(f"0.{number + 1}", 0.5, "seed") for number in range(num_seeds(controller))]
    archives = seed_archives(controller, seeds, constants)
    spent, guides = 0.0, 0
    for iteration, (score, (cost, after)) in enumerate(zip(scores, bills, strict=True), start=1):
        if controller.pending:
            guides += 1
            controller = advised(controller, guides, constants)
        rng = Random(f"{seed}/{iteration}/allocate")
        allocation = controller.ask(Balance(budget, spent), rng, constants)
        if is_evox(controller) and iteration % 25 == 0:
            controller = controller.fall_back()
        is_guided = False
        for _ in range(2 if iteration % 4 == 0 else 1):
            if isinstance(controller, Guided) and is_active(controller.cycle):
                controller, _ = controller.use_tactic(is_first=not is_guided)
                is_guided = True
        balance = Balance(budget, spent := after)
        is_last = iteration >= constants.max_iterations
        if is_evox(controller) and not is_last:
            controller = controller.review(score, constants)
            if controller.pending == "strategy":
                guides += 1
                controller = evolved(controller, guides, constants)
        booked = tell_step(
            controller,
            archives if controller.parents is ParentRule.ARCHIVE else (),
            allocation,
            None if score is None else candidate(f"c{iteration}", score),
            cost,
            balance,
            seed,
            constants,
            is_guided=is_guided,
        )
        archives = booked.archives
        controller, _ = booked.controller.decide(allocation, balance, constants, is_last=is_last)
        yield controller, archives


def records(*args: Any, **settings: Any) -> list[Controller]:
    return [controller for controller, _ in played(*args, **settings)]


def random_scores(seed: int, steps: int) -> list[float | None]:
    rng = Random(seed)
    best, scores = 0.5, []
    for _ in range(steps):
        draw = rng.random()
        score = best + rng.random() * 0.2 if draw < 0.06 else best - rng.choice([0.0, 0.1, 0.3])
        scores.append(None if draw > 0.9 else score)
        best = max(best, score) if draw < 0.06 else best
    return scores
