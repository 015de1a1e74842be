"""Evaluations and runs of sweeps on the workers of a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, ClassVar, cast

from costada.evaluators.remote.engine import (
    ALL_WORKERS,
    Call,
    Engine,
    Resources,
    SweepSettings,
    class_names,
    has_resources,
)
from costada.evaluators.sandbox.limits import MEBIBYTE

KILLED_WORKER = "distributed.scheduler.KilledWorker"

CONNECT_SECONDS = 20.0
ANSWER_SECONDS = 5.0
"""How long the scheduler may take to list its workers."""

MEMORY = "MEMORY"
"""Resource of workers that is requested as soon as one of them declares it."""

CERTIFICATE = "distributed.comm.tls.client.cert"
"""Setting of Dask: the certificate with which a client shows who it is, in a cluster with TLS."""

LARGE_GRAPH = "distributed.admin.large-graph-warning-threshold"
"""Setting of Dask: the size of a task above which its client warns."""

QUIET = ("asyncio", "distributed", "distributed.client", "tornado")
"""Loggers with a level of their own that print tracebacks when a scheduler is lost."""


class DaskEngine(Engine):
    """A cluster of Dask workers, at an address `dask://HOST:PORT`."""

    losses: ClassVar[Mapping[str, float]] = {
        "distributed.client.FutureCancelledError": ALL_WORKERS,
        "distributed.comm.core.CommClosedError": ALL_WORKERS,
        "distributed.scheduler.NoValidWorkerError": ALL_WORKERS,
        "distributed.scheduler.NoWorkerError": ALL_WORKERS,
    }

    def __init__(self, address: str, settings: SweepSettings | None = None) -> None:
        """Connect to its scheduler.

        Raises:
            ValueError: If the extra is not installed.
            OSError: If there is no scheduler.
        """
        try:
            import dask
            from distributed import Client
        except ModuleNotFoundError:
            raise ValueError(f"{address}: needs the extra: pip install 'costada[dask]'") from None
        self.name = address
        # The files of a problem are sent with an evaluation, which a warning would not change.
        dask.config.set({LARGE_GRAPH: "1 GiB"})
        protocol = "tls://" if dask.config.get(CERTIFICATE, None) else "tcp://"
        scheduler = address.replace("dask://", protocol)
        try:
            self._client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise OSError(f"{address}: no Dask scheduler responds there ({error})") from None
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._asks_memory = False
        self._executors: dict[Resources, Executor] = {}

    def check(self, needs: Resources) -> str:
        """Refuse what no worker offers by `dask worker --resources`."""
        offered = self._offers()
        if not offered:
            raise OSError(f"evaluate_on: {self.name} has no worker; start one: dask worker")
        # A task that asks for a resource which no worker declares would wait forever.
        self._asks_memory = any(MEMORY in each for each in offered)
        # They hold the resources that were asked for before, with or without memory.
        self._executors.clear()
        wanted = self._wanted(needs)
        if not any(has_resources(each, wanted) for each in offered):
            text = " ".join(f"{name}={amount:.12g}" for name, amount in wanted.items())
            raise ValueError(
                f"evaluate_on is {self.name!r}, where no worker offers {text}, which the problem"
                f' asks for; start workers with --resources "{text}"'
            )
        return ""

    @classmethod
    def loss_of(cls, error: BaseException) -> float | None:
        """As `Engine.loss_of`; Dask has itself repeated a call that killed its workers."""
        if KILLED_WORKER in class_names(error):
            return float(cast(Any, error).allowed_failures + 1)
        return super().loss_of(error)

    def start(self, calls: Sequence[Call]) -> list[Future[Any]]:
        """Submit to the scheduler, which repeats what a lost worker did not finish."""
        return [self._executor(call.needs).submit(call.function, *call.arguments) for call in calls]

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
        """Close the client, which cancels its jobs."""
        self._client.close(timeout=CONNECT_SECONDS)

    def _executor(self, needs: Resources) -> Executor:
        """Submits what needs these resources."""
        if needs not in self._executors:
            wanted = self._wanted(needs)
            # Not pure: Dask would give a repeated evaluation the result of the first one.
            self._executors[needs] = self._client.get_executor(pure=False, resources=wanted or None)
        return self._executors[needs]

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
            raise OSError(f"evaluate_on: {self.name} is closed")
        about = self._client.sync(scheduler.identity, n_workers=-1, callback_timeout=ANSWER_SECONDS)
        return [dict(each.get("resources") or {}) for each in about["workers"].values()]
