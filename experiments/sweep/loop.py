"""Carries out a sweep: a limited number of runs at once, each in its own process."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from time import monotonic, sleep
from types import FrameType
from typing import Any, Protocol, Self

from costada.experiments.sweep.progress import SweepProgress
from costada.experiments.sweep.sweep import Status, SweepRun, last_step
from costada.reports.trackers.tracker import TrackerName
from costada.runs.config import CONTROLLER, MENU, OTHER_PRICES, RunConfig
from costada.runs.interruption import ExitCode
from costada.runs.user_input import as_option
from costada.store.files import created, make_folder, read_end
from costada.values.usage import Price

ENTRY = "costada.cli.sweep_entry"
ERROR_MARK = "costada: "
"""Begins an error message of a command."""

WARNING = re.compile(rf"{ERROR_MARK}((?:{'|'.join(TrackerName)})[:,] .*)")
"""A line in which a run warns of one of its trackers."""

LONGEST_LOG_END = 2**16
"""Bytes at the end of a log that are searched for the error."""

CAUSE = re.compile(r"[\w.]+: ")
"""Begins the line of a traceback that names the error; notes may follow it."""

STOPPING = "Stopping: every run finishes its current call and saves; Ctrl-C again stops at once"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
POLL_SECONDS = 0.1
PROGRESS_SECONDS = 1.0


class Process(Protocol):
    """A running process of a sweep."""

    def end(self) -> tuple[Status, str] | None:
        """How it ended and its error or, without one, its warnings; `None` while it runs."""

    def drain(self) -> None:
        """Ask it to save and end."""

    def kill(self) -> None:
        """Kill it; what it has saved stays."""


class RunProcess:
    """A `costada` command. Ctrl-C in the terminal does not reach it; `drain` and `kill` do.

    Its standard input stays open as long as this process lives: when it closes, the command drains.
    Its standard error is kept beside the run's folder if it fails.
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
        """How the command ended and its error or warnings, `None` while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        if self._process.stdin:
            self._process.stdin.close()
        is_stopped = code == ExitCode.INTERRUPTED or (code < 0 and self._is_asked)
        if is_stopped or code == ExitCode.FINISHED:
            warnings = tracker_warnings(read_end(self._log, LONGEST_LOG_END))
            self._log.unlink(missing_ok=True)
            return (Status.INTERRUPTED if is_stopped else Status.FINISHED), warnings
        return Status.FAILED, last_error(read_end(self._log, LONGEST_LOG_END), code)

    def drain(self) -> None:
        """Ask the command to save and end, as Ctrl-C does."""
        self._is_asked = True
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the command; what it has saved stays."""
        self._is_asked = True
        self._process.kill()


def start(run: SweepRun) -> RunProcess:
    """Start or resume a run; raises `OSError` if its process cannot be started.

    Its settings are the sweep's own, so the folder is trusted.
    """
    path = run.folder.path
    words = (
        ["resume", "--trust", str(path)]
        if run.has_begun
        else ["run", *options_of(run), run.config.problem]
    )
    return RunProcess([*words, "--json", "--quiet"], path.with_name(f"{path.name}.log"))


def last_error(log: str, code: int) -> str:
    """The line of a log (standard error) that best explains why a command failed.

    A negative exit code means that a signal killed it.
    """
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix(ERROR_MARK) for line in lines if line.startswith(ERROR_MARK)]
    causes = [line for line in lines if CAUSE.match(line)]
    return (errors or causes or lines or [f"ended with exit code {code}"])[-1]


def tracker_warnings(log: str) -> str:
    """What the trackers of a run warned of in its log, in one line; empty if nothing."""
    return "; ".join(found[1] for line in log.splitlines() if (found := WARNING.fullmatch(line)))


def options_of(run: SweepRun) -> list[str]:
    """The options of `costada run` for the settings and the folder of a run."""
    options = []
    for name, field in RunConfig.model_fields.items():
        value = getattr(run.config, name)
        is_menu = name == "model" and run.config.models
        if name == "problem" or value is None or value == () or is_menu:
            continue
        if name == MENU:
            entries = [entry.model_dump(mode="json", exclude_unset=True) for entry in value]
            options.append(f"{as_option(name)}={json.dumps(entries)}")
            continue
        if name == CONTROLLER:
            options += [f"--set={name}.{key}={str(each).lower()}" for key, each in value.items()]
            continue
        if name == OTHER_PRICES:
            for model, price in value.items():
                table = ", ".join(f"{key}={dollars}" for key, dollars in asdict(price).items())
                options.append(f"--set={name}.{model}={{{table}}}")
            continue
        if name == "tool_evaluations" and run.config.generator != "agent":
            continue
        if isinstance(value, Price):
            rates = (value.input_per_million, value.output_per_million, value.cached_per_million)
            options.append(f"{as_option(name)}={','.join(map(str, rates))}")
        elif isinstance(value, tuple):
            options.append(f"{as_option(name)}={','.join(value)}")
        elif not isinstance(value, bool):
            options.append(f"{as_option(name)}={value}")
        elif value is not field.default:
            options.append(as_option(name if value else f"no_{name}"))
    return [*options, f"--out={run.folder.path}"]


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered; works in the main thread only."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        """Take what shows that the first signal arrived; called inside a signal handler."""
        self.count = 0
        self._notify = notify
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
            self._notify(STOPPING)


class SweepLoop:
    """A sweep from its first process to its last; no process outlives `carry_out`."""

    def __init__(
        self,
        runs: Sequence[SweepRun],
        num_jobs: int,
        start: Callable[[SweepRun], Process],
        progress: SweepProgress,
        signals: StopSignals,
    ) -> None:
        """Take the runs, of which finished ones are skipped, and at most how many run at once."""
        self._runs = list(runs)
        self._num_jobs = num_jobs
        self._start = start
        self._progress = progress
        self._signals = signals
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
        for index, run in enumerate(self._runs):
            if self._signals.count or len(self._processes) >= self._num_jobs:
                break
            if run.status is Status.WAITING:
                self._processes[index] = self._start(run)
                self._began[index] = monotonic()
                self._update(index, Status.RUNNING)
        if monotonic() - self._shown >= PROGRESS_SECONDS:
            self._shown = monotonic()
            for index in self._processes:
                self._update(index, Status.RUNNING)
            self._progress.show(self._runs)

    def _update(self, index: int, status: Status, text: str = "") -> None:
        run, has_failed = self._runs[index], status is Status.FAILED
        self._runs[index] = replace(
            run,
            status=status,
            error=text if has_failed else "",
            warning="" if has_failed else text,
            step=last_step(run.folder.steps),
            seconds=monotonic() - self._began[index],
        )
