"""Evaluations by the workers of a Dask cluster."""

from __future__ import annotations

import importlib
from concurrent.futures import Executor, Future
from typing import Any

from costada.evaluators.remote.engine import (
    GONE,
    Resources,
    has_resources,
    imported,
    lost_workers,
    unreachable,
)
from costada.evaluators.remote.worker import answer
from costada.evaluators.sandbox.limits import MEBIBYTE

CONNECT_SECONDS = 15.0
ANSWER_SECONDS = 5.0
"""How long the scheduler may take to list its workers."""

MEMORY = "MEMORY"
"""Resource of workers that is requested as soon as one of them declares it."""

LARGE_GRAPH = "distributed.admin.large-graph-warning-threshold"
"""Setting of Dask: the size of a task above which its client warns."""

DASK_LOSSES = {
    "distributed.client.FutureCancelledError": GONE,
    "distributed.comm.core.CommClosedError": GONE,
    "distributed.scheduler.NoValidWorkerError": GONE,
    "distributed.scheduler.NoWorkerError": GONE,
}


class DaskEngine:
    """A cluster of Dask workers."""

    faults: tuple[type[Exception], ...] = (RuntimeError, OSError)

    def __init__(self, place: str) -> None:
        """Connect to its scheduler.

        Raises:
            ValueError: If the extra is not installed.
            OSError: If there is no scheduler.
        """
        self.name = f"dask://{place}"
        distributed = imported("distributed", "dask", self.name)
        # The files of a problem are sent with an evaluation, which a warning would not change.
        importlib.import_module("dask").config.set({LARGE_GRAPH: "1 GiB"})
        try:
            self._client = distributed.Client(
                f"tcp://{place}", timeout=CONNECT_SECONDS, set_as_default=False
            )
        except OSError as error:
            raise unreachable(self.name, error) from None
        self._asks_memory = False
        self._executors: dict[Resources, Executor] = {}

    def check(self, needs: Resources) -> str:
        """Refuse what no worker offers by `dask worker --resources`."""
        offered = self._offers()
        if not offered:
            raise OSError(f"evaluations: {self.name} has no worker; start one: dask worker")
        self._asks_memory = any(MEMORY in each for each in offered)
        self._executors.clear()
        wanted = self._wanted(needs)
        if not any(has_resources(each, wanted) for each in offered):
            text = " ".join(f"{name}={amount:.12g}" for name, amount in wanted.items())
            raise ValueError(
                f"evaluations is {self.name!r}, where no worker offers {text}, which the problem"
                f' asks for; start workers with --resources "{text}"'
            )
        return ""

    def submit(self, needs: Resources, *args: Any) -> Future[bytes]:
        """Submit to the scheduler, which repeats what a lost worker did not finish."""
        executor = self._executors.get(needs)
        if executor is None:
            wanted = self._wanted(needs)
            executor = self._client.get_executor(pure=False, resources=wanted or None)
            self._executors[needs] = executor
        return executor.submit(answer, *args)

    def stop(self, future: Future[bytes]) -> None:
        """Cancel it; a running evaluation ends by its own limits."""
        future.cancel()

    def lost(self, error: BaseException) -> float | None:
        """The scheduler repeats an evaluation as often as its own setting says."""
        return lost_workers(error, DASK_LOSSES)

    def raised(self, error: BaseException) -> BaseException:
        """The error itself, which the client has unpickled."""
        return error

    def has_worker(self, needs: Resources) -> bool:
        """Whether a worker offers the resources by name."""
        wanted = self._wanted(needs)
        try:
            return self.is_connected() and any(
                has_resources(each, wanted) for each in self._offers()
            )
        except self.faults:
            return False

    def is_connected(self) -> bool:
        """Whether the client is connected to the scheduler."""
        return bool(self._client.status == "running")

    def close(self) -> None:
        """Close the client, which cancels its evaluations."""
        self._client.close(timeout=CONNECT_SECONDS)

    def _wanted(self, needs: Resources) -> dict[str, float]:
        """Amounts that a worker must offer by name; each thread of a worker has one core."""
        wanted = {
            "CPU": float(needs.cpus) if needs.cpus > 1 else 0.0,
            "GPU": needs.gpus,
            MEMORY: float(needs.memory_mb * MEBIBYTE) if self._asks_memory else 0.0,
        }
        return {name: amount for name, amount in wanted.items() if amount}

    def _offers(self) -> list[dict[str, float]]:
        """What each worker offers in all, as the scheduler says.

        Raises:
            OSError: If it does not answer in time.
        """
        scheduler = self._client.scheduler
        if scheduler is None:
            raise OSError(f"evaluations: {self.name} is closed")
        about = self._client.sync(scheduler.identity, n_workers=-1, callback_timeout=ANSWER_SECONDS)
        return [dict(each.get("resources") or {}) for each in about["workers"].values()]
