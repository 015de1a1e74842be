"""Runs of a sweep as tasks of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from costada.experiments.sweep.job_file import STOP, JobFile, give_order, order_path
from costada.experiments.sweep.sweep import Status, SweepRun
from costada.experiments.sweep.worker import End, WorkerRun, carry_out_task

try:
    from distributed import Client, Future
except ModuleNotFoundError as missing:
    raise ValueError("--on dask://...: needs the extra: pip install 'costada[dask]'") from missing

CONNECT_SECONDS = 20
RESULT_SECONDS = 20


class DaskProcess:
    """The task of a run. A worker that is lost is replaced by Dask, and the run resumed there."""

    def __init__(self, run: SweepRun, future: Future[Any], out: Path) -> None:
        """Take the task of a run, and the folder of its sweep."""
        self._run, self._future, self._out = run, future, out
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
        if self._future.status == "pending":
            return None
        if self._future.status == "finished":
            status, error = self._future.result(timeout=RESULT_SECONDS)
            return Status(status), error
        if self._future.status == "error":
            return Status.FAILED, str(self._future.exception(timeout=RESULT_SECONDS))
        raise OSError(f"{self._run.name}: the Dask cluster has lost its task")

    def drain(self) -> None:
        """Let all tasks of the sweep save and end."""
        give_order(self._out, STOP)

    def kill(self) -> None:
        """Stop waiting for the task; it saves and ends."""
        self._is_killed = True
        self._future.cancel()


class DaskEngine:
    """A Dask cluster; its tasks end with the command."""

    leaving = "Stopping: every run finishes its current call and saves; Ctrl-C again does not wait"
    outlives_command = False

    def __init__(self, client: Client, address: str, out: Path) -> None:
        """Take a connected client."""
        self._client, self._address, self._out = client, address, out

    def active(self) -> Mapping[str, Status]:
        """None: a task ends with its command."""
        return {}

    def prepare(self, runs: Sequence[SweepRun]) -> None:
        """Note the runs in the sweep's folder."""
        give_order(self._out)
        JobFile.of(self._out, self._address, runs).save(self._out)

    def start(self, run: SweepRun) -> DaskProcess:
        """Submit a run."""
        key = f"costada-{run.name}-{token_hex(4)}"
        future = self._client.submit(
            carry_out_task, WorkerRun(run), order_path(self._out), key=key, pure=False
        )
        return DaskProcess(run, future, self._out)


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
    with client:
        yield DaskEngine(client, address, out)
