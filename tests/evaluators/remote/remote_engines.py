"""Engines with real worker processes, for the tests of remote evaluations."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import psutil
import pytest

SCRIPTS = Path(sys.executable).parent
START_SECONDS = 90
RAY_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}
"""Lets the clusters of these tests take this process and its children alone."""


def free_port() -> int:
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def end_tree(process: psutil.Process) -> None:
    """Kill a process and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        for each in [*process.children(recursive=True), process]:
            each.kill()


class DaskProcesses:
    """A scheduler and two workers, as `dask scheduler` and `dask worker` start them."""

    def __init__(self, stack: ExitStack, *options: str) -> None:
        self.place = f"127.0.0.1:{free_port()}"
        host, port = self.place.split(":")
        self._stack = stack
        self._options = (*options, "--nthreads", "1", "--no-dashboard")
        self.scheduler = self._start("scheduler", "--host", host, "--port", port, "--no-dashboard")
        self.workers = [self._worker() for _ in range(2)]

    def _worker(self) -> psutil.Process:
        folder = self._stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
        return self._start(
            "worker", f"tcp://{self.place}", *self._options, "--local-directory", folder
        )

    def _start(self, *words: str) -> psutil.Process:
        process = subprocess.Popen(
            [SCRIPTS / "dask", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        started = psutil.Process(process.pid)
        self._stack.callback(process.wait)
        self._stack.callback(_end_if_there, started)
        return started


def _end_if_there(process: psutil.Process) -> None:
    if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        end_tree(process)


@contextmanager
def dask_cluster(*options: str) -> Iterator[DaskProcesses]:
    if not find_spec("distributed"):
        pytest.skip("the extra dask is not installed")
    with ExitStack() as stack:
        cluster = DaskProcesses(stack, *options)
        import distributed

        with distributed.Client(f"tcp://{cluster.place}", timeout=START_SECONDS) as client:
            client.wait_for_workers(2, timeout=START_SECONDS)
        yield cluster


@contextmanager
def ray_cluster() -> Iterator[str]:
    """The place of a Ray cluster of one node with two workers, started by `ray start`."""
    if not find_spec("ray"):
        pytest.skip("the extra ray is not installed")
    os.environ.update(RAY_TOKEN)
    port, client_port = free_port(), free_port()
    with TemporaryDirectory(ignore_cleanup_errors=True, prefix="r") as folder:
        words = ["start", "--head", "--num-cpus", "2", "--temp-dir", folder, "--block"]
        words += ["--port", str(port), "--ray-client-server-port", str(client_port)]
        words += ["--include-dashboard", "false", "--disable-usage-stats"]
        with subprocess.Popen(
            [SCRIPTS / "ray", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "RAY_TMPDIR": folder},
        ) as process:
            try:
                _await_port(client_port)
                yield f"127.0.0.1:{client_port}"
            finally:
                import ray

                ray.shutdown()
                _end_if_there(psutil.Process(process.pid))


def ray_processes(name: str) -> Iterator[psutil.Process]:
    """Processes of Ray below this one; workers that evaluate are named by the function."""
    for each in psutil.Process().children(recursive=True):
        try:
            if name in " ".join(each.cmdline()):
                yield each
        except psutil.NoSuchProcess:
            pass


def _await_port(port: int) -> None:
    end = monotonic() + START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)):
                return
        except ConnectionRefusedError:
            assert monotonic() < end, "Ray does not start"
            sleep(0.2)


def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2)


def processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))
