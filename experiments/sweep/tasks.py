"""Runs of a sweep as tasks of a cluster that end with the command, as those of Dask and Ray do."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from costada.experiments.sweep.job_file import STOP, JobFile, give_order, is_ordered_to_stop
from costada.experiments.sweep.loop import End
from costada.experiments.sweep.sweep import Status, SweepRun
from costada.experiments.sweep.worker import WorkerRun


class TaskProcess(ABC):
    """The task of a run. A worker that is lost is replaced, and the run resumed there."""

    def __init__(self, run: SweepRun, out: Path) -> None:
        """Take the run of the task, and the folder of its sweep."""
        self._run, self._out = run, out
        self._is_killed = False

    def has_started(self) -> bool:
        """Whether a process works on the run."""
        return self._run.folder.is_running

    def end(self) -> End | None:
        """How the run ended, `None` while it waits or runs.

        Raises:
            OSError: If the cluster cannot be reached any more.
        """
        return (Status.INTERRUPTED, "") if self._is_killed else self._result()

    def drain(self) -> None:
        """Let all tasks of the sweep save and end."""
        give_order(self._out, STOP)

    def kill(self) -> None:
        """Stop waiting for the task; it saves and ends."""
        self._is_killed = True

    @abstractmethod
    def _result(self) -> End | None:
        """How the task ended, `None` while it waits or runs; raises as `end` does."""


class TaskEngine:
    """What the engines of Dask and Ray share."""

    leaving = "Stopping: every run finishes its current call and saves; Ctrl-C again does not wait"
    outlives_command = False

    def __init__(self, address: str, out: Path) -> None:
        """Take the address of the cluster, and the folder of the sweep."""
        self._address, self._out = address, out

    def active(self) -> Mapping[str, Status]:
        """None: a task ends with its command."""
        return {}

    def prepare(self, runs: Sequence[SweepRun]) -> None:
        """Write the runs to the sweep's folder, and withdraw an earlier order to stop."""
        give_order(self._out)
        JobFile.of(self._out, self._address, runs).save(self._out)


def carry_out_task(run: WorkerRun, order: Path) -> End:
    """A run as a task.

    Raises:
        ValueError: If the sweep's folder cannot be seen here, or as `WorkerRun.carry_out` does.
    """
    if not order.is_file():
        raise ValueError(
            f"{order}: cannot be seen on {socket.gethostname()}; --out must be on a file system"
            " that all workers share, with the same path"
        )
    return run.carry_out(lambda: is_ordered_to_stop(order))
