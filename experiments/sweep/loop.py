"""Carries a sweep out: at most so many runs at once, each in a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic, sleep
from types import FrameType
from typing import Any, Protocol, Self

from costada.experiments.sweep.progress import SweepProgress
from costada.experiments.sweep.sweep import Status, SweepRun, last_step

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


TICK_SECONDS = 0.1
LOOK_SECONDS = 1.0


class Process(Protocol):
    """A run under way."""

    def end(self) -> tuple[Status, str] | None:
        """Return how it ended and its error, `None` while it runs."""
        ...

    def drain(self) -> None:
        """Ask it to save and end."""
        ...

    def kill(self) -> None:
        """End it where it stands."""
        ...


class SweepLoop:
    """One sweep from its first process to its last; no process outlives `carry_out`."""

    def __init__(
        self,
        runs: Sequence[SweepRun],
        num_jobs: int,
        start: Callable[[SweepRun], Process],
        progress: SweepProgress,
        wish: StopWish,
    ) -> None:
        """Take what to do.

        Args:
            runs: All runs of the sweep; finished ones are left alone.
            num_jobs: Most processes at a time.
            start: Starts the process of a run.
            progress: Follows the sweep.
            wish: Whether the user wants it to stop.
        """
        self._runs = list(runs)
        self._num_jobs = num_jobs
        self._start = start
        self._progress = progress
        self._wish = wish
        self._processes: dict[int, Process] = {}
        self._began: dict[int, float] = {}
        self._is_draining = False
        self._looked = -LOOK_SECONDS

    def carry_out(self) -> tuple[SweepRun, ...]:
        """Return the runs as they are when all have ended or the user has stopped the sweep.

        Raises:
            OSError: If a process cannot be started; those under way save and end first.
        """
        try:
            self._go_on()
        except OSError:
            self._wish.ask()
            self._go_on()
            raise
        return tuple(self._runs)

    def _go_on(self) -> None:
        self._advance()
        while self._processes:
            sleep(TICK_SECONDS)
            self._advance()

    def _advance(self) -> None:
        self._obey()
        for index in list(self._processes):
            self._collect(index)
        self._fill()
        if monotonic() - self._looked >= LOOK_SECONDS:
            self._look()

    def _obey(self) -> None:
        if self._wish.count > 1:
            for process in self._processes.values():
                process.kill()
        elif self._wish.count and not self._is_draining:
            self._is_draining = True
            for process in self._processes.values():
                process.drain()

    def _collect(self, index: int) -> None:
        end = self._processes[index].end()
        if end is None:
            return
        del self._processes[index]
        self._update(index, *end)
        self._progress.end(self._runs, self._runs[index])

    def _fill(self) -> None:
        for index, run in enumerate(self._runs):
            if self._wish.count or len(self._processes) >= self._num_jobs:
                return
            if run.status is Status.WAITING:
                self._processes[index] = self._start(run)
                self._began[index] = monotonic()
                self._update(index, Status.RUNNING)

    def _look(self) -> None:
        self._looked = monotonic()
        for index in self._processes:
            self._update(index, Status.RUNNING)
        self._progress.show(self._runs)

    def _update(self, index: int, status: Status, error: str = "") -> None:
        run = self._runs[index]
        self._runs[index] = replace(
            run,
            status=status,
            error=error,
            step=last_step(run.folder.steps),
            seconds=monotonic() - self._began[index],
        )
