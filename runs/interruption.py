"""Ctrl-C: the first one ends the run with what is under way, the second one at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from costada.evaluators.sandbox.cancellation import allow_evaluations, cancel_evaluations
from costada.runs.exit_codes import ExitCode

if TYPE_CHECKING:
    from langgraph.runtime import RunControl

STOPPING = "Stopping after the current call (an evaluation ends now); Ctrl-C again stops at once"
SHOW_CURSOR = b"\x1b[?25h"
STOPPED = SHOW_CURSOR + b"\ncostada: stopped at once; finished iterations are saved\n"
STANDARD_ERROR = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def draining_on_signal(control: RunControl, notify: Callable[[str], None]) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask the run to drain while the block runs.

    The graph then finishes its current model call, saves and raises `GraphDrained`. An evaluation
    is not waited for: it raises `InterruptedError`, and its step goes on with it when the run is
    gone on with. A second signal ends the process where it stands: finished iterations are in the
    run file, and a candidate's process dies with this one. Works in the main thread only.

    Args:
        control: What the graph was given to be stopped with.
        notify: Told that the wish was heard; called inside a signal handler.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if control.drain_requested:
            os.write(STANDARD_ERROR, STOPPED)
            os._exit(ExitCode.INTERRUPTED)
        control.request_drain(signal.Signals(number).name)
        cancel_evaluations()
        notify(STOPPING)

    with _handling(SIGNALS, handle):
        yield


@contextmanager
def ending_on_signal() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, by `KeyboardInterrupt`, so that it can clean up."""
    with _handling((signal.SIGTERM,), signal.default_int_handler):
        yield


@contextmanager
def interrupting_evaluations() -> Iterator[None]:
    """Let Ctrl-C also reach evaluations in other threads while the block runs.

    What else Ctrl-C does is up to the handler that is in place. Does nothing outside the main
    thread, where signals do not arrive.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        cancel_evaluations()
        before(number, frame)

    with _handling((signal.SIGINT,), handle):
        yield


@contextmanager
def _handling(numbers: Iterable[signal.Signals], handle: Handler) -> Iterator[None]:
    """Give signals to a handler while the block runs; evaluations are allowed again behind it."""
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        allow_evaluations()
