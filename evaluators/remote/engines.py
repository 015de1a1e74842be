"""The engines that evaluations can be handed to: what each is asked, and how each one fails."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.util import find_spec
from threading import Lock
from typing import Any, Protocol, cast

from costada.evaluators.remote.address import ADDRESS, FORMS, HERE
from costada.evaluators.remote.local_workers import LocalWorkers
from costada.evaluators.remote.worker import answer
from costada.evaluators.sandbox.fair_semaphore import available_cores
from costada.evaluators.sandbox.limits import MEBIBYTE

CONNECT_SECONDS = 15.0
MEMORY = "MEMORY"
"""Name of the resource of Dask workers that is asked for if one of them offers it."""


class Loss(Enum):
    """What an error says that no evaluator has raised."""

    WORKER = "worker"
    """The worker is lost: another one can repeat the evaluation."""

    WORKERS = "workers"
    """Several workers were lost to this evaluation."""

    CLUSTER = "cluster"
    """Nothing can be evaluated there any more."""


LOSSES = {
    "concurrent.futures._base.BrokenExecutor": Loss.CLUSTER,
    "distributed.scheduler.KilledWorker": Loss.WORKERS,
    "distributed.client.FutureCancelledError": Loss.CLUSTER,
    "distributed.comm.core.CommClosedError": Loss.CLUSTER,
    "ray.exceptions.WorkerCrashedError": Loss.WORKER,
    "ray.exceptions.NodeDiedError": Loss.WORKER,
    "ray.exceptions.OutOfMemoryError": Loss.WORKER,
    "ray.exceptions.ObjectLostError": Loss.WORKER,
    "ray.exceptions.LocalRayletDiedError": Loss.WORKER,
    "ray.exceptions.TaskCancelledError": Loss.WORKER,
    "ray.exceptions.RaySystemError": Loss.CLUSTER,
    "ray.exceptions.RpcError": Loss.CLUSTER,
    "grpc.RpcError": Loss.CLUSTER,
}
"""What errors of executors say, by their full names: an engine's package need not be installed."""


def loss_of(error: BaseException) -> Loss | None:
    """What an error says about workers; None if the evaluation itself raised it."""
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)
    return next((LOSSES[name] for name in names if name in LOSSES), None)


@dataclass(frozen=True, slots=True)
class Resources:
    """What one evaluation takes of a worker."""

    cpus: int
    gpus: float
    memory_mb: int


class Engine(Protocol):
    """Runs `answer` in workers.

    Attributes:
        name: What a user calls it.
        faults: What `submit` raises if nothing can be evaluated there any more.
    """

    name: str
    faults: tuple[type[Exception], ...]

    def check(self, needs: Resources) -> str:
        """What is to be noted about resources.

        Raises:
            ValueError: If no worker has them.
            OSError: If there are no workers.
        """

    def submit(self, needs: Resources, *args: Any) -> Future[bytes]:
        """Run `answer` with these arguments in a worker that has the resources."""

    def stop(self, future: Future[bytes]) -> None:
        """Cancel what was submitted, as far as the engine can."""

    def loss(self, error: BaseException) -> Loss | None:
        """What an error says about workers."""

    def raised(self, error: BaseException) -> BaseException:
        """What the evaluation raised, of an error that says nothing about workers."""

    def has_worker(self, needs: Resources) -> bool:
        """Whether there is a worker that can be reached and has the resources, free or not."""

    def is_connected(self) -> bool:
        """Whether evaluations can be handed to the engine, now or once it has workers."""

    def close(self) -> None:
        """Release what the engine holds in this process."""


class OwnExecutor:
    """An executor of the user's, which knows nothing of resources."""

    faults: tuple[type[Exception], ...] = (RuntimeError, OSError)

    def __init__(self, executor: Executor) -> None:
        """Hand evaluations to an executor; it stays the caller's to close."""
        self.name = type(executor).__name__
        self._executor = executor

    def check(self, needs: Resources) -> str:
        """Say which resources the executor is not asked for."""
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
        """Cancel what has not begun."""
        future.cancel()

    def loss(self, error: BaseException) -> Loss | None:
        """An executor that is closed or broken is gone."""
        return loss_of(error)

    def raised(self, error: BaseException) -> BaseException:
        """The error itself."""
        return error

    def has_worker(self, needs: Resources) -> bool:
        """An executor says in its futures whether it works."""
        return True

    def is_connected(self) -> bool:
        """Likewise."""
        return True

    def close(self) -> None:
        """Leave the executor to the caller."""


