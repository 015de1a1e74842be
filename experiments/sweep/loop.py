"""Carries out a sweep: a limited number of runs at once, each a process somewhere."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic, sleep
from types import FrameType
from typing import Any, Protocol, Self

from costada.experiments.sweep.progress import SweepProgress
from costada.experiments.sweep.sweep import LastStep, Status, SweepRun, step_of
from costada.runs.shared_purse import account_name
from costada.store.purse import Purse

STOPPING = "Stopping: every run finishes its current call and saves; Ctrl-C again stops at once"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTHING_LEFT = "nothing is left in the purse"
NO_MONEY = re.compile(r"budget: got \S+, but .* has \$\S+ left of ")
"""The error of a run that found nothing left."""

POLL_SECONDS = 0.1
PROGRESS_SECONDS = 1.0


class Process(Protocol):
    """A process or a job of a sweep."""

    def has_started(self) -> bool:
        """Whether it has left the queue, where there is one."""

    def end(self) -> tuple[Status, str] | None:
        """How it ended and its error or, without one, its warnings; `None` while it runs."""

    def drain(self) -> None:
        """Ask it to save and end."""

    def kill(self) -> None:
        """Kill it; what it has saved stays."""


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered; works in the main thread only."""

    def __init__(self, notify: Callable[[str], None], text: str = STOPPING) -> None:
        """Take what shows a text when the first signal arrived; called inside a signal handler."""
        self.count = 0
        self._notify = notify
        self._text = text
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Install the handlers."""
        self._previous = {each: signal.signal(each, self._handle) for each in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            self._notify(self._text)


class SweepLoop:
    """A sweep from its first process to its last; no process outlives `carry_out`."""

    def __init__(
        self,
        runs: Sequence[SweepRun],
        num_jobs: int,
        start: Callable[[SweepRun], Process],
        progress: SweepProgress,
        signals: StopSignals,
        step_of: Callable[[SweepRun], LastStep | None] = step_of,
        purse: Purse | None = None,
    ) -> None:
        """Take the runs, of which finished ones are skipped, and at most how many run at once.

        `step_of` finds the last finished iteration of a run. While the purse that pays for the runs
        has nothing left, runs wait for what others return, and are skipped once none is running.
        """
        self._runs = list(runs)
        self._num_jobs = num_jobs
        self._start = start
        self._progress = progress
        self._signals = signals
        self._step_of = step_of
        self._purse = purse
        self._processes: dict[int, Process] = {}
        self._began: dict[int, float] = {}
        self._is_draining = False
        self._shown = -PROGRESS_SECONDS

    def carry_out(self) -> tuple[SweepRun, ...]:
        """The runs as they are when all have ended or the user has stopped the sweep.

        Raises:
            OSError: If a process cannot be started; running ones save and end first.
        """
        try:
            self._run_to_the_end()
        except OSError:
            self._signals.count = max(self._signals.count, 1)
            self._run_to_the_end()
            raise
        return tuple(self._runs)

    def _run_to_the_end(self) -> None:
        self._advance()
        while self._processes:
            sleep(POLL_SECONDS)
            self._advance()

    def _advance(self) -> None:
        if self._signals.count > 1:
            for process in self._processes.values():
                process.kill()
        elif self._signals.count and not self._is_draining:
            self._is_draining = True
            for process in self._processes.values():
                process.drain()
        for index, process in list(self._processes.items()):
            if (end := process.end()) is not None:
                del self._processes[index]
                self._update(index, *end)
                self._progress.end(self._runs, self._runs[index])
        self._start_waiting()
        if monotonic() - self._shown >= PROGRESS_SECONDS:
            self._shown = monotonic()
            for index in self._processes:
                self._update(index, self._status_of(index))
            self._progress.show(self._runs)

    def _start_waiting(self) -> None:
        for index, run in enumerate(self._runs):
            if self._signals.count or len(self._processes) >= self._num_jobs:
                break
            if run.status is not Status.WAITING:
                continue
            if self._purse and self._purse.is_exhausted and not self._has_drawn(run):
                if not self._processes:
                    self._runs[index] = replace(run, status=Status.SKIPPED, error=NOTHING_LEFT)
                    self._progress.end(self._runs, self._runs[index])
                continue
            self._processes[index] = self._start(run)
            self._began[index] = monotonic()
            self._update(index, self._status_of(index))

    def _has_drawn(self, run: SweepRun) -> bool:
        """Whether the purse still holds the budget of a run, which was interrupted."""
        account = self._purse and self._purse.found(account_name(run.folder))
        return bool(account and not account.is_closed)

    def _status_of(self, index: int) -> Status:
        if self._processes[index].has_started():
            return Status.RUNNING
        self._began[index] = monotonic()
        return Status.QUEUED

    def _update(self, index: int, status: Status, text: str = "") -> None:
        run = self._runs[index]
        if status is Status.FAILED and self._purse and NO_MONEY.search(text):
            status, text = Status.SKIPPED, NOTHING_LEFT
        has_failed = status in (Status.FAILED, Status.SKIPPED)
        self._runs[index] = replace(
            run,
            status=status,
            error=text if has_failed else "",
            warning="" if has_failed else text,
            step=self._step_of(run),
            seconds=monotonic() - self._began[index],
        )
