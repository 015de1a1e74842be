"""Engines, which execute evaluations and the runs of sweeps in other processes.

Their addresses come first, then the interface, then the engine of an executor of the caller.
"""

from __future__ import annotations

import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Protocol, runtime_checkable

from costada.values.model_access import LOOPBACK
from costada.values.plugins import call_plugin, load_plugin, plugins_of
from costada.values.redaction import without_passwords

ENTRY_POINTS = "costada.engines"
"""Group of entry points; see `costada.evaluators.remote.engine.open_engine`."""

IN_PROCESS = "here"
"""Evaluate in the process of the run."""

FORMS = f"{IN_PROCESS}, local:N (1 to 9999), dask://HOST:PORT, ray://HOST:PORT or ray://auto"
CLUSTERS = "slurm, dask://HOST:PORT, ray://HOST:PORT or ray:// (the Ray cluster of this machine)"
"""Where evaluations run, and where the runs of a sweep do, in words for users."""

EVALUATIONS = re.compile(
    r"local:[1-9][0-9]{0,3}|dask://[^\s/@]+:[0-9]+|ray://([^\s/@]+:[0-9]+|auto)"
)
RUNS = re.compile(r"slurm|dask://[^\s/@]+|ray://[^\s/@]*")
OURS = ("local", "slurm", "dask", "ray")
ENDPOINT = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?")
MAX_PORT = 65535
ADDRESS = re.compile(r"(?P<name>[a-z][a-z0-9_-]*)(:(//)?(?P<place>[^\s@]*))?")


def engine_and_place(address: str) -> tuple[str, str]:
    """The name of an engine and the place in its address; both are empty if it is not an address.

    The address has the form `NAME`, `NAME:PLACE` or `NAME://PLACE`.
    """
    parts = ADDRESS.fullmatch(address)
    return (parts["name"], parts["place"] or "") if parts else ("", "")


def checked_address(given: str, pattern: re.Pattern[str] = EVALUATIONS, forms: str = FORMS) -> str:
    """The address as it was given.

    Args:
        given: What a user wrote.
        pattern: Addresses of the engines that CostAda brings along.
        forms: These addresses in words.

    Raises:
        ValueError: If it is neither one of these, nor that of another registered engine.
    """
    name, _ = engine_and_place(given)
    if not pattern.fullmatch(given) and (name in OURS or name not in plugins_of(ENTRY_POINTS)):
        raise ValueError(f"got {without_passwords(given)!r}, expected {forms}")
    return given


def checked_place(given: str) -> str:
    """Where evaluations run, as it was given; raises `ValueError` if it is not such a place."""
    return given if given == IN_PROCESS else checked_address(given)


def is_local(address: str) -> bool:
    """Whether an engine is on this machine, or its cluster is the one this machine belongs to."""
    name, place = engine_and_place(address)
    host = place.rpartition(":")[0].strip("[]")
    if name == "local" or place in ("", "auto") or host == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def host_towards(address: str) -> str:
    """The address of this machine in the network in which it reaches an engine.

    Raises:
        OSError: There is no way to it.
    """
    host, _, port = engine_and_place(address)[1].rpartition(":")
    if is_local(address) or not host:
        return LOOPBACK
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port or 0), type=socket.SOCK_DGRAM)
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as chosen:
            chosen.connect(place)  # sends nothing
            return str(chosen.getsockname()[0])
    except OSError as error:
        raise OSError(
            f"{address}: this machine has no address that its workers could reach ({error});"
            " expected one: endpoint (--endpoint HOST or HOST:PORT)"
        ) from None


def endpoint_place(given: str) -> tuple[str, int]:
    """The host and port of an endpoint; any port is 0.

    Raises:
        ValueError: If they are not an address that a client can connect to.
    """
    parts = ENDPOINT.fullmatch(given)
    port = int(parts["port"] or 0) if parts else 0
    if parts is None or port > MAX_PORT:
        raise ValueError(f"got {given!r}, expected an address of this machine: HOST or HOST:PORT")
    host = parts["host"].strip("[]")
    with suppress(OSError, UnicodeError):  # it is a name, which is looked up where it is used
        places = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
        if any(ip_address(place[0]).is_unspecified for *_, place in places):
            raise ValueError(
                f"got {given!r}, with which every machine means itself; expected an address of this"
                " machine in the network of the workers"
            )
    return host, port


