"""Runs of a sweep as tasks of a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from costada.experiments.sweep.job_file import order_path
from costada.experiments.sweep.loop import End
from costada.experiments.sweep.sweep import Status, SweepRun
from costada.experiments.sweep.tasks import TaskEngine, TaskProcess, carry_out_task
from costada.experiments.sweep.worker import WorkerRun

try:
    from distributed import CancelledError, Client, Future
except ModuleNotFoundError as missing:
    raise ValueError("--on dask://...: needs the extra: pip install 'costada[dask]'") from missing

CONNECT_SECONDS = 20
RESULT_SECONDS = 20
QUIET = ("asyncio", "distributed", "distributed.client", "tornado")
"""Loggers with a level of their own that print tracebacks when a scheduler is lost."""


class DaskProcess(TaskProcess):
    """The task of a run on Dask."""

    def __init__(self, run: SweepRun, out: Path, future: Future[Any]) -> None:
        """Take the run of the task, the folder of its sweep, and the future of its end."""
        super().__init__(run, out)
        self._future = future

    def kill(self) -> None:
        """Stop waiting for the task; it saves and ends."""
        super().kill()
        self._future.cancel()

    def _result(self) -> End | None:
        if self._future.status in ("pending", "lost"):  # what a worker has lost, Dask makes again
            return None
        try:
            if self._future.status == "finished":
                status, error = self._future.result(timeout=RESULT_SECONDS)
                return Status(status), error
            if self._future.status == "error":
                return Status.FAILED, str(self._future.exception(timeout=RESULT_SECONDS))
        except TimeoutError:
            return None
        except CancelledError:
            pass
        raise OSError("--on: the connection to the Dask scheduler is lost, and its tasks with it")


class DaskEngine(TaskEngine):
    """A Dask cluster."""

    def __init__(self, client: Client, address: str, out: Path) -> None:
        """Take a connected client, the address of its cluster, and the folder of the sweep."""
        super().__init__(address, out)
        self._client = client

    def start(self, run: SweepRun) -> DaskProcess:
        """Submit a run."""
        key = f"costada-{run.name}-{token_hex(4)}"
        future = self._client.submit(
            carry_out_task, WorkerRun(run), order_path(self._out), key=key, pure=False
        )
        return DaskProcess(run, self._out, future)


@contextmanager
def connected_to_dask(address: str, out: Path) -> Iterator[DaskEngine]:
    """The cluster whose scheduler has an address `dask://HOST:PORT`.

    Raises:
        OSError: If it does not respond.
    """
    scheduler = f"tcp://{address.partition('://')[2]}"
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise OSError(f"--on {address}: no Dask scheduler responds there ({error})") from None
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with client:
        yield DaskEngine(client, address, out)
