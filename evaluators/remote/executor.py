"""The engine of an executor that the caller has opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, ClassVar

from costada.evaluators.remote.engine import ALL_WORKERS, Call, Engine, Resources

DASK_LOSSES = {
    "distributed.client.FutureCancelledError": ALL_WORKERS,
    "distributed.comm.core.CommClosedError": ALL_WORKERS,
    "distributed.scheduler.NoValidWorkerError": ALL_WORKERS,
    "distributed.scheduler.NoWorkerError": ALL_WORKERS,
}
"""Also of an executor that a Dask client has made."""


class ExecutorEngine(Engine):
    """An executor of the caller, which assigns no resources. The caller closes it."""

    losses: ClassVar[Mapping[str, float]] = {
        "concurrent.futures._base.BrokenExecutor": ALL_WORKERS,
        **DASK_LOSSES,
    }

    def __init__(self, executor: Executor) -> None:
        """Take an open executor."""
        self.name = type(executor).__name__
        self._executor = executor

    def start(self, calls: Sequence[Call]) -> list[Future[Any]]:
        """Submit to the executor; a broken or closed one raises `RuntimeError`."""
        return [self._executor.submit(call.function, *call.arguments) for call in calls]

    def check(self, needs: Resources) -> str:
        """Note which resources are not requested from the executor."""
        if needs.gpus or needs.cpus > 1:
            return (
                f"evaluations: {self.name} is not asked for the problem's cpus = {needs.cpus} and"
                f" gpus = {needs.gpus:g}; its workers must have them"
            )
        return ""
