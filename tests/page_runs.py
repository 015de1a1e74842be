"""Run folders written by hand, of any length and with any texts."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from rows import call_row, trace_row

from costada.controller.arms import ModelOption, Money, posterior
from costada.controller.router import Router, start_router
from costada.controller.router_rules import DEFAULT_ROUTER
from costada.reports.alerts import AlertLimits
from costada.reports.indexed_run import NO_LIMITS
from costada.reports.page_server import PageServer
from costada.reports.run_index import RunIndex
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.store.candidates import FRONT
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate, Program
from costada.values.usage import Usage

PROGRAM = "def value():\n    return {value}\n"
COST = 0.002


def step(iteration: int, **changes: Any) -> dict[str, Any]:
    fields = {
        "frontier": 1 + iteration % 2,
        "action": ("exploration", "balanced", "exploitation")[iteration % 3],
        "intensity": 0.4,
        "step_cost": COST,
        "spent": COST * iteration,
        "remaining_ratio": 1 - COST * iteration,
        "low_yield_cost": 0.0,
        "candidate_id": f"{changes.get('ticket', iteration)}.1",
        **dict.fromkeys(("score", "objective", "best_score", "best_objective"), 0.5),
    }
    return trace_row(iteration=iteration, **{**fields, **changes})


def candidate(iteration: int, **changes: Any) -> Candidate:
    fields: dict[str, Any] = {
        "id": f"{iteration}.1" if iteration else "0.1",
        "ticket": iteration,
        "program": Program.of(PROGRAM.format(value=iteration)),
        "score": 0.5,
        "objective": 0.5,
        "is_valid": True,
        "metrics": {"combined_score": 0.5},
        "artifacts": {},
        "error": None,
        "parent_id": "0.1" if iteration else None,
        "generation": min(iteration, 1),
        "changes": "1 line -> 1 line",
    }
    return Candidate(**{**fields, **changes})


def call(iteration: int, **changes: Any) -> CallRow:
    fields: dict[str, Any] = {
        "ticket": iteration,
        "model": "scripted",
        "usage": Usage(1000, 500),
        "seconds": 0.25,
        "ended_at": 1_700_000_000 + 0.3 * iteration,
        "prompt": f"Change the program of iteration {iteration}.",
        "answer": f"Here it is: {iteration}.",
        "status": CallStatus.DONE,
    }
    return call_row(**{**fields, **changes})


def settings(folder: Path, **changes: Any) -> RunFolder:
    """A new folder with the settings of a run."""
    run = RunFolder(folder)
    fields = {"problem": "object:toy", "model": "scripted", "max_iterations": 10}
    run.claim(RunConfig(**{**fields, **changes}))
    return run


def write_steps(run: RunFolder, steps: list[dict[str, Any]], **others: list[Any]) -> None:
    """Add finished steps to a run, each with a request and a candidate unless they are given."""
    with RunStore(run.database) as store:
        if not store.run_ids():
            store.open_run("run", "costada", "toy", "bubblewrap")
            store.candidates.put("run", candidate(0))
        calls = others.get("calls", [call(row["ticket"]) for row in steps])
        found = others.get("candidates", [candidate(row["ticket"]) for row in steps])
        for each in calls:
            store.call_log.put_call("run", each)
        for each in found:
            store.candidates.put("run", each)
        for row in steps:
            store.put_step("run", row["iteration"], row)


def long_run(folder: Path, length: int, text: Callable[[int], tuple[str, str, str]]) -> RunFolder:
    """Write a run of any length; `text` gives prompt, answer and program of an iteration."""
    run, rng, best = settings(folder, max_iterations=length, budget=10.0), random.Random(7), 0.1
    with RunStore(run.database) as store, store._db.transaction():
        store.open_run("run", "costada", "toy", "bubblewrap")
        store.candidates.put("run", candidate(0, score=best, objective=best))
        for iteration in range(1, length + 1):
            found = min(0.999, rng.random() * best * 1.4)
            gain = max(0.0, found - best)
            best = max(best, found)
            events = ["guide_charged"] if iteration % 40 == 0 else []
            events += ["guide_scheduled:refinement"] if iteration % 40 == 39 else []
            facts = dict.fromkeys(("global_gain", "utility", "allocation_reward"), gain)
            facts |= {"score": found, "objective": found, "best_score": best}
            facts |= {"best_objective": best, "remaining_ratio": 1 - COST * iteration / 10}
            prompt, answer, program = text(iteration)
            store.call_log.put_call("run", call(iteration, prompt=prompt, answer=answer))
            parent = f"{max(0, iteration - rng.randint(1, 40))}.1"
            own = {"score": found, "objective": found, "parent_id": parent}
            own_program = Program.of(program)
            store.candidates.put("run", candidate(iteration, **own, program=own_program))
            row = step(iteration, **facts, events=events, frontier=rng.randint(1, 2))
            store.put_step("run", iteration, row)
    return run


MENU = {"small": 0.001, "middle": 0.005, "large": 0.025}
"""Models at prices of 1:5:25, with what an attempt costs."""


def router_rows(router: Router) -> list[dict[str, Any]]:
    """The rows of a trace that say what a router knows."""
    return [
        {**asdict(each), "mean": posterior(each).mean, "deviation": posterior(each).deviation}
        for each in router.record()
    ]


def menu_run(folder: Path, length: int, disabled: int = 0) -> RunFolder:
    """Write a run of three models; the most expensive may be disabled in an iteration."""
    run, rng = settings(folder, max_iterations=length, budget=1.0), random.Random(5)
    router, spent, best = start_router(DEFAULT_ROUTER, list(MENU)), 0.0, 0.2
    options = [ModelOption(name, expected) for name, expected in MENU.items()]
    write_steps(run, [])
    for number in range(1, length + 1):
        if number == disabled:
            router = router.disable("large")
        models, calls, cost, found = list[str](), list[CallRow](), 0.0, 0.0
        while not found and len(models) < 2:
            name = router.choose(options, Money(1.0, 1.0 - spent), len(models) + 1, rng)
            assert name
            models.append(name)
            dollars = round(MENU[name] * rng.uniform(0.6, 1.4), 6)
            reach = {"small": 0.06, "middle": 0.12, "large": 0.3}[name] * (1.0 - best)
            found = 0.0 if rng.random() < 0.3 else best - 0.04 + reach * rng.random()
            router = router.tell(name, found or None, best, dollars, has_reference=True)
            cost, spent = cost + dollars, spent + dollars
            facts = {"entry": name, "model": name, "role": "retry" if calls else "generation"}
            calls.append(call(number, attempt=len(models), cost=Decimal(str(dollars)), **facts))
        gain, best = max(0.0, found - best), max(best, found)
        scores = {"score": found or None, "objective": found or None, "best_score": best}
        facts = {"step_cost": cost, "spent": spent, "remaining_ratio": max(0.0, 1.0 - spent)}
        facts |= {"global_gain": gain, "best_objective": best, "attempts": len(models)}
        facts |= {"failure": None if found else "ValueError: no"}
        facts |= {"events": ["disabled:large"] if number == disabled else []}
        row = step(number, **scores, **facts, models=models, router=router_rows(router))
        own = candidate(number, score=found, objective=found or None, is_valid=bool(found))
        write_steps(run, [row], calls=calls, candidates=[own])
    return run


def front_run(folder: Path, goals: dict[str, list[float]], front: list[int]) -> RunFolder:
    """Write a run of several objectives: the values of the start and of each iteration, by name."""
    run, length = settings(folder), len(next(iter(goals.values())))
    found, steps = list[Candidate](), list[dict[str, Any]]()
    for iteration in range(length):
        values = {name: each[iteration] for name, each in goals.items()}
        metrics = {name.rpartition(":")[0]: value for name, value in values.items()}
        found.append(candidate(iteration, metrics=metrics))
        kinds = {"objectives": values, "front": len(front), "measurements": [0.5, 0.25]}
        steps.append(step(iteration, **kinds, confirmation=[0.75, 0.5] if iteration == 1 else []))
    write_steps(run, steps[1:], candidates=found)
    with RunStore(run.database) as store:
        store.candidates.put_archive("run", FRONT, 1, [found[0].id])
        store.candidates.put_archive("run", FRONT, 2, [found[place].id for place in front])
    return run


@contextmanager
def serving(folder: RunFolder) -> Iterator[PageServer]:
    """A server of a run's page that answers from its own thread."""
    with serving_path(folder.path) as server:
        yield server


@contextmanager
def serving_path(path: Path, limits: AlertLimits = NO_LIMITS) -> Iterator[PageServer]:
    """A server of a path, a run or a folder of runs, that answers from its own thread."""
    with PageServer(RunIndex(path, RunFolder, limits)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
