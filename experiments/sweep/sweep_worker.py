"""What a cluster executes for each run: the ordinary command, in a process of its own."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import monotonic, sleep
from typing import Self

from costada.experiments.sweep.job_file import is_ordered_to_stop
from costada.experiments.sweep.local_sweep import RunProcess, start
from costada.experiments.sweep.loop import End
from costada.experiments.sweep.sweep import Status, SweepRun

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
