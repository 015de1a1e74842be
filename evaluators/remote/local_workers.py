"""An executor of worker processes on this machine, each of which can be lost alone.

The pools of the standard library and of loky fail as a whole when one process dies. Here only the
evaluation that ran in it fails, and a new process takes its place.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any
from weakref import WeakSet

from costada.evaluators.sandbox.helper_environment import NETWORK, helper_environment
from costada.evaluators.sandbox.inside.kernel import PR_SET_DUMPABLE, set_process_option

START = "import sys; from costada.evaluators.remote.local_workers import serve; serve(sys.argv[1])"
CLOSE_SECONDS = 5.0
UNPICKLABLE = (
    *(pickle.PickleError, TypeError, AttributeError),
    *(ImportError, ValueError, RecursionError),
)
"""Errors of values that cannot be pickled."""

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
Worker = tuple[subprocess.Popen[bytes], Connection]


class LocalWorkers(Executor):
    """Runs functions in processes of their own; each is started when it is first needed.

    A process that ends fails its function with `BrokenExecutor`. All processes end with this one,
    also when it is killed.
    """

    def __init__(self, number: int) -> None:
        """Use at most `number` processes."""
        self._calls: SimpleQueue[tuple[Future[Any], Call] | None] = SimpleQueue()
        self._lock = Lock()
        self._running: dict[Future[Any], subprocess.Popen[bytes] | None] = {}
        self._is_closed = self._is_cancelled = False
        self._threads = [
            Thread(target=self._serve, name=f"costada-worker-{place}", daemon=True)
            for place in range(number)
        ]
        for thread in self._threads:
            thread.start()
        _OPEN.add(self)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function in the next free process."""
        future: Future[Any] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the workers are closed")
            self._calls.put((future, (fn, args, kwargs)))
        return future

    def stop(self, future: Future[Any]) -> None:
        """Kill the process that runs a function, if one does."""
        with self._lock:
            if process := self._running.pop(future, None):
                process.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes once nothing waits, or now with `cancel_futures`."""
        with self._lock:
            if not self._is_closed:
                for _ in self._threads:
                    self._calls.put(None)
            self._is_closed = True
            self._is_cancelled |= cancel_futures
            for future in list(self._running) if cancel_futures else ():
                if process := self._running.pop(future):
                    process.kill()
        for thread in self._threads if wait else ():
            thread.join()

    def _serve(self) -> None:
        """Run queued functions in one process, replacing it when it ends, until the close."""
        worker: Worker | None = None
        while (item := self._calls.get()) is not None:
            future, call = item
            with self._lock:
                if self._is_cancelled:
                    future.cancel()
                if not future.set_running_or_notify_cancel():
                    continue
                self._running[future] = worker and worker[0]
            try:
                worker = worker or self._started(future)
                worker[1].send_bytes(pickle.dumps(call))
                is_result, value = pickle.loads(worker[1].recv_bytes())  # noqa: S301  (our child)
            except (EOFError, OSError) as error:
                if worker:
                    _end(*worker, seconds=0.0)
                worker = None
                is_result, value = False, BrokenExecutor(f"a worker process ended: {error!r}")
            except UNPICKLABLE as error:
                is_result, value = False, error
            with self._lock:
                self._running.pop(future, None)
            if is_result:
                future.set_result(value)
            else:
                future.set_exception(value)
        if worker:
            _end(*worker, seconds=CLOSE_SECONDS)

    def _started(self, future: Future[Any]) -> Worker:
        """A new process for a function, killed if that was stopped while the process started."""
        worker = _start()
        with self._lock:
            if future in self._running:
                self._running[future] = worker[0]
            else:
                worker[0].kill()
        return worker


def _start() -> Worker:
    """A new process, in a session of its own: Ctrl-C is for this one.

    It imports nothing from the working folder (`-P`), whose files may have names of modules, and
    gets no keys.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        descriptor = theirs.fileno()
        package = str(Path(__file__).parents[2])
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            env=helper_environment(*NETWORK),
            start_new_session=True,
        )
        connection = Connection(ours.detach())
    connection.send([path for path in sys.path if path != package])
    return process, connection


def _end(process: subprocess.Popen[bytes], connection: Connection, *, seconds: float) -> None:
    """Close the connection, at which the process ends; kill it if it does not."""
    connection.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()


def serve(descriptor: str) -> None:
    """Run the functions that come through a socket; ends with the process on the other side.

    Programs of the same user cannot read the memory of the process: it gets private inputs.
    """
    set_process_option(PR_SET_DUMPABLE, 0)
    os.dup2(2, 1)  # what an evaluator prints is no output of a command
    connection = Connection(int(descriptor))
    sys.path[:] = connection.recv()
    calls: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_receive, args=(connection, calls), daemon=True).start()
    thread = ThreadPoolExecutor(1)
    while True:
        future = thread.submit(_called, calls.get())
        error = future.exception()
        outcome = (True, future.result()) if error is None else (False, error)
        try:
            answer = pickle.dumps(outcome)
            pickle.loads(answer)  # noqa: S301  (some errors cannot be made again)
        except UNPICKLABLE:
            answer = pickle.dumps((False, RuntimeError(repr(outcome[1]))))
        connection.send_bytes(answer)


def _called(pickled: bytes) -> object:
    function, args, kwargs = pickle.loads(pickled)  # noqa: S301  (from the process that started us)
    return function(*args, **kwargs)


def _receive(connection: Connection, calls: SimpleQueue[bytes]) -> None:
    while True:
        try:
            calls.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


_OPEN: WeakSet[LocalWorkers] = WeakSet()


@atexit.register
def _close_all() -> None:
    for workers in list(_OPEN):
        workers.shutdown(cancel_futures=True)
