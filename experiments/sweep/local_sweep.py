"""One run of a sweep as a process of this machine: the ordinary command."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, cast

from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.experiments.sweep.loop import STOPPING, End
from costada.experiments.sweep.sweep import Status, SweepRun
from costada.models.menu import price_text
from costada.reports.trackers.tracker import tracker_names
from costada.runs.config import CONTROLLER, MENU, OTHER_PRICES, RunConfig
from costada.runs.interruption import ExitCode
from costada.runs.stored_run import StoredRun
from costada.runs.user_input import as_option
from costada.store.files import created, make_folder, read_end
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
        log.unlink(missing_ok=True)
        with created(log) as errors:
            self._process = Popen(
                [sys.executable, "-P", "-m", ENTRY, *arguments],
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=errors,
                env=helper_environment(),
                cwd=directory,
                process_group=0,
            )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        with suppress(BrokenPipeError):
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
            options.append(f"{as_option(name)}={price_text(value)}")
        elif isinstance(value, tuple):
            options.append(f"{as_option(name)}={','.join(value)}")
        elif not isinstance(value, bool):
            options.append(f"{as_option(name)}={value}")
        elif value is not field.default:
            options.append(as_option(name if value else f"no_{name}"))
    return [*options, f"--out={run.folder.path}"]