ALL_WORKERS = inf
"""Number of lost workers if the engine can execute nothing any more."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one call needs of a worker: whole cores, GPUs (also a fraction of one), MiB."""

    cpus: int = 1
    gpus: float = 0.0
    memory_mb: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A function call for a worker. The function and its arguments can be pickled."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    needs: Resources = field(default_factory=Resources)


@runtime_checkable
class StoppableCall(Protocol):
    """A function that a worker can let save its work and end."""

    def __call__(self) -> Any:
        """Do the work."""

    def request_stop(self) -> None:
        """Let it save and end soon; called by signal handlers."""

    def stop(self, seconds: float) -> None:
        """Let it save and end, and kill what has not ended after so many seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call returned, or the error with which it ended."""

    value: Any = None
    error: BaseException | None = None


class JobLost(Exception):
    """A job has ended without an outcome, with this many workers lost, or `ALL_WORKERS`."""

    def __init__(self, reason: str, workers: float = 1) -> None:
        super().__init__(reason)
        self.workers = workers


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """What a sweep tells an engine when it opens it.

    Attributes:
        folder: Folder of the engine's own files, on a file system that all nodes share.
        options: Options of the cluster by name, as `--slurm` gives them.
        num_jobs: Maximum number of jobs at once; None for what the cluster allows.
    """

    folder: Path
    options: Mapping[str, str | bool] = field(default_factory=dict)
    num_jobs: int | None = None


class Engine(ABC):
    """Executes calls in other processes, each as a job.

    Here a job is a `Future` of `concurrent.futures`. Another kind overrides `poll` and `cancel`.

    Attributes:
        name: Its name for users.
        faults: What `start` raises if nothing can be executed there any more.
        losses: How many workers an error says were lost, or `ALL_WORKERS`, by its class: its full
            name, as its package may not be installed.
    """

    name: str
    faults: tuple[type[Exception], ...] = (RuntimeError, OSError)
    losses: ClassVar[Mapping[str, float]] = {}

    @abstractmethod
    def start(self, calls: Sequence[Call]) -> list[Any]:
        """Start a job for each call."""

    def poll(self, job: Any, seconds: float = 0.0) -> Outcome | None:
        """The outcome of a job, waited for up to so many seconds; None if it has none yet."""
        if not wait([job], seconds).done:
            return None
        if job.cancelled():
            return Outcome(error=JobLost("it was cancelled there", ALL_WORKERS))
        error = job.exception()
        return Outcome(error=error) if error else Outcome(job.result())

    def cancel(self, *jobs: Any) -> None:
        """Cancel jobs, as far as the engine can."""
        for job in jobs:
            job.cancel()

    def lost(self, error: BaseException) -> float | None:
        """How many workers were lost, or `ALL_WORKERS`; None if the call itself raised the error.

        Jobs of lost workers are started again by the caller.
        """
        if isinstance(error, JobLost):
            return error.workers
        return self.loss_of(error)

    @classmethod
    def loss_of(cls, error: BaseException) -> float | None:
        """How many workers were lost, by the class of an error; None if the call raised it."""
        return next((cls.losses[name] for name in class_names(error) if name in cls.losses), None)

    def cause(self, error: BaseException) -> BaseException:
        """What the call itself raised, from an error for which `lost` returns None."""
        return error

    def is_running(self, job: Any) -> bool | None:
        """Whether a worker executes a job without an outcome; None if the engine cannot tell."""
        return None

    def check(self, needs: Resources) -> str:
        """A note about resources, empty for none.

        Raises:
            ValueError: If no worker has them.
            OSError: If there are no workers.
        """
        return ""

    def has_worker(self, needs: Resources) -> bool:
        """Whether there is a worker that can be reached and has the resources, free or not."""
        return True

    def is_connected(self) -> bool:
        """Whether calls can be handed to the engine, now or once it has workers."""
        return True

    def own_host(self) -> str:
        """The address of this machine at which workers reach it.

        Raises:
            OSError: There is none.
        """
        return host_towards(self.name)

    def close(self) -> None:  # noqa: B027  (most engines hold nothing)
        """Release what the engine holds in this process."""


