"""Processes in which the functions of a problem ask models, without a key of their own.

Each process has one token as long as it lives, so that a client that is made when the evaluator is
imported keeps its key. What the token may ask is granted for one call at a time.
"""

from __future__ import annotations

import atexit
import os
import pickle
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, cast

from costada.evaluators.granted_models import FunctionCall
from costada.evaluators.problem import Problem
from costada.evaluators.remote.task import Setting, code_version, setting_of
from costada.evaluators.remote.worker import MAX_LOADED, call_function
from costada.evaluators.remote.worker_processes import CLOSE_SECONDS, CallFailed, WorkerProcess
from costada.evaluators.sandbox.concurrency import CANCELLED, TICK_SECONDS, is_cancelled
from costada.values.evaluation import Evaluation, failed_evaluator
from costada.values.model_access import ModelAccess, new_token

NO_PROXY = ("no_proxy", "NO_PROXY")
"""Variables that name the hosts to which no proxy is used."""

MAX_IDLE = 16
"""Most processes that are kept for later calls; at once there are as many as calls."""


class ScoreProcess:
    """A process, its token, and the address at which it asks."""

    def __init__(self, url: str) -> None:
        """Start it."""
        self.url, self.token = url, new_token()
        variables = ModelAccess(url, self.token).environment()
        self.worker = WorkerProcess({**variables, **dict.fromkeys(NO_PROXY, "127.0.0.1,localhost")})

    def result(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """What a function returns.

        Raises:
            InterruptedError: If the evaluation was cancelled.
            EOFError: If the process has ended.
            OSError: Likewise.
            Exception: What the function raises.
        """
        return self.worker.result(pickle.dumps((function, arguments, {})), _until_answered)


def _until_answered(connection: Connection) -> None:
    while not connection.poll(TICK_SECONDS):
        if is_cancelled():
            raise InterruptedError(CANCELLED)


_LOCK = Lock()
_idle: list[ScoreProcess] = []
_sent: deque[tuple[Problem, Setting, bytes | None]] = deque(maxlen=MAX_LOADED)


def call_in_process(
    problem: Problem,
    called: FunctionCall,
    output: object,
    url: str,
    admit: Callable[[str], object],
    dismiss: Callable[[str], object],
) -> Evaluation:
    """What a function of a problem says of an output, called in a process of its own.

    Args:
        problem: The problem.
        called: Its function.
        output: What is judged.
        url: Address of the endpoint.
        admit: Lets the token of the process ask models; called before the function is.
        dismiss: Lets it ask no more; called afterwards.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        ValueError: If the problem cannot be sent to another process.
        Exception: What the problem's own `evaluate` raises.
    """
    setting, payload = _setting_of(problem)
    with _LOCK:
        found = next((each for each in _idle if each.url == url), None)
        if found:
            _idle.remove(found)
    process = found or ScoreProcess(url)
    is_usable = False
    try:
        admit(process.token)
        sent = code_version(), setting, called, output
        evaluation = process.result(call_function, (*sent, None))
        if evaluation is None:
            evaluation = process.result(call_function, (*sent, payload))
        is_usable = True
        return cast(Evaluation, evaluation)
    except CallFailed as error:
        is_usable = True
        raise error.args[0] from None
    except (EOFError, ConnectionError):
        return failed_evaluator("the process of the evaluator ended before it answered", None)
    finally:
        dismiss(process.token)
        with _LOCK:
            is_kept = is_usable and len(_idle) < MAX_IDLE
            if is_kept:
                _idle.append(process)
        if not is_kept:
            with suppress(OSError):
                process.worker.end(0.0)


def _setting_of(problem: Problem) -> tuple[Setting, bytes | None]:
    """What the process needs of a problem, packed once."""
    with _LOCK:
        known = next((each for each in _sent if each[0] is problem), None)
        if known is None:
            known = problem, *setting_of(problem)
            _sent.append(known)
        return known[1:]


def _end_idle() -> None:
    with _LOCK:
        while _idle:
            _idle.pop().worker.end(CLOSE_SECONDS)


def _forget_idle() -> None:
    global _LOCK
    _LOCK = Lock()
    _idle.clear()


atexit.register(_end_idle)
# The processes are those of the parent, and end with it.
os.register_at_fork(after_in_child=_forget_idle)
