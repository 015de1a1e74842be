"""Many independent pieces of work in several processes."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

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

    With one job, this process does the work.
    """
    if num_jobs == 1:
        yield map(work, runs)
        return
    # Ctrl-C is for this process to handle, not for its workers.
    ignoring = (signal.SIGINT, signal.SIG_IGN)
    with get_context("spawn").Pool(num_jobs, signal.signal, ignoring) as pool:
        yield pool.imap_unordered(work, runs, chunksize=runs_per_task)
