"""Carries a sweep out: at most so many runs at once, each in a process of its own."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from time import monotonic, sleep
from types import FrameType
from typing import Any, Protocol, Self

from costada.experiments.sweep.progress import SweepProgress
from costada.experiments.sweep.sweep import Status, SweepRun, last_step
from costada.runs.config import RunConfig
from costada.runs.exit_codes import ExitCode
from costada.runs.user_input import as_option
from costada.store.files import created, make_folder, read_end

ENTRY = "costada.cli.sweep_entry"
ERROR_MARK = "costada: "
"""Begins what a command says to its user about an error."""

LONGEST_END = 2**16
"""Bytes of a log that are looked at for the reason."""

CAUSE = re.compile(r"[\w.]+: ")
"""Begins the line of a traceback that names the error; notes may follow it."""


class RunProcess:
    """A command under way. Ctrl-C in the terminal does not reach it; `drain` and `kill` do.

    Its input stays open as long as this process lives: at its end the command drains by itself.
    What it writes to standard error is kept beside the run's folder if it fails.
    """

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        """Start the command; raises `OSError` if it cannot be started."""
        self._log = log
        self._is_asked = False
        make_folder(log.parent)
        log.unlink(missing_ok=True)
        with created(log) as errors:
            self._process = Popen(
                [sys.executable, "-P", "-m", ENTRY, *arguments],
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=errors,
                process_group=0,
            )

    def end(self) -> tuple[Status, str] | None:
        """How the command ended and its error, `None` while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        self._close()
        is_stopped = code == ExitCode.INTERRUPTED or (code < 0 and self._is_asked)
        if is_stopped or code == ExitCode.FINISHED:
            self._log.unlink(missing_ok=True)
            return (Status.INTERRUPTED if is_stopped else Status.FINISHED), ""
        return Status.FAILED, last_error(read_end(self._log, LONGEST_END), code)

    def drain(self) -> None:
        """Ask the command to save and end, as Ctrl-C does."""
        self._is_asked = True
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the command where it stands; what it has saved stays."""
        self._is_asked = True
        self._process.kill()

    def _close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()


def start(run: SweepRun) -> RunProcess:
    """Begin a run, or go on with one that has begun; raises `OSError` if that is impossible.

    Its settings are those that the sweep was given, so it is trusted.
    """
    place = run.folder.path
    words = (
        ["resume", "--trust", str(place)]
        if run.has_begun
        else ["run", *options_of(run), run.config.problem]
    )
    return RunProcess([*words, "--json", "--quiet"], place.with_name(f"{place.name}.log"))


def last_error(log: str, code: int) -> str:
    """The line that says best why a command failed.

    Args:
        log: What it wrote to standard error.
        code: Its exit code, negative if a signal killed it.
    """
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = [line for line in log.splitlines() if line.strip()]
    told = [line.removeprefix(ERROR_MARK) for line in lines if line.startswith(ERROR_MARK)]
    causes = [line for line in lines if CAUSE.match(line)]
    return (told or causes or lines or [f"ended with exit code {code}"])[-1]


def options_of(run: SweepRun) -> list[str]:
    """The options of `costada run` that give a run its settings and its folder."""
    unsaid = {"problem"} if run.config.generator == "agent" else {"problem", "tool_evaluations"}
    values = {
        name: getattr(run.config, name) for name in RunConfig.model_fields if name not in unsaid
    }
    said = [_option(name, value) for name, value in values.items() if _is_worth_saying(name, value)]
    return [*said, f"--out={run.folder.path}"]


def _is_worth_saying(name: str, value: object) -> bool:
    is_default_switch = isinstance(value, bool) and value is RunConfig.model_fields[name].default
    return value is not None and not is_default_switch


def _option(name: str, value: object) -> str:
    if isinstance(value, bool):
        return as_option(name if value else f"no_{name}")
    return f"{as_option(name)}={value}"


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
        """How it ended and its error, `None` while it runs."""
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
        """The runs as they are when all have ended or the user has stopped the sweep.

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
