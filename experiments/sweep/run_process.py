"""One run of a sweep as a process: on this machine, or where a cluster executes it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from time import monotonic, sleep
from typing import IO, Self, cast

from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.experiments.sweep.job_file import is_ordered_to_stop
from costada.experiments.sweep.loop import STOPPING, End
from costada.experiments.sweep.sweep import Status, SweepRun
from costada.models.menu import price_text
from costada.nodes.generator_command import WITH_TOOLS, is_command
from costada.reports.tracking import tracker_names
from costada.runs.config import CONTROLLER, MENU, OTHER_PRICES, RunConfig
from costada.runs.interruption import ExitCode
from costada.runs.stored_run import StoredRun
from costada.runs.user_input import as_option
from costada.store.files import create_file, make_folder, read_end
from costada.values.usage import Price

ENTRY = "costada.cli.sweep_entry"
ERROR_MARK = "costada: "
"""Begins an error message of a command."""

WARNING = re.compile(rf"{ERROR_MARK}((?:{'|'.join(tracker_names())})[:,] .*)")
"""A line in which a run warns of one of its trackers."""

MAX_LOG_BYTES = 2**16
"""Bytes at the end of a log that are searched for the error."""

CAUSE = re.compile(r"[\w.]+: ")
"""Begins the line of a traceback that names the error; notes may follow it."""


class RunProcess:
    """A `costada` command. Ctrl-C in the terminal does not reach it; `drain` and `kill` do.

    Its standard input begins with the environment of this process, as nobody else can read keys
    there, and stays open as long as this process lives: when it closes, the command drains.
    Its standard error is kept beside the run's folder if it fails.
    """

    def __init__(self, arguments: Sequence[str], log: Path, directory: Path | None = None) -> None:
        """Start the command, in this folder; raises `OSError` if it cannot be started."""
        self._log = log
        self._is_asked = False
        make_folder(log.parent)
        # A new file: neither a link of its name nor a file that an old process writes is reused.
        log.unlink(missing_ok=True)
        with create_file(log) as errors:
            self._process = Popen(
                # -P: modules of the working directory do not replace those of the packages.
                [sys.executable, "-P", "-m", ENTRY, *arguments],
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=errors,
                env=helper_environment(),
                cwd=directory,
                process_group=0,  # a terminal sends Ctrl-C to the group of the command only
            )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        with suppress(BrokenPipeError):  # it has failed to start; `end` tells why
            self._stdin.write(f"{json.dumps(dict(os.environ))}\n".encode())
            self._stdin.flush()

    def has_started(self) -> bool:
        """Always: a process does not wait in a queue."""
        return True

    def end(self) -> End | None:
        """How the command ended, `None` while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        with suppress(BrokenPipeError):  # of one that has never read its environment
            self._stdin.close()
        # Before it handles signals, a command that is asked to stop is killed by the signal.
        is_stopped = code == ExitCode.INTERRUPTED or (code < 0 and self._is_asked)
        log = read_end(self._log, MAX_LOG_BYTES)
        if not (is_stopped or code in (ExitCode.FINISHED, ExitCode.UNPAID)):
            return Status.FAILED, last_error(log, code)
        self._log.unlink(missing_ok=True)
        if code == ExitCode.UNPAID:
            return Status.SKIPPED, last_error(log, code)
        return (Status.INTERRUPTED if is_stopped else Status.FINISHED), tracker_warnings(log)

    def drain(self) -> None:
        """Ask the command to save and end, as Ctrl-C does."""
        self._is_asked = True
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the command; what it has saved stays."""
        self._is_asked = True
        self._process.kill()


def start(run: SweepRun, directory: Path | None = None) -> RunProcess:
    """Start or resume a run, from a working directory; raises `OSError` if that is impossible.

    Its settings are the sweep's own, so the folder is trusted.
    """
    folder, place, options = run.folder, str(run.folder.path), options_of(run)
    if isinstance(folder, StoredRun):
        # With all that it takes to connect, except a password.
        place = f"{folder.address.database}#{folder.address.run}"
        options.append(f"--store={place}")
    words = ["run", *options, run.config.problem]
    if run.has_begun:
        files = [f"--out={folder.path}"] if isinstance(folder, StoredRun) else []
        words = ["resume", "--trust", *files, place]
    words += [] if run.purse is None else [f"--purse={run.purse}"]
    return RunProcess([*words, "--json", "--quiet"], folder.log, directory)


class LocalRuns:
    """This machine: every run is a process, which ends with the command."""

    leaving = STOPPING
    outlives_command = False

    def active(self) -> Mapping[str, Status]:
        """None: an earlier command has ended its processes."""
        return {}

    def prepare(self, runs: Sequence[SweepRun]) -> None:
        """Nothing is needed."""

    def start(self, run: SweepRun) -> RunProcess:
        """Start or resume a run; raises `OSError` if that is impossible."""
        return start(run)


def last_error(log: str, code: int) -> str:
    """The line of a log (standard error) that best explains why a command failed.

    A negative exit code means that a signal killed it.
    """
    if code < 0:
        return f"killed by {signal_name(-code)}"
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix(ERROR_MARK) for line in lines if line.startswith(ERROR_MARK)]
    causes = [line for line in lines if CAUSE.match(line)]
    return (errors or causes or lines or [f"ended with exit code {code}"])[-1]


def signal_name(number: int) -> str:
    """The name of a signal; real-time signals have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tracker_warnings(log: str) -> str:
    """What the trackers of a run warned of in its log, in one line; empty if nothing."""
    return "; ".join(found[1] for line in log.splitlines() if (found := WARNING.fullmatch(line)))


