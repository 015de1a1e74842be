"""Executes a sweep: a limited number of runs at once, while the purse can pay for them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic, sleep
from types import FrameType
from typing import Any, Protocol, Self

from costada.experiments.sweep.sweep import Status, SweepRun, with_last_step
from costada.experiments.sweep.sweep_progress import SweepProgress
from costada.runs.interruption import SIGNALS, forget_closed_terminal
from costada.runs.shared_purse import FURTHER_ACCOUNT, account_name
from costada.store.purse import Purse

NOTHING_LEFT = "too little is left in the purse"


def payable(runs: Sequence[SweepRun], purse: Purse) -> list[SweepRun]:
    """The runs for which a purse holds money already, or has enough left to begin them."""
    own, *others = purse.accounts()
    drawn = [each.name for each in others if each.parent == own.id and not each.is_closed]
    names = {FURTHER_ACCOUNT.sub("", name) for name in drawn} | {*drawn}
    return [
        run
        for run in runs
        if account_name(run.folder) in names or (own.remaining > 0 and own.remaining >= run.least)
    ]


def unpaid(run: SweepRun, reason: str = NOTHING_LEFT) -> SweepRun:
    """A run that the purse cannot pay for: cut short if it has spent money, skipped otherwise."""
    return replace(run, status=Status.CUT_SHORT if run.step else Status.SKIPPED, error=reason)


STOPPING = "Stopping: every run finishes its current call and saves; Ctrl-C again stops at once"
POLL_SECONDS = 0.1
PROGRESS_SECONDS = 1.0


End = tuple[Status, str]
"""How a run ended, and its error or, without one, its warnings."""


class Process(Protocol):
    """A process or a job of a sweep."""

    def has_started(self) -> bool:
        """Whether it has left the queue, where there is one."""

    def end(self) -> End | None:
        """How it ended, `None` while it runs; raises `OSError` if it cannot be reached."""

    def drain(self) -> None:
        """Ask it to save and end."""

    def kill(self) -> None:
        """Kill it; what it has saved stays."""


class StopSignals:
    """Counts SIGINT, SIGTERM and SIGHUP while it is entered; works in the main thread only.

    All SIGHUPs count once: kernel and shell both send one when a terminal is closed. They stay
    ignored if they are, as under `nohup`.
    """

    def __init__(self, notify: Callable[[str], None], text: str = STOPPING) -> None:
        """Show `text` with `notify` on the first signal, inside the signal handler."""
        self.count = 0
        self._notify = notify
        self._text = text
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Install the handlers."""
        is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        handled = [each for each in SIGNALS if not (is_kept and each == signal.SIGHUP)]
        self._previous = {each: signal.signal(each, self._handle) for each in handled}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            forget_closed_terminal()
            if self.count:
                return
        self.count += 1
        if self.count == 1:
            with suppress(OSError):  # standard error is closed
                self._notify(self._text)


