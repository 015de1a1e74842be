"""Ctrl-C during a sweep: the first one lets the runs save and end, the second ends them at once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

STOPPING = "Stopping: every run finishes its current call and saves; Ctrl-C again stops at once"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopWish:
    """Counts SIGINT and SIGTERM while it is entered; works in the main thread only.

    Attributes:
        count: How often the user has asked to stop.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        """Take whom to tell that the first wish was heard; called inside a signal handler."""
        self.count = 0
        self._notify = notify
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Take over both signals."""
        self._previous = {each: signal.signal(each, self._handle) for each in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        """Give both signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def ask(self) -> None:
        """Ask the sweep to stop unless that was asked before."""
        self.count = max(self.count, 1)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            self._notify(STOPPING)
