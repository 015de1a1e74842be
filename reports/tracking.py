"""Trackers: what one does, which there are, and how a run is passed on to them without delay."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from queue import SimpleQueue
from secrets import token_hex
from tempfile import TemporaryFile
from threading import Thread
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from costada.evaluators.sandbox.helper_environment import NETWORK, helper_environment
from costada.store.files import make_folder, read_text, replace_text
from costada.store.rows import record
from costada.values.plugins import load_plugin, plugins_of

if TYPE_CHECKING:
    from costada.nodes.trace_row import TraceRow
    from costada.reports.run_view import RunView

CHECK = "--check"
CHECK_SECONDS = 60.0
"""How long the check of a tracker's setup may delay a run."""


ENTRY_POINTS = "costada.trackers"
"""Group of entry points; each is a `TrackerKind`, under the name that `--log` is given."""


@dataclass(frozen=True, slots=True)
class TrackerKind:
    """How a tracker is made; its library is imported only in its own process.

    Attributes:
        place: Its class, as `module:name`; an instance is a `Tracker`.
        library: The module that it needs, installed by the extra of the tracker's name.
        variables: Variables that it reads, as patterns: its own login among them, no keys of
            models.
        needs_setup: Whether its setup is checked before a run.
    """

    place: str
    library: str
    variables: tuple[str, ...] = ()
    needs_setup: bool = True


def tracker_names() -> tuple[str, ...]:
    """The trackers that a run may be logged to."""
    return tuple(plugins_of(ENTRY_POINTS))


def tracker_kind(name: str) -> TrackerKind:
    """The kind of a tracker, by one of `tracker_names`; raises as `load_plugin` does."""
    return load_plugin(plugins_of(ENTRY_POINTS)[name], TrackerKind)


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as a tracker knows it.

    Attributes:
        token: Names the run among all runs, the same whenever it is resumed.
        title: The run in a few words.
        settings: Settings as texts; none of them is a key.
        folder: Folder in the run folder for the tracker's own files; it need not exist.
    """

    token: str
    title: str
    settings: Mapping[str, str]
    folder: str


class Step(NamedTuple):
    """A finished iteration and its values by name."""

    iteration: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrackedEnd:
    """How a run ended.

    Attributes:
        reason: Why the run stopped; `interrupted` also if its process died.
        has_failed: Whether it stopped for an error or after too many failures.
        files: Paths of the best program and of the page, by name, as far as they exist.
    """

    reason: str
    has_failed: bool
    files: Mapping[str, str]


class Tracker(Protocol):
    """Logs one run. Any exception ends the tracker, never the run."""

    def check(self) -> None:
        """Raise `ValueError` if the user has something to set up first. Sends nothing of a run."""

    def begin(self, run: TrackedRun) -> int:
        """Begin the run or continue it, and return the last iteration that it has already."""

    def log(self, steps: Sequence[Step]) -> None:
        """Add iterations, in order."""

    def end(self, end: TrackedEnd) -> None:
        """Add files and the reason, and wait until everything is written."""


def make_tracker(name: str) -> Tracker:
    """The tracker of a name; its library must be installed."""
    module, _, kind = tracker_kind(name).place.partition(":")
    made: Tracker = getattr(import_module(module), kind)()
    return made


def check_trackers(names: Sequence[str]) -> None:
    """Check that trackers can be used, before a run spends money.

    Raises:
        ValueError: If a library is not installed, or a tracker is not set up.
    """
    kinds = {name: tracker_kind(name) for name in names}
    for name, kind in kinds.items():
        if find_spec(kind.library) is None:
            raise ValueError(f"log: {name} needs {kind.library}; pip install 'costada[{name}]'")
    for name, kind in kinds.items():
        if not kind.needs_setup:
            continue
        try:
            found = subprocess.run(
                tracker_command(name, CHECK),
                capture_output=True,
                timeout=CHECK_SECONDS,
                stdin=subprocess.DEVNULL,
                env=tracker_environment(name),
            )
        except subprocess.TimeoutExpired:
            continue
        if found.returncode:
            raise ValueError(f"log: {name}: {last_line(found.stderr)}")


def tracker_command(name: str, *options: str) -> list[str]:
    """The command of a tracker's process; with `-P` no file of the working folder is imported."""
    return [sys.executable, "-P", "-m", "costada.reports.tracker_process", name, *options]


def tracker_environment(name: str, secrets: Collection[str] = ()) -> dict[str, str]:
    """The variables of a tracker's process: its own and those of its storage, without `secrets`."""
    given = helper_environment(*NETWORK, *tracker_kind(name).variables)
    return {variable: value for variable, value in given.items() if variable not in secrets}


def last_line(output: bytes) -> str:
    """The last line of what a process wrote, without the kind of an error of ours."""
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return (lines[-1] if lines else "it ended unexpectedly").removeprefix("ValueError: ")


def file_of(folder: Path, pattern: str) -> list[Path]:
    """The files and folders of a pattern directly in a folder that are not links."""
    return [path for path in folder.glob(pattern) if not path.is_symlink()]


FOLDER = "trackers"
TOKEN_FILE = "run_id"  # noqa: S105
TOKEN = re.compile(r"[0-9a-f]{32}")
END_SECONDS = 60.0
"""How long the end of a run waits for its trackers."""

ROWS_AT_ONCE = 50
"""Earlier iterations in one message."""

VALUES = (
    *("spent", "step_cost", "score", "objective", "best_score", "best_objective"),
    *("utility", "intensity", "frontier"),
)
LOG = logging.getLogger("costada.trackers")


