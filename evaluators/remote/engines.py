"""The engines that evaluations can be handed to: what each is asked, and how each one fails."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import inf
from threading import Lock
from typing import Any, Protocol, cast

from costada.evaluators.remote.address import ADDRESS, FORMS, HERE
from costada.evaluators.remote.local_workers import LocalWorkers
from costada.evaluators.remote.worker import answer
from costada.evaluators.sandbox.fair_semaphore import available_cores
from costada.evaluators.sandbox.limits import MEBIBYTE

CONNECT_SECONDS = 15.0
ANSWER_SECONDS = 5.0
"""How long a scheduler may take to say which workers it has."""

MEMORY = "MEMORY"
"""Name of the resource of Dask workers that is asked for if one of them offers it."""

LARGE_GRAPH = "distributed.admin.large-graph-warning-threshold"
"""Setting of Dask: the size of a task above which its client warns."""

GONE = inf
"""The number of lost workers where nothing can be evaluated there any more."""

KILLED_WORKER = "distributed.scheduler.KilledWorker"
DASK_LOSSES = {
    "distributed.client.FutureCancelledError": GONE,
    "distributed.comm.core.CommClosedError": GONE,
    "distributed.scheduler.NoValidWorkerError": GONE,
    "distributed.scheduler.NoWorkerError": GONE,
}
RAY_LOSSES = {
    "ray.exceptions.WorkerCrashedError": 1,
    "ray.exceptions.NodeDiedError": 1,
    "ray.exceptions.OutOfMemoryError": 1,
    "ray.exceptions.ObjectLostError": 1,
    "ray.exceptions.LocalRayletDiedError": 1,
    "ray.exceptions.TaskCancelledError": 1,
    "ray.exceptions.RaySystemError": GONE,
    "ray.exceptions.RpcError": GONE,
    "grpc.RpcError": GONE,
    "builtins.ConnectionError": GONE,  # of a client that has lost its connection
}
OWN_LOSSES = {"concurrent.futures._base.BrokenExecutor": GONE, **DASK_LOSSES}
"""How many workers an error says were lost, by its full name: its package may not be installed."""


def lost_workers(error: BaseException, losses: Mapping[str, float]) -> float | None:
    """How many workers an error says were lost; None if the evaluation itself raised it."""
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    if KILLED_WORKER in names:
        return float(cast(Any, error).allowed_failures + 1)
    return next((losses[name] for name in names if name in losses), None)


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

    def lost(self, error: BaseException) -> float | None:
        """How many workers were lost, or GONE; None if the evaluation itself raised the error."""

    def raised(self, error: BaseException) -> BaseException:
        """What the evaluation raised, of an error for which `lost` returns None."""

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

    def lost(self, error: BaseException) -> float | None:
        """An executor that is closed or broken is gone."""
        return lost_workers(error, OWN_LOSSES)

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

    def lost(self, error: BaseException) -> float | None:
        """Each process is lost alone; an evaluator's own pools raise subclasses of that error."""
        return 1 if type(error) is BrokenExecutor else None


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
        # The files of a problem are sent with an evaluation, which a warning would not change.
        importlib.import_module("dask").config.set({LARGE_GRAPH: "1 GiB"})
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

    def lost(self, error: BaseException) -> float | None:
        """The scheduler repeats an evaluation as often as its own setting says."""
        return lost_workers(error, DASK_LOSSES)

    def raised(self, error: BaseException) -> BaseException:
        """The error itself: the client has made it again."""
        return error

    def has_worker(self, needs: Resources) -> bool:
        """Whether a worker offers the resources by name."""
        wanted = self._wanted(needs)
        try:
            return self.is_connected() and any(_has(each, wanted) for each in self._offers())
        except self.faults:
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
        """What each worker offers in all, as the scheduler says.

        Raises:
            OSError: If it does not answer in time.
        """
        scheduler = self._client.scheduler
        if scheduler is None:
            raise OSError(f"evaluations: {self.name} is closed")
        about = self._client.sync(scheduler.identity, n_workers=-1, callback_timeout=ANSWER_SECONDS)
        return [dict(each.get("resources") or {}) for each in about["workers"].values()]


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
        # Of all tasks together, once; that says nothing that a user of a run can change.
        warnings.filterwarnings("ignore", "More than 10MB of messages", UserWarning)
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

    def lost(self, error: BaseException) -> float | None:
        """What Ray says of workers and nodes."""
        is_raised = isinstance(error, self._ray.exceptions.RayTaskError)
        return None if is_raised else lost_workers(error, RAY_LOSSES)

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
