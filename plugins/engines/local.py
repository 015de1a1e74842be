"""Evaluations in worker processes of this machine."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Future
from typing import Any

from costada.evaluators.remote.engine import (
    ExecutorEngine,
    Resources,
    SweepSettings,
    engine_and_place,
)
from costada.evaluators.remote.worker_processes import WorkerProcesses
from costada.evaluators.sandbox.concurrency import available_cores


class LocalEngine(ExecutorEngine):
    """Worker processes on this machine, at an address `local:N`."""

    def __init__(self, address: str, settings: SweepSettings | None = None) -> None:
        """Use at most N processes."""
        self._number = int(engine_and_place(address)[1])
        self.workers = WorkerProcesses(self._number)
        super().__init__(self.workers)
        self.name = address

    def check(self, needs: Resources) -> str:
        """Refuse resources that are not assigned to processes of one machine."""
        if needs.gpus:
            raise ValueError(
                f"evaluate_on is {self.name!r}, which assigns no GPUs, and the problem has gpus ="
                f" {needs.gpus:g}; expected dask://HOST:PORT or ray://HOST:PORT"
            )
        if needs.cpus > 1 and (wanted := needs.cpus * self._number) > available_cores():
            raise ValueError(
                f"evaluate_on is {self.name!r}, and the problem has cpus = {needs.cpus}: they need"
                f" {wanted} cores; expected at most {available_cores()}, which this machine has"
            )
        return ""

    def cancel(self, *jobs: Future[Any]) -> None:
        """Kill the processes that execute them."""
        for job in jobs:
            if not job.cancel():
                self.workers.stop(job)

    def lost(self, error: BaseException) -> float | None:
        """Each process is lost alone; an evaluator's own pools raise subclasses of that error."""
        return 1 if type(error) is BrokenExecutor else None

    def close(self) -> None:
        """End the processes."""
        self.workers.shutdown(cancel_futures=True)
