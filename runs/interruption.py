"""Ctrl-C: the first one ends the run after the current node, the second one at once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from langgraph.runtime import RunControl

STOPPING = "Stopping after the current call or evaluation; Ctrl-C again stops at once"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def draining_on_signal(control: RunControl, notify: Callable[[str], None]) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask the run to drain while the block runs.

    The graph then finishes its current node, saves and raises `GraphDrained`. A second signal
    raises `KeyboardInterrupt` where the program stands. Works in the main thread only.

    Args:
        control: What the graph was given to be stopped with.
        notify: Told that the wish was heard; called inside a signal handler.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if control.drain_requested:
            raise KeyboardInterrupt
        control.request_drain(signal.Signals(number).name)
        notify(STOPPING)

    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
