"""What a tracker does, and which trackers there are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

from costada.evaluators.sandbox.helper_environment import NETWORK, helper_environment
from costada.values.plugins import loaded, registered

CHECK = "--check"
CHECK_SECONDS = 60.0
"""After which a tracker that is asked whether it is set up no longer delays the run."""


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
        needs_setup: Whether it is asked before a run whether the user has something to set up.
    """

    place: str
    library: str
    variables: tuple[str, ...] = ()
    needs_setup: bool = True


def tracker_names() -> tuple[str, ...]:
    """The trackers that a run may be logged to."""
    return tuple(registered(ENTRY_POINTS))


def tracker_kind(name: str) -> TrackerKind:
    """The kind of a tracker, by one of `tracker_names`; raises as `loaded` does."""
    return loaded(registered(ENTRY_POINTS)[name], TrackerKind)


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
    return [sys.executable, "-P", "-m", "costada.reports.trackers.tracker_process", name, *options]


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
