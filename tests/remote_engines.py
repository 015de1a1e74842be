"""Engines with real worker processes, for the tests of remote evaluations."""

import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory, gettempdir
from time import monotonic, sleep

import psutil
import pytest
from ports import free_port
from waiting import within

from costada.evaluators.remote import engine as engines
from costada.evaluators.remote.engine import shared_engine

SCRIPTS = Path(sys.executable).parent
START_SECONDS = 90
STARTS = 3
"""Attempts to start a Ray cluster, as another process may take one of its ports, and to connect."""

RAY_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}
"""Lets the clusters of these tests take this process and its children alone."""

RAY_ENVIRONMENT = {
    **RAY_TOKEN,
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # with it, the server of a connection may die as it starts
    "RAY_memory_monitor_refresh_ms": "0",  # other processes may use the memory of the machine
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
}
RAY_MEMORY = 16 * 2**30
RAY_OPTIONS = (
    *("--node-ip-address", "127.0.0.1", "--num-cpus", "2", "--disable-usage-stats", "--block"),
    *("--object-store-memory", str(100 * 2**20), "--memory", str(RAY_MEMORY)),
    # Ports of the system's choice: every cluster would begin at the same ones.
    *("--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0"),
)
RAY_LOCK = Path(gettempdir(), "costada-tests-ray.lock")


def end_tree(process: psutil.Process) -> None:
    """Kill a process and all that it has started."""
    started: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        started = process.children(recursive=True)
    # Itself first: it would replace a child. Some children end with others, before their turn.
    for each in [process, *started]:
        with suppress(psutil.NoSuchProcess):
            each.kill()


def close_engine(name: str) -> None:
    """Close the engine of this process with a name, if it is open."""
    if engine := engines._engines.pop(name, None):
        engine.close()


class Processes:
    """Processes that end with a stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def start(
        self, program: str, *words: object, environment: dict[str, str] | None = None
    ) -> psutil.Process:
        process = subprocess.Popen(
            [SCRIPTS / program, *map(str, words)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        started = psutil.Process(process.pid)
        self._stack.callback(process.wait, START_SECONDS)
        self._stack.callback(end_tree, started)
        return started

    def folder(self, prefix: str) -> Path:
        made = TemporaryDirectory(ignore_cleanup_errors=True, prefix=prefix)
        return Path(self._stack.enter_context(made))


class DaskProcesses(Processes):
    """A scheduler and workers, as `dask scheduler` and `dask worker` start them."""

    def __init__(self, stack: ExitStack, workers: Sequence[Sequence[str]]) -> None:
        super().__init__(stack)
        file = self.folder("dask") / "scheduler.json"
        options = ("--port", 0, "--no-dashboard", "--scheduler-file", file)
        self.scheduler = self.start("dask", "scheduler", "--host", "127.0.0.1", *options)
        address = json.loads(await_text(file, self.scheduler))["address"]
        self.place = address.removeprefix("tcp://")
        for own in workers:
            options = (*own, "--nthreads", 1, "--no-dashboard")
            local = ("--local-directory", self.folder("dask"))
            self.start("dask", "worker", address, *options, *local)


def await_text(file: Path, process: psutil.Process) -> str:
    """The text of a file, once a process has written it as a whole."""
    end = monotonic() + START_SECONDS
    while True:
        with suppress(OSError, ValueError):
            json.loads(text := file.read_text())
            return text
        assert process.status() != psutil.STATUS_ZOMBIE, f"{file} was not written"
        assert monotonic() < end, f"{file} was not written in time"
        sleep(0.05)


@contextmanager
def dask_cluster(workers: Sequence[Sequence[str]] = ((), ())) -> Iterator[DaskProcesses]:
    """A Dask cluster; `workers` are options of each of its workers."""
    if not find_spec("distributed"):
        pytest.skip("distributed is not installed: pip install 'costada[dask]'")
    import distributed

    with ExitStack() as stack:
        cluster = DaskProcesses(stack, workers)
        with distributed.Client(f"tcp://{cluster.place}", timeout=START_SECONDS) as client:
            client.wait_for_workers(len(workers), timeout=START_SECONDS)
            # A nanny that is still starting ends with its worker and starts no other.
            within(
                START_SECONDS,
                lambda: (
                    {*client.run(lambda dask_worker: dask_worker.status.name, nanny=True).values()}
                    == {"running"}
                ),
            )
        stack.callback(close_engine, f"dask://{cluster.place}")
        yield cluster


class RayProcesses(Processes):
    """A head with two cores, as `ray start` starts it."""

    def __init__(self, stack: ExitStack, options: Sequence[object]) -> None:
        super().__init__(stack)
        self._folder = self.folder("r")  # a short path: Ray keeps sockets in it
        self._environment = {**RAY_ENVIRONMENT, "RAY_TMPDIR": str(self._folder)}
        for _ in range(STARTS):
            self.port, client_port = free_port(), free_port()
            self.place = f"127.0.0.1:{client_port}"
            ports = ("--port", self.port, "--ray-client-server-port", client_port)
            more = ("--temp-dir", self._folder, "--include-dashboard", "false", *options)
            self.head = self._node("--head", *ports, *more)
            if _listens(client_port, self.head):
                return
        raise AssertionError("Ray does not start")

    def _node(self, *words: object) -> psutil.Process:
        return self.start("ray", "start", *RAY_OPTIONS, *words, environment=self._environment)

    def add_node(self, *options: object) -> psutil.Process:
        """Another node of the cluster."""
        return self._node("--address", f"127.0.0.1:{self.port}", *options)


def _listens(port: int, process: psutil.Process) -> bool:
    """Wait until a process listens at a port; False if it ends before."""
    end = monotonic() + START_SECONDS
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return True
        assert monotonic() < end, "Ray does not start in time"
        sleep(0.2)
    return False


@contextmanager
def connecting_to_ray() -> Iterator[None]:
    """Let one process of this machine connect to a Ray cluster.

    For each connection a cluster starts a server at the first free port from 23000. Two clusters
    that do so at once start theirs at the same port, and clients reach the wrong one.
    """
    with RAY_LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def has_ray() -> bool:
    """Whether Ray is installed; a folder of that name on the path of modules is none."""
    spec = find_spec("ray")
    return spec is not None and spec.origin is not None


@contextmanager
def ray_cluster(*options: object) -> Iterator[RayProcesses]:
    """A Ray cluster of one node, to which this process is connected."""
    if not has_ray():
        pytest.skip("ray is not installed: pip install 'costada[ray]'")
    os.environ.update(RAY_TOKEN)
    with ExitStack() as stack:
        cluster = RayProcesses(stack, options)
        name = f"ray://{cluster.place}"
        stack.callback(close_engine, name)
        with connecting_to_ray():
            _connect(name)
        yield cluster


def _connect(name: str) -> None:
    """Connect this process; the server that Ray starts for it may die as it starts."""
    for place in range(STARTS):
        try:
            shared_engine(name)
            return
        except OSError:
            if place == STARTS - 1:
                raise


def ray_processes(name: str) -> Iterator[psutil.Process]:
    """Processes of Ray below this one; workers that evaluate are named by the function."""
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if name in " ".join(each.cmdline()):
                yield each


def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2)


def processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))
