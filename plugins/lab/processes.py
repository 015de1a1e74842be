"""Many independent pieces of work in several processes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from typing import TypeVar

from costada.evaluators.remote.worker_processes import WorkerProcesses

Run = TypeVar("Run")
Result = TypeVar("Result")

RUNS_PER_TASK = 8
"""Runs that a process gets at once: few enough for frequent progress updates."""


@contextmanager
def in_processes(
    work: Callable[[Run], Result],
    runs: Sequence[Run],
    num_jobs: int,
    *,
    runs_per_task: int = RUNS_PER_TASK,
) -> Iterator[Iterator[Result]]:
    """Iterate over what work makes of each run, in any order; leaving the block stops the rest.

    With one job, this process does the work. Ctrl-C is for this process to handle, not for others.
    """
    if num_jobs == 1:
        yield map(work, runs)
        return
    workers = WorkerProcesses(num_jobs)
    try:
        tasks = [
            workers.submit(_results, work, runs[start : start + runs_per_task])
            for start in range(0, len(runs), runs_per_task)
        ]
        yield (result for task in as_completed(tasks) for result in task.result())
    finally:
        workers.shutdown(cancel_futures=True)


def _results(work: Callable[[Run], Result], runs: Sequence[Run]) -> list[Result]:
    return [work(run) for run in runs]