class QueueEngine(Engine):
    """An engine whose jobs continue when the process that started them ends."""

    @abstractmethod
    def submit(self, calls: Sequence[Call], token: str) -> str:
        """Start a job for each call, as one submission named by a token; returns its id.

        Raises:
            ValueError: If the cluster refuses it.
            OSError: If the cluster does not respond.
        """

    @abstractmethod
    def jobs(self, token: str, known_id: str, number: int) -> list[Any]:
        """The jobs of a submission in order, also of another process.

        Args:
            token: Names the submission.
            known_id: What `submit` returned; empty if the process died before it was known.
            number: Number of jobs.

        Returns:
            The jobs; none if the cluster does not know the submission.
        """

    @abstractmethod
    def is_queued(self, job: Any) -> bool:
        """Whether the queue of the cluster shows a job, waiting or running."""


def class_names(error: BaseException) -> list[str]:
    """The full names of an error's class and of those that it inherits from."""
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]


def open_engine(address: str, settings: SweepSettings | None = None) -> Engine:
    """A new connection to the engine at an address; the caller closes it.

    The object of an entry point of the group `costada.engines` is called with the address and the
    settings of the sweep, None for evaluations, and returns an `Engine`.

    Raises:
        ValueError: If the engine or its library is not installed, or refuses the settings.
        OSError: If it does not respond.
    """
    name, _ = engine_and_place(address)
    plugin = plugins_of(ENTRY_POINTS).get(name)
    if plugin is None:
        raise ValueError(f"{address}: engine {name} is not installed")
    return call_plugin(plugin, Engine, address, settings)  # type: ignore[type-abstract]


_engines: dict[str, Engine] = {}
_opening = Lock()


def shared_engine(address: str) -> Engine:
    """The engine for evaluations at an address, opened once per process, or again if it was lost.

    Raises:
        ValueError: As `open_engine` does.
        OSError: If it does not respond.
    """
    with _opening:
        found = _engines.get(address)
        if found is None or not found.is_connected():
            if found is not None:
                found.close()
            _engines[address] = found = open_engine(address)
        return found


def has_resources(offered: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    """Whether a worker or node offers at least the wanted amount of each resource."""
    return all(offered.get(name, 0.0) >= amount for name, amount in wanted.items())


class ExecutorEngine(Engine):
    """An executor of the caller, which assigns no resources. The caller closes it.

    It may have been made by the client of a cluster for which an engine is registered; its errors
    mean what they mean to that engine.
    """

    losses: ClassVar[Mapping[str, float]] = {
        "concurrent.futures._base.BrokenExecutor": ALL_WORKERS,
    }

    def __init__(self, executor: Executor) -> None:
        """Take an open executor."""
        self.name = type(executor).__name__
        self._executor = executor

    @classmethod
    def loss_of(cls, error: BaseException) -> float | None:
        """As `Engine.loss_of`, also of the registered engines."""
        lost = super().loss_of(error)
        for plugin in plugins_of(ENTRY_POINTS).values():
            if lost is None:
                with suppress(ValueError):  # one that cannot be loaded has made no executor
                    engine = load_plugin(plugin, type)
                    if issubclass(engine, Engine) and not issubclass(engine, ExecutorEngine):
                        lost = engine.loss_of(error)
        return lost

    def start(self, calls: Sequence[Call]) -> list[Future[Any]]:
        """Submit to the executor; a broken or closed one raises `RuntimeError`."""
        return [self._executor.submit(call.function, *call.arguments) for call in calls]

    def check(self, needs: Resources) -> str:
        """Note which resources are not requested from the executor."""
        if needs.gpus or needs.cpus > 1:
            return (
                f"evaluate_on: {self.name} is not asked for the problem's cpus = {needs.cpus} and"
                f" gpus = {needs.gpus:g}; its workers must have them"
            )
        return ""
