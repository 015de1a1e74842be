"""Engines that are executors of Python: the caller's own, and processes of this machine."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

from costada.evaluators.remote.dask_engine import DASK_LOSSES
from costada.evaluators.remote.engine import GONE, Resources, lost_workers
from costada.evaluators.remote.local_workers import LocalWorkers
from costada.evaluators.remote.worker import answer
from costada.evaluators.sandbox.fair_semaphore import available_cores

OWN_LOSSES = {"concurrent.futures._base.BrokenExecutor": GONE, **DASK_LOSSES}


class OwnExecutor:
    """An executor of the caller, which assigns no resources."""

    faults: tuple[type[Exception], ...] = (RuntimeError, OSError)

    def __init__(self, executor: Executor) -> None:
        """Take an open executor; the caller closes it."""
        self.name = type(executor).__name__
        self._executor = executor

    def check(self, needs: Resources) -> str:
        """Note which resources are not requested from the executor."""
        if needs.gpus or needs.cpus > 1:
            return (
                f"evaluations: {self.name} is not asked for the problem's cpus = {needs.cpus} and"
                f" gpus = {needs.gpus:g}; its workers must have them"
            )
        return ""

    def submit(self, needs: Resources, *args: Any) -> Future[bytes]:
        """Submit to the executor; a broken or closed one raises `RuntimeError`."""
        return self._executor.submit(answer, *args)

    def stop(self, future: Future[bytes]) -> None:
        """Cancel an evaluation that has not started."""
        future.cancel()

    def lost(self, error: BaseException) -> float | None:
        """An executor that is closed or broken is gone."""
        return lost_workers(error, OWN_LOSSES)

    def raised(self, error: BaseException) -> BaseException:
        """The error itself."""
        return error

    def has_worker(self, needs: Resources) -> bool:
        """Always; an executor that cannot evaluate fails its futures."""
        return True

    def is_connected(self) -> bool:
        """Always, see `has_worker`."""
        return True

    def close(self) -> None:
        """Leave the executor to the caller."""


class LocalEngine(OwnExecutor):
    """Worker processes on this machine."""

    def __init__(self, number: int) -> None:
        """Use at most `number` processes."""
        self._workers = LocalWorkers(number)
        super().__init__(self._workers)
        self._number = number
        self.name = f"local:{number}"

    def check(self, needs: Resources) -> str:
        """Refuse resources that are not assigned to processes of one machine."""
        if needs.gpus:
            raise ValueError(
                f"evaluations is {self.name!r}, which assigns no GPUs, and the problem has gpus ="
                f" {needs.gpus:g}; expected dask://HOST:PORT or ray://HOST:PORT"
            )
        if needs.cpus > 1 and (wanted := needs.cpus * self._number) > available_cores():
            raise ValueError(
                f"evaluations is {self.name!r}, and the problem has cpus = {needs.cpus}: they need"
                f" {wanted} cores; expected at most {available_cores()}, which this machine has"
            )
        return ""

    def stop(self, future: Future[bytes]) -> None:
        """Kill the process that runs it."""
        if not future.cancel():
            self._workers.stop(future)

    def close(self) -> None:
        """End the processes."""
        self._workers.shutdown(cancel_futures=True)

    def lost(self, error: BaseException) -> float | None:
        """Each process is lost alone; an evaluator's own pools raise subclasses of that error."""
        return 1 if type(error) is BrokenExecutor else None