def options_of(run: SweepRun) -> list[str]:
    """The options of `costada run` for the settings and the folder of a run."""
    options = []
    unused = {
        *(["tool_evaluations"] if run.config.generator != WITH_TOOLS else []),
        *([] if is_command(run.config.generator) else ["generator_timeout"]),
    }
    for name, declared in RunConfig.model_fields.items():
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
        if name in unused:
            continue
        if isinstance(value, Price):
            options.append(f"{as_option(name)}={price_text(value)}")
        elif isinstance(value, tuple):
            options.append(f"{as_option(name)}={','.join(value)}")
        elif not isinstance(value, bool):
            options.append(f"{as_option(name)}={value}")
        elif value is not declared.default:
            options.append(as_option(name if value else f"no_{name}"))
    return [*options, f"--out={run.folder.path}"]


POLL_SECONDS = 0.5
"""How often a worker checks its process, the run's folder and whether it should stop."""


@dataclass
class WorkerRun:
    """A run as a cluster gets it; its folder must be on a file system that all nodes share.

    Attributes:
        run: The run.
        order: File by which it learns that it should stop; None if signals say so.
        directory: Working directory, if the node has it.
        version: Version of the package where the sweep was started.
    """

    run: SweepRun
    order: Path | None = None
    directory: Path = field(default_factory=Path.cwd)
    version: str = field(default_factory=lambda: version("costada"))
    _is_stopped: bool = field(default=False, init=False)
    _process: RunProcess | None = field(default=None, init=False, repr=False)

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        """Pickle a run that has not begun, also while this one works."""
        return type(self), (self.run, self.order, self.directory, self.version)

    def __call__(self) -> End:
        """Start or resume the run and wait for its end.

        A run that another process holds is waited for: a worker that the cluster has given up may
        still be saving it.

        Raises:
            ValueError: If this machine has another version of the package, or cannot see the
                sweep's folder.
            OSError: If the process cannot be started.
        """
        host = socket.gethostname()
        if (found := version("costada")) != self.version:
            raise ValueError(
                f"{host}: has costada {found}, expected {self.version} as where the sweep was"
                " started"
            )
        if self.order and not self.order.is_file():
            raise ValueError(
                f"{self.order}: cannot be seen on {host}; --out must be on a file system that all"
                " workers share, with the same path"
            )
        while not self._should_stop():
            if self.run.folder.is_running:
                sleep(POLL_SECONDS)
                continue
            # Between the look and the start, another worker may have taken the run's lease.
            end = self._attempt()
            if end[0] is not Status.FAILED or not self.run.folder.is_running:
                return end
        return Status.INTERRUPTED, ""

    def request_stop(self) -> None:
        """Let the run save and end; signal handlers may call it."""
        self._is_stopped = True

    def stop(self, seconds: float) -> None:
        """Let the running process save and end, and kill it after so many seconds."""
        if self._process is None:
            return
        # submitit runs signal handlers in the thread of `_attempt`, which cannot poll meanwhile.
        deadline = monotonic() + seconds
        self._process.drain()
        while self._process.end() is None:
            if monotonic() > deadline:
                self._process.kill()
            sleep(POLL_SECONDS)

    def _should_stop(self) -> bool:
        return self._is_stopped or (self.order is not None and is_ordered_to_stop(self.order))

    def _attempt(self) -> End:
        directory = self.directory if self.directory.is_dir() else Path(os.sep)
        self._process = start(self.run, directory)
        try:
            is_draining = False
            while (end := self._process.end()) is None:
                if not is_draining and self._should_stop():
                    is_draining = True
                    self._process.drain()
                sleep(POLL_SECONDS)
            return end
        finally:
            self._process = None
