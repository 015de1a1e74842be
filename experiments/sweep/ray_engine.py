"""Runs of a sweep as tasks of a Ray cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from costada.experiments.sweep.job_file import order_path
from costada.experiments.sweep.loop import End
from costada.experiments.sweep.sweep import Status, SweepRun
from costada.experiments.sweep.tasks import TaskEngine, TaskProcess, carry_out_task
from costada.experiments.sweep.worker import WorkerRun

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ModuleNotFoundError as missing:
    raise ValueError("--on ray://...: needs the extra: pip install 'costada[ray]'") from missing

LOST_WORKERS = 3
"""How often a run moves to another worker after its own was lost."""

HERE = ("ray://", "ray://auto")
"""Addresses of the cluster that this machine belongs to."""


class RayProcess(TaskProcess):
    """The task of a run on Ray."""

    def __init__(self, run: SweepRun, out: Path, task: Any) -> None:
        """Take the run of the task, the folder of its sweep, and the reference to its end."""
        super().__init__(run, out)
        self._task = task

    def _result(self) -> End | None:
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


class RayEngine(TaskEngine):
    """A Ray cluster."""

    def __init__(self, address: str, out: Path) -> None:
        """Take the address that the client is connected to, and the folder of the sweep."""
        super().__init__(address, out)
        self._task = ray.remote(num_cpus=1, max_retries=LOST_WORKERS)(carry_out_task)

    def start(self, run: SweepRun) -> RayProcess:
        """Submit a run."""
        return RayProcess(run, self._out, self._task.remote(WorkerRun(run), order_path(self._out)))


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
