"""Ctrl-C: the first one ends the run after the current node, the second one at once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from langgraph.runtime import RunControl

from costada.runs.exit_codes import ExitCode

STOPPING = "Stopping after the current call or evaluation; Ctrl-C again stops at once"
SHOW_CURSOR = b"\x1b[?25h"
STOPPED = SHOW_CURSOR + b"\ncostada: stopped at once; finished iterations are saved\n"
STANDARD_ERROR = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def draining_on_signal(control: RunControl, notify: Callable[[str], None]) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask the run to drain while the block runs.

    The graph then finishes its current node, saves and raises `GraphDrained`. A second signal ends
    the process where it stands: finished iterations are in the run file, and a candidate's process
    dies with this one. Works in the main thread only.

    Args:
        control: What the graph was given to be stopped with.
        notify: Told that the wish was heard; called inside a signal handler.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if control.drain_requested:
            os.write(STANDARD_ERROR, STOPPED)
            os._exit(ExitCode.INTERRUPTED)
        control.request_drain(signal.Signals(number).name)
        notify(STOPPING)

    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
