"""Run folders written by hand, of any length and with any texts."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rows import call_row, trace_row

from costada.reports.page.server import PageServer
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.store.call_log import CallKey
from costada.store.rows import CallRow, CallStatus, Outcome, OutcomeKind
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
        "iteration": iteration,
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
        "iteration": iteration,
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


def fail_call(run: RunFolder, iteration: int, reason: str) -> None:
    """Note that the request of an iteration came to nothing."""
    with RunStore(run.database) as store:
        key = CallKey("run", iteration, "generation", 1)
        store.call_log.put_outcome(key, Outcome("", reason, OutcomeKind.FAILURE))


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


@contextmanager
def serving(folder: RunFolder) -> Iterator[PageServer]:
    """A server of a run's page that answers from its own thread."""
    with PageServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
