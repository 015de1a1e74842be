"""One run of a sweep as a process of its own: the ordinary command in its ordinary folder."""

import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from costada.experiments.sweep.sweep import Status, SweepRun
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
        """Return how the command ended and its error, `None` while it runs."""
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
    """Return the line that says best why a command failed.

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
    """Return the options of `costada run` that give a run its settings and its folder."""
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