class SweepLoop:
    """A sweep from its first process to its last; no process outlives `execute`."""

    def __init__(
        self,
        runs: Sequence[SweepRun],
        num_jobs: int,
        start: Callable[[SweepRun], Process],
        progress: SweepProgress,
        signals: StopSignals,
        read: Callable[[SweepRun], SweepRun] = with_last_step,
        purse: Purse | None = None,
    ) -> None:
        """Take the runs and the maximum number at once; finished runs are skipped.

        `read` adds to a run what is stored of it, such as its last finished iteration. While the
        purse that pays for the runs has too little left, runs wait for what others return. Once
        none is running, those that have begun are cut short, and the others skipped.
        """
        self._runs = list(runs)
        self._num_jobs = num_jobs
        self._start = start
        self._progress = progress
        self._signals = signals
        self._read = read
        self._purse = purse
        self._processes: dict[int, Process] = {}
        self._began: dict[int, float] = {}
        self._unpaid: set[int] = set()  # found too little money, and none has been returned since
        self._looked = -PROGRESS_SECONDS
        self._is_draining = False
        self._shown = -PROGRESS_SECONDS

    def execute(self) -> tuple[SweepRun, ...]:
        """The runs as they are when all have ended or the user has stopped the sweep.

        Raises:
            OSError: If a process cannot be started or reached; the others save and end first.
        """
        try:
            self._run_to_the_end()
        except OSError:
            # As if the user had stopped the sweep: the other processes would outlive the command.
            self._signals.count = max(self._signals.count, 1)
            self._run_to_the_end()
            raise
        self._progress.end_all(self._runs)
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
        self._collect()
        self._start_waiting()
        if monotonic() - self._shown >= PROGRESS_SECONDS:
            self._shown = monotonic()
            for index in self._processes:
                self._update(index, self._status_of(index))
            self._progress.show(self._runs)

    def _collect(self) -> None:
        """Note which runs have ended; one that found too little waits for what others return."""
        found = {index: self._end_of(process) for index, process in self._processes.items()}
        ended = {index: end for index, end in found.items() if end is not None}
        # All are removed first: only processes that are still running can return money later.
        for index in ended:
            del self._processes[index]
        has_returned = any(status is not Status.SKIPPED for status, _ in ended.values())
        if has_returned:
            # A run that has ended returns what it did not spend, so all others may try again.
            self._unpaid.clear()
        for index, (status, text) in ended.items():
            self._looked = -PROGRESS_SECONDS
            if status is Status.SKIPPED and self._purse and (self._processes or has_returned):
                if not has_returned:
                    self._unpaid.add(index)
                self._update(index, Status.WAITING)
                continue
            self._update(index, status, text)
            self._progress.end(self._runs, self._runs[index])

    def _end_of(self, process: Process) -> End | None:
        """How a process ended; once the sweep ends, one that cannot be reached is left behind."""
        try:
            return process.end()
        except OSError:
            if not self._is_draining:
                raise
            return Status.INTERRUPTED, ""

    def _start_waiting(self) -> None:
        for index in self._startable():
            if self._signals.count or len(self._processes) >= self._num_jobs:
                return
            self._processes[index] = self._start(self._runs[index])
            self._began[index] = monotonic()
            self._update(index, self._status_of(index))
        if self._processes or self._signals.count:
            return
        # No process is left that could return money.
        for index, run in enumerate(self._runs):
            if run.status is Status.WAITING:
                self._runs[index] = unpaid(run)
                self._progress.end(self._runs, self._runs[index])

    def _startable(self) -> list[int]:
        """The waiting runs that can be paid for; the purse is read once a second."""
        waiting = [index for index, run in enumerate(self._runs) if run.status is Status.WAITING]
        if self._purse is None or not waiting or self._signals.count:
            return waiting
        is_full = len(self._processes) >= self._num_jobs
        if self._processes and (is_full or monotonic() - self._looked < PROGRESS_SECONDS):
            return []
        self._looked = monotonic()
        try:
            paid = {run.name for run in payable([self._runs[i] for i in waiting], self._purse)}
        except OSError:
            if self._processes:  # they save by themselves; the purse may respond later
                return []
            raise
        return [i for i in waiting if i not in self._unpaid and self._runs[i].name in paid]

    def _status_of(self, index: int) -> Status:
        if self._processes[index].has_started():
            return Status.RUNNING
        self._began[index] = monotonic()
        return Status.QUEUED

    def _update(self, index: int, status: Status, text: str = "") -> None:
        run = self._runs[index]
        has_failed = status in (Status.FAILED, Status.SKIPPED)
        found = replace(
            run,
            status=status,
            error=text if has_failed else "",
            warning="" if has_failed else text,
            seconds=monotonic() - self._began[index],
        )
        self._runs[index] = self._read(found)
        if status is Status.SKIPPED:
            self._runs[index] = unpaid(self._runs[index], text)
