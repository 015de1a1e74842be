"""What a cluster executes for each run: the ordinary command, in a process of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import monotonic, sleep

from costada.experiments.sweep.local import RunProcess, start
from costada.experiments.sweep.loop import End
from costada.experiments.sweep.sweep import Status, SweepRun

LOOK_SECONDS = 0.5
"""How often a worker looks at its process, at the run's folder and for an order to stop."""


@dataclass
class WorkerRun:
    """A run as a cluster gets it; its folder must be on a file system that all nodes share."""

    run: SweepRun
    directory: Path = field(default_factory=Path.cwd)  # working directory, if the node has it
    version: str = field(default_factory=lambda: version("costada"))
    _process: RunProcess | None = field(default=None, init=False, repr=False)

    def carry_out(self, should_stop: Callable[[], bool]) -> End:
        """Start or resume the run and wait for its end.

        A run that another process holds is waited for: a worker that the cluster has given up may
        still be saving it.

        Args:
            should_stop: Whether the run should save and end.

        Raises:
            ValueError: If this machine has another version of the package.
            OSError: If the process cannot be started.
        """
        if (found := version("costada")) != self.version:
            raise ValueError(
                f"{socket.gethostname()}: has costada {found}, expected"
                f" {self.version} as where the sweep was started"
            )
        while not should_stop():
            if self.run.folder.is_running:
                sleep(LOOK_SECONDS)
                continue
            end = self._attempt(should_stop)
            if end[0] is not Status.FAILED or not self.run.folder.is_running:
                return end
        return Status.INTERRUPTED, ""

    def stop(self, seconds: float) -> None:
        """Let the running process save and end, and kill it after so many seconds."""
        if self._process is None:
            return
        deadline = monotonic() + seconds
        self._process.drain()
        while self._process.end() is None:
            if monotonic() > deadline:
                self._process.kill()
            sleep(LOOK_SECONDS)

    def _attempt(self, should_stop: Callable[[], bool]) -> End:
        directory = self.directory if self.directory.is_dir() else Path(os.sep)
        self._process = start(self.run, directory)
        try:
            is_draining = False
            while (end := self._process.end()) is None:
                if not is_draining and should_stop():
                    is_draining = True
                    self._process.drain()
                sleep(LOOK_SECONDS)
            return end
        finally:
            self._process = None