class Tracking:
    """The trackers of one run, each in a process of its own.

    Everything that goes wrong with a tracker is one warning that names it.
    """

    def __init__(self, names: Sequence[str], run: RunView, title: str) -> None:
        """Prepare; nothing is started before the run begins."""
        self._names, self._run, self._title = names, run, title
        self._processes: list[TrackerProcess] = []

    def begin(self, lines: Sequence[str]) -> None:
        """Begin with the run's settings and the rows of its finished iterations, as JSON."""
        if not self._names:
            return
        folder = self._run.path / FOLDER
        try:
            settings = self._run.load()
            token = token_in(folder)
        except (OSError, ValueError) as error:
            LOG.warning("%s: %s. The run is not logged", ", ".join(self._names), error)
            return
        # `model` has the names of a menu; their addresses and parameters are not logged.
        texts = {each.name: each.value for each in settings.listed if each.name != "models"}
        for name in self._names:
            tracked = TrackedRun(token, self._title, texts, str((folder / name).absolute()))
            try:
                process = TrackerProcess(name, tracked, settings.key_variables)
            except OSError as error:
                LOG.warning("%s: %s. The run continues without it", name, error)
                continue
            self._processes.append(process)
        steps = [step_message(record(line)) for line in lines]
        for start in range(0, len(steps), ROWS_AT_ONCE):
            self._send({"steps": steps[start : start + ROWS_AT_ONCE]})

    def step(self, row: TraceRow) -> None:
        """Add a finished iteration."""
        if self._processes:
            self._send({"steps": [step_message(row)]})

    def end(self, reason: str, files: Mapping[str, Path]) -> None:
        """Add how the run ended and its files, and wait for the trackers for a limited time.

        Args:
            reason: Why the run stopped; empty if an error ended it.
            files: The best program and the page, by name; those that do not exist are left out.
        """
        found = {name: str(path.absolute()) for name, path in files.items() if path.exists()}
        self._send(asdict(TrackedEnd(reason or "error", reason in ("", "failures"), found)))
        deadline = monotonic() + END_SECONDS
        # All are told before one is waited for: they write side by side within one deadline.
        for process in self._processes:
            process.finish()
        for process in self._processes:
            process.wait(max(0.0, deadline - monotonic()))
        self._processes = []

    def _send(self, message: Mapping[str, object]) -> None:
        for process in self._processes:
            process.send(message)


class TrackerProcess:
    """One tracker's process and the thread that feeds it; the run only fills a queue."""

    def __init__(self, name: str, run: TrackedRun, secrets: Collection[str]) -> None:
        """Start the process, without the variables in `secrets`, and the thread.

        Raises:
            OSError: If the process cannot be started.
        """
        self._name, self._is_late = name, False
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        # Not a pipe: nobody reads until the end, and a full one would stop the tracker.
        self._output = TemporaryFile()  # noqa: SIM115 - the thread closes it
        self._process = subprocess.Popen(
            tracker_command(name),
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            env=tracker_environment(name, secrets),
            start_new_session=True,  # Ctrl-C reaches only the run
        )
        self.send(asdict(run))
        # A daemon, as a tracker that hangs must not keep the process of the run alive.
        self._thread = Thread(target=self._feed, name=f"costada-{name}", daemon=True)
        self._thread.start()

    def send(self, message: Mapping[str, object]) -> None:
        """Queue a message; never waits."""
        self._queue.put(f"{json.dumps(message)}\n".encode())

    def finish(self) -> None:
        """Queue the end of all messages."""
        self._queue.put(None)

    def wait(self, seconds: float) -> None:
        """Wait until everything is logged; a tracker that takes longer is stopped."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._is_late = True
            LOG.warning("%s: stopped, as it did not finish in time", self._name)
            self._process.kill()
            self._thread.join(1.0)

    def _feed(self) -> None:
        """Write the queued messages to the process, and report how it failed, if it did."""
        stdin = cast("IO[bytes]", self._process.stdin)
        with self._output as output:
            # A tracker that has failed reads no more; its output says why.
            with suppress(BrokenPipeError), stdin:
                while (message := self._queue.get()) is not None:
                    stdin.write(message)
                    stdin.flush()
            if self._process.wait() and not self._is_late:
                output.seek(0)
                text = last_line(output.read()).rstrip(".")
                LOG.warning("%s: %s. The run continues without it", self._name, text)


def token_in(folder: Path) -> str:
    """The token by which trackers know the run, made when it is first logged.

    Raises:
        ValueError: If a part of the folder is a link, which could lead anywhere.
        OSError: If it cannot be read or written.
    """
    for path in (folder, *(folder / name for name in tracker_names())):
        if path.is_symlink():
            raise ValueError(f"{path}: is a link, expected a folder of the run's own; remove it")
    make_folder(folder)
    with suppress(FileNotFoundError, ValueError):
        if TOKEN.fullmatch(known := read_text(folder / TOKEN_FILE, largest=32)):
            return known
    replace_text(folder / TOKEN_FILE, token := token_hex(16))
    return token


def step_message(row: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """An iteration and what is logged of it: values that are finite numbers."""
    values = {name: row.get(name) for name in VALUES}
    for model in row.get("router", ()):
        name = f"dollars/{re.sub(r'[^a-zA-Z0-9_.-]', '-', model['name'])}"
        values[f"{name}-{model['name']}" if name in values else name] = model["dollars"]
    for role, dollars in row.get("dollars_by_role", {}).items():
        values[f"dollars_by_role/{role}"] = dollars
    return row["iteration"], {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and isfinite(value)
    }
