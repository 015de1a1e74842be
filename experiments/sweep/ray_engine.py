"""Runs of a sweep as tasks of a Ray cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from costada.experiments.sweep.job_file import STOP, JobFile, give_order, order_path
from costada.experiments.sweep.sweep import Status, SweepRun
from costada.experiments.sweep.worker import End, WorkerRun, carry_out_task

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ModuleNotFoundError as missing:
    raise ValueError("--on ray://...: needs the extra: pip install 'costada[ray]'") from missing

LOST_WORKERS = 3
"""How often a run moves to another worker after its own was lost."""

HERE = ("ray://", "ray://auto")
"""Addresses of the cluster that this machine belongs to."""


class RayProcess:
    """The task of a run. A worker that is lost is replaced by Ray, and the run resumed there."""

    def __init__(self, run: SweepRun, task: Any, out: Path) -> None:
        """Take the task of a run, and the folder of its sweep."""
        self._run, self._task, self._out = run, task, out
        self._is_killed = False

    def has_started(self) -> bool:
        """Whether a process works on the run."""
        return self._run.folder.is_running

    def end(self) -> End | None:
        """How the run ended, `None` while it waits or runs.

        Raises:
            OSError: If the cluster is gone.
        """
        if self._is_killed:
            return Status.INTERRUPTED, ""
        try:
            done, _ = ray.wait([self._task], timeout=0)
            if not done:
                return None
            status, error = ray.get(self._task)
        except RayTaskError as failed:
            return Status.FAILED, str(failed.cause)
        except RayError as lost:
            return Status.FAILED, str(lost).partition("\n")[0]
        return Status(status), error

    def drain(self) -> None:
        """Let all tasks of the sweep save and end."""
        give_order(self._out, STOP)

    def kill(self) -> None:
        """Stop waiting for the task; it saves and ends."""
        self._is_killed = True


class RayEngine:
    """A Ray cluster; its tasks end with the command."""

    leaving = "Stopping: every run finishes its current call and saves; Ctrl-C again does not wait"
    outlives_command = False

    def __init__(self, address: str, out: Path) -> None:
        """Take the address that the client is connected to."""
        self._address, self._out = address, out
        self._task = ray.remote(num_cpus=1, max_retries=LOST_WORKERS)(carry_out_task)

    def active(self) -> Mapping[str, Status]:
        """None: a task ends with its command."""
        return {}

    def prepare(self, runs: Sequence[SweepRun]) -> None:
        """Note the runs in the sweep's folder."""
        give_order(self._out)
        JobFile.of(self._out, self._address, runs).save(self._out)

    def start(self, run: SweepRun) -> RayProcess:
        """Submit a run."""
        return RayProcess(run, self._task.remote(WorkerRun(run), order_path(self._out)), self._out)


@contextmanager
def connected_to_ray(address: str, out: Path) -> Iterator[RayEngine]:
    """The cluster at an address `ray://HOST:PORT`, or that of this machine at `ray://`.

    Raises:
        OSError: If it does not respond.
    """
    try:
        ray.init(
            "auto" if address in HERE else address,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RayError) as error:
        raise OSError(f"--on {address}: no Ray cluster responds there ({error})") from None
    try:
        yield RayEngine(address, out)
    finally:
        ray.shutdown()
