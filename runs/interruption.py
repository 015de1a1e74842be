"""Exit codes, and Ctrl-C: the first ends a run after its current call, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from select import POLLHUP, POLLNVAL, poll
from types import FrameType
from typing import TYPE_CHECKING

from costada.evaluators.sandbox.concurrency import allow_evaluations, cancel_evaluations
from costada.reports.json_log import is_on, log_message
from costada.values.redaction import without_passwords

if TYPE_CHECKING:
    from langgraph.runtime import RunControl

STOPPING = "Stopping after the calls in flight (evaluations end now); Ctrl-C again stops at once"
SHOW_CURSOR = b"\x1b[?25h"
STOPPED_AT_ONCE = "stopped at once"
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command as Ctrl-C does: somebody stops it, or its terminal is closed."""

SIGNALS = (signal.SIGINT, *ENDING)


class ExitCode(IntEnum):
    """Exit codes of every command."""

    FINISHED = 0
    FAILED = 1
    BAD_INPUT = 2
    UNPAID = 3
    INTERRUPTED = 130


Handler = Callable[[int, FrameType | None], None]

_URGENT = {signal.SIGINT, signal.SIGTERM}
"""Signals that end a draining run at once. SIGHUP does not: kernel and shell both send one when a
terminal is closed."""


def forget_closed_terminal() -> None:
    """Let output go nowhere that went to a terminal which is closed now.

    Every write to one fails. A run that is being saved must not end because of what it reports.
    """
    watched = poll()
    for number in (STANDARD_OUTPUT, STANDARD_ERROR):
        # No event is asked for: poll reports a hang-up and a closed descriptor all the same.
        watched.register(number, 0)
    for number, event in watched.poll(0):
        if event & POLLHUP and not event & POLLNVAL:
            # dup2 keeps the number: whoever writes to 1 or 2, C libraries too, is redirected.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)


def drain_on_every_sigterm() -> None:
    """Let further SIGTERMs change nothing in this process.

    One stop may send several: Slurm signals every process of a job, and the parent of a sweep's run
    passes its own on. SIGKILL ends such a run at once.
    """
    _URGENT.discard(signal.SIGTERM)


@contextmanager
def draining_on_signal(
    control: RunControl, notify: Callable[[str], None], hint: str
) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP drain the run during the block.

    The graph then finishes its current model call, saves and raises `GraphDrained`. An evaluation
    is cancelled: it raises `InterruptedError`, and a resumed run repeats it. A second SIGINT or
    SIGTERM ends the process immediately: finished iterations are in the run file, and a candidate's
    process ends with this one. Works in the main thread only.

    Args:
        control: The control that the graph was given.
        notify: Called inside a signal handler when the signal has arrived.
        hint: What to do next; printed when the second signal ends the process.
    """
    hint = without_passwords(hint)
    stopped = f"\ncostada: {STOPPED_AT_ONCE}\n{hint}\n".encode()

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            forget_closed_terminal()
        if control.drain_requested and number not in _URGENT:
            return
        if control.drain_requested:
            if is_on():
                log_message(STOPPED_AT_ONCE, "error", hint=hint)
            else:
                _write_past_buffers(SHOW_CURSOR * os.isatty(STANDARD_ERROR) + stopped)
            # Not sys.exit: threads that wait for a provider would keep the process alive, and
            # everything that counts is in the run file already.
            os._exit(ExitCode.INTERRUPTED)
        control.request_drain(signal.Signals(number).name)
        cancel_evaluations()
        with suppress(OSError):  # standard error is closed
            notify(STOPPING)

    with _handling(SIGNALS, handle):
        yield


def _write_past_buffers(text: bytes) -> None:
    """Not print: the signal may have interrupted a print, which holds the stream's lock."""
    with suppress(OSError):  # standard error is closed
        os.write(STANDARD_ERROR, text)


@contextmanager
def ending_on_signal() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `KeyboardInterrupt` during the block, as Ctrl-C does.

    It holds the signal's number.
    A SIGHUP after the first signal does not: kernel and shell both send one when a terminal is
    closed, and the second would cut short what the block saves.
    """
    has_ended = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal has_ended
        if number == signal.SIGHUP:
            forget_closed_terminal()
            if has_ended:
                return
        has_ended = True
        raise KeyboardInterrupt(number)

    with _handling(ENDING, handle):
        yield


@contextmanager
def interrupting_evaluations() -> Iterator[None]:
    """Let Ctrl-C also cancel evaluations in other threads during the block.

    The previous handler is called as well. Does nothing outside the main thread, where signals do
    not arrive.
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
    """Handle signals during the block; afterwards evaluations are allowed again.

    SIGHUP stays ignored if it is, as under `nohup`.
    """
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [number for number in numbers if not (is_kept and number == signal.SIGHUP)]
    previous = {number: signal.signal(number, handle) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        # A cancellation lasts: later evaluations of this process would be cancelled, too.
        allow_evaluations()