class LocalEngine(OwnExecutor):
    """Worker processes on this machine."""

    def __init__(self, number: int) -> None:
        """Use so many processes."""
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

    def loss(self, error: BaseException) -> Loss | None:
        """Each process is lost alone."""
        found = super().loss(error)
        return Loss.WORKER if found is Loss.CLUSTER else found


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
        distributed = _imported("distributed", "dask", self.name)
        try:
            self._client = distributed.Client(
                f"tcp://{place}", timeout=CONNECT_SECONDS, set_as_default=False
            )
        except OSError as error:
            raise _unreachable(self.name, error) from None
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
        if not any(_has(each, wanted) for each in offered):
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
        """Cancel it; what runs ends by its own limits."""
        future.cancel()

    def loss(self, error: BaseException) -> Loss | None:
        """The scheduler has repeated an evaluation several times before it gives it up."""
        return loss_of(error)

    def raised(self, error: BaseException) -> BaseException:
        """The error itself: the client has made it again."""
        return error

    def has_worker(self, needs: Resources) -> bool:
        """Whether a worker offers the resources by name."""
        wanted = self._wanted(needs)
        try:
            return self.is_connected() and any(_has(each, wanted) for each in self._offers())
        except OSError:
            return False

    def is_connected(self) -> bool:
        """Whether the scheduler is."""
        return bool(self._client.status == "running")

    def close(self) -> None:
        """Close the client, which cancels its evaluations."""
        self._client.close(timeout=CONNECT_SECONDS)

    def _wanted(self, needs: Resources) -> dict[str, float]:
        """What a worker must offer by name; one core is what any worker's thread has."""
        wanted = {
            "CPU": float(needs.cpus) if needs.cpus > 1 else 0.0,
            "GPU": needs.gpus,
            MEMORY: float(needs.memory_mb * MEBIBYTE) if self._asks_memory else 0.0,
        }
        return {name: amount for name, amount in wanted.items() if amount}

    def _offers(self) -> list[dict[str, float]]:
        """What each worker offers in all, as the scheduler says."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return [dict(each.get("resources") or {}) for each in workers]


class RayEngine:
    """A Ray cluster."""

    _connected_to = ""
    """The cluster that an engine has connected this process to."""

    def __init__(self, place: str) -> None:
        """Connect to it.

        Raises:
            ValueError: If the extra is not installed.
            OSError: If there is no such cluster, or this process is connected to another one.
        """
        self.name = f"ray://{place}"
        self._ray = _imported("ray", "ray", self.name)
        self.faults: tuple[type[Exception], ...] = (
            *(RuntimeError, OSError, self._ray.exceptions.RayError),
            ValueError,  # of a closed channel
        )
        if find_spec("grpc"):  # the client of a cluster elsewhere needs it
            self.faults += (importlib.import_module("grpc").RpcError,)
        self._refs: dict[Future[bytes], Any] = {}
        self._connect(place)
        self._answer = self._ray.remote(max_retries=0, max_calls=0)(answer)

    def _connect(self, place: str) -> None:
        """Connect this process, which Ray allows to one cluster; an open connection is used."""
        ours = RayEngine._connected_to
        if self._ray.is_initialized() and not (ours and not self._offers_any()):
            if self.name in (ours, "ray://auto"):
                return
            raise OSError(
                f"evaluations is {self.name!r}, but this process is connected to"
                f" {ours or 'a Ray cluster by other code'}; expected one cluster per process:"
                " ray.shutdown() before, or ray://auto for that cluster"
            )
        self._disconnect()
        try:
            self._ray.init(
                address=place if place == "auto" else self.name,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except self.faults as error:
            raise _unreachable(self.name, error) from None
        RayEngine._connected_to = self.name

    def check(self, needs: Resources) -> str:
        """Refuse what no node has."""
        if not self.has_worker(needs):
            text = f"cpus = {needs.cpus}, gpus = {needs.gpus:g}, memory_mb = {needs.memory_mb}"
            raise ValueError(
                f"evaluations is {self.name!r}, where no node has {text}, which the problem asks"
                " for; expected such a node, or lower numbers"
            )
        return ""

    def submit(self, needs: Resources, *args: Any) -> Future[bytes]:
        """Submit a task; a warm worker is used again, also with GPUs."""
        task = self._answer.options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=needs.memory_mb * MEBIBYTE
        )
        ref = task.remote(*args)
        future: Future[bytes] = ref.future()
        self._refs[future] = ref
        future.add_done_callback(partial(self._refs.pop))
        return future

    def stop(self, future: Future[bytes]) -> None:
        """Cancel it, and kill the worker that runs it."""
        if ref := self._refs.get(future):
            with suppress(*self.faults):  # a cluster that is gone runs nothing
                self._ray.cancel(ref, force=True)

    def loss(self, error: BaseException) -> Loss | None:
        """What Ray says; a client that loses its connection raises a `ConnectionError`."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            return None
        return Loss.CLUSTER if isinstance(error, ConnectionError) else loss_of(error)

    def raised(self, error: BaseException) -> BaseException:
        """What Ray's own error was made from."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            return cast(BaseException, error.cause)
        return error

    def has_worker(self, needs: Resources) -> bool:
        """Whether a node has the resources."""
        wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory_mb * MEBIBYTE}
        wanted = {name: amount for name, amount in wanted.items() if amount}
        try:
            return any(_has(each, wanted) for each in self._offers())
        except self.faults:
            return False

    def is_connected(self) -> bool:
        """Whether this process is connected to the cluster, which answers."""
        return self.name in (RayEngine._connected_to, "ray://auto") and self._offers_any()

    def close(self) -> None:
        """Close the connection of this process, if it is one to this cluster."""
        if RayEngine._connected_to == self.name:
            self._disconnect()

    def _disconnect(self) -> None:
        """Close the connection that an engine has opened, also a lost one."""
        if RayEngine._connected_to:
            RayEngine._connected_to = ""
            with suppress(*self.faults):  # of a cluster that is gone
                self._ray.shutdown()

    def _offers_any(self) -> bool:
        try:
            return bool(self._ray.is_initialized()) and bool(self._offers())
        except self.faults:
            return False

    def _offers(self) -> list[dict[str, float]]:
        """What each node has."""
        return [each["Resources"] for each in self._ray.nodes() if each["Alive"]]


def _has(offered: dict[str, float], wanted: dict[str, float]) -> bool:
    return all(offered.get(name, 0.0) >= amount for name, amount in wanted.items())


def _imported(module: str, extra: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise ValueError(
            f"evaluations is {name!r}, but {module} is not installed: pip install"
            f" 'costada[{extra}]'"
        ) from None


def _unreachable(name: str, error: BaseException) -> OSError:
    return OSError(f"evaluations: {name} does not answer: {error}")


KINDS: dict[str, Callable[[str], Engine]] = {"dask": DaskEngine, "ray": RayEngine}
_engines: dict[str, Engine] = {}
_opening = Lock()


def engine_of(given: str | Executor) -> Engine | None:
    """The engine of a name or an executor, None for HERE; that of a name is opened once.

    Raises:
        ValueError: If it is no name of an engine, or its extra is not installed.
        OSError: If it does not answer.
    """
    if isinstance(given, Executor):
        return OwnExecutor(given)
    if given == HERE:
        return None
    parts = ADDRESS.fullmatch(given)
    if parts is None:
        raise ValueError(f"evaluations is {given!r}; expected {FORMS}")
    with _opening:
        found = _engines.get(given)
        if found is None or not found.is_connected():
            if found is not None:
                found.close()
            number = parts["number"]
            found = LocalEngine(int(number)) if number else KINDS[parts["cluster"]](parts["place"])
            _engines[given] = found
        return found
