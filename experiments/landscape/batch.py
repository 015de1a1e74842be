"""Many simulated runs: which there are, and how they are shared out among processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context

from costada.controller.methods import METHODS
from costada.experiments.comparison.metrics import RunOutcome
from costada.experiments.landscape.run import simulate_run
from costada.runs.user_input import listed_or_all, unknown_name

RUNS_PER_TASK = 8
"""Runs a process is handed at once: few enough for a lively progress line."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The runs of a simulation: every method on the landscape of every seed.

    Attributes:
        methods: Names of methods.
        seeds: Where each run's randomness starts.
        budget: Dollars of each run (B).
    """

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    budget: float

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Return the method and the seed of each run, seed by seed."""
        return [(method, seed) for seed, method in product(self.seeds, self.methods)]


def methods_named(text: str) -> tuple[str, ...]:
    """Return the methods of a list with commas, or all of them.

    Raises:
        ValueError: If a name is unknown or occurs twice, or there is none.
    """
    names = listed_or_all("--methods", text, METHODS)
    for name in names:
        if name not in METHODS:
            raise ValueError(unknown_name("method", name, METHODS))
    if len(set(names)) < len(names):
        raise ValueError(f"--methods: got {text!r}, expected different methods")
    return names


@contextmanager
def simulated(batch: Batch, num_jobs: int) -> Iterator[Iterator[RunOutcome]]:
    """Give the finished runs one after the other, in any order; leaving ends what still runs.

    Args:
        batch: The runs.
        num_jobs: Processes at once; with 1 this process does the work.
    """
    work = partial(_carried_out, budget=batch.budget)
    if num_jobs == 1:
        yield map(work, batch.runs)
        return
    with get_context("spawn").Pool(num_jobs, _leave_signals_to_parent) as pool:
        yield pool.imap_unordered(work, batch.runs, chunksize=RUNS_PER_TASK)


def in_order(batch: Batch, outcomes: Sequence[RunOutcome]) -> list[RunOutcome]:
    """Return the runs by seed and method, so that the same batch always reads the same."""
    places = {run: place for place, run in enumerate(batch.runs)}
    return sorted(outcomes, key=lambda each: places[each.method, each.seed])


def _carried_out(run: tuple[str, int], budget: float) -> RunOutcome:
    method, seed = run
    return simulate_run(method, seed, budget)


def _leave_signals_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
