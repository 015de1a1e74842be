"""An executor of worker processes on this machine, each of which can be lost alone.

The process pools of the standard library and of loky do not fit:

- When one process dies, they fail everything that runs in the others.
- Their processes inherit the whole environment, API keys included. loky adds variables to it and
  removes none, and both would have to change `os.environ` of this process, whose threads read it.
- Workers of the standard library hold both ends of their queue, so they never read its end and
  stay when this process is killed with SIGKILL.
- `spawn` and `forkserver` import the caller's main script again, and modules from the working
  folder.

Queueing, futures and shutdown are those of a pool of threads, each of which waits for one process.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Lock
from typing import Any
from weakref import WeakKeyDictionary

from costada.evaluators.sandbox.helper_environment import NETWORK, helper_environment
from costada.evaluators.sandbox.inside.kernel import PR_SET_DUMPABLE, set_process_option

START = (
    "import sys; from costada.evaluators.remote.worker_processes import serve; serve(sys.argv[1])"
)
CLOSE_SECONDS = 5.0
UNPICKLABLE = (
    *(pickle.PickleError, TypeError, AttributeError),
    *(ImportError, ValueError, RecursionError),
)
"""Errors of values that cannot be pickled."""


class WorkerProcess:
    """A process that executes one call after the other, and ends with this one."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        """Start it in a session of its own: Ctrl-C is for this process.

        It imports nothing from the working folder (`-P`), whose files may have names of modules,
        and gets no keys. The `variables` that its environment has besides come through the socket,
        as one that it is started with could be read in /proc.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            descriptor = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(descriptor)],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                env=helper_environment(*NETWORK),
                start_new_session=True,
            )
            self._connection = Connection(ours.detach())
        package = str(Path(__file__).parents[2])
        paths = [path for path in sys.path if path != package]
        self._connection.send((paths, {**(variables or {})}))

    def result(self, pickled: bytes, wait: Callable[[Connection], None] | None = None) -> Any:
        """What a pickled call returns.

        `wait` is called with the connection before its answer is read, and may raise.

        Raises:
            EOFError: If the process has ended.
            OSError: Likewise.
            Exception: What the call raises.
        """
        self._connection.send_bytes(pickled)
        if wait:
            wait(self._connection)
        is_result, value = pickle.loads(self._connection.recv_bytes())  # noqa: S301  (our child)
        if is_result:
            return value
        raise CallFailed(value)

    def end(self, seconds: float) -> None:
        """Close the connection, at which it ends; kill it if it does not within so many seconds."""
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.process.kill()
        self.process.wait()


class CallFailed(Exception):
    """Carries what a call raised, which may be an error that this module handles itself."""


class RunningCall:
    """The worker of a call, and whether the call was stopped."""

    def __init__(self) -> None:
        self.worker: WorkerProcess | None = None
        self.is_stopped = Event()


class WorkerProcesses(Executor):
    """Executes functions in processes of their own; each is started when it is first needed.

    A process that ends fails its function with `BrokenExecutor`, and another one takes its place.
    All processes end with this one, also when it is killed.
    """

    def __init__(self, number: int) -> None:
        """Use at most `number` processes."""
        self._threads = ThreadPoolExecutor(number, "costada-worker")
        self._lock = Lock()
        self._idle: list[WorkerProcess] = []
        self._calls: WeakKeyDictionary[Future[Any], RunningCall] = WeakKeyDictionary()
        atexit.register(self.shutdown)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in the next free process."""
        call = RunningCall()
        with self._lock:
            future = self._threads.submit(self._result, call, fn, args, kwargs)
            self._calls[future] = call
        return future

    def stop(self, future: Future[Any]) -> None:
        """Kill the process that executes a function, if one does."""
        with self._lock:
            if not future.done() and (call := self._calls.get(future)):
                call.is_stopped.set()
                if call.worker:
                    call.worker.process.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes once nothing waits, or now with `cancel_futures`."""
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        for future in list(self._calls) if cancel_futures else ():
            self.stop(future)
        self._threads.shutdown(wait)
        if wait:
            atexit.unregister(self.shutdown)
            while self._idle:
                self._idle.pop().end(CLOSE_SECONDS)

    @property
    def busy(self) -> list[WorkerProcess]:
        """The processes that execute a function."""
        with self._lock:
            return [call.worker for call in self._calls.values() if call.worker]

    def _result(self, call: RunningCall, *function_and_arguments: Any) -> Any:
        """Execute a call in an idle process, or in a new one."""
        pickled = pickle.dumps(function_and_arguments)
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        try:
            worker = worker or WorkerProcess()
            with self._lock:
                call.worker = worker
            if call.is_stopped.is_set():  # before there was a process that could be killed
                raise EOFError
            return worker.result(pickled)
        except CallFailed as failed:
            raise failed.args[0] from None
        except (EOFError, OSError) as error:
            if worker:
                worker.end(0.0)
            worker = None
            raise BrokenExecutor(f"a worker process ended: {error!r}") from None
        finally:
            with self._lock:
                call.worker = None
                if worker:
                    self._idle.append(worker)


def serve(descriptor: str) -> None:
    """Execute the calls that come through a socket; ends with the process on the other side.

    Programs of the same user cannot read the memory of the process: it gets private inputs.
    """
    set_process_option(PR_SET_DUMPABLE, 0)
    os.dup2(2, 1)  # what an evaluator prints is not output of a command
    connection = Connection(int(descriptor))
    try:
        sys.path[:], variables = connection.recv()
    except (EOFError, OSError):  # the process on the other side was killed before it sent them
        os._exit(0)
    os.environ.update(variables)
    # A thread executes calls, so that this one reads the end of the socket meanwhile: it is how a
    # worker learns that its parent was killed.
    thread = ThreadPoolExecutor(1)
    while True:
        try:
            pickled = connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)
        thread.submit(_called, pickled).add_done_callback(partial(_send, connection))


def _called(pickled: bytes) -> object:
    function, args, kwargs = pickle.loads(pickled)  # noqa: S301  (from the process that started us)
    return function(*args, **kwargs)


def _send(connection: Connection, future: Future[object]) -> None:
    error = future.exception()
    outcome = (True, future.result()) if error is None else (False, error)
    try:
        answer = pickle.dumps(outcome)
        pickle.loads(answer)  # noqa: S301  (some errors cannot be made again)
    except UNPICKLABLE:
        answer = pickle.dumps((False, RuntimeError(repr(outcome[1]))))
    with suppress(OSError):  # the process on the other side was killed; this one is about to end
        connection.send_bytes(answer)
