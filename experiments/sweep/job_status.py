"""The runs of a sweep on a cluster, seen from outside of the command that submitted them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from costada.evaluators.remote.engine import SweepSettings
from costada.evaluators.remote.engine_address import engine_and_place
from costada.experiments.sweep.cluster import ClusterRuns, cluster_at
from costada.experiments.sweep.job_file import (
    JOBS,
    STOP,
    JobFile,
    give_order,
    is_ordered_to_stop,
    order_path,
)
from costada.experiments.sweep.local_sweep import MAX_LOG_BYTES, last_error
from costada.experiments.sweep.place import is_followed, place_of
from costada.experiments.sweep.purse_share import payable, unpaid
from costada.experiments.sweep.sweep import Status, SweepRun, step_of, with_progress
from costada.runs.interruption import STOPPED_AT_ONCE, ExitCode
from costada.runs.shared_purse import PurseAddress
from costada.store.address import shown_address
from costada.store.files import read_end


def job_status(out: Path, store: str | None = None) -> tuple[SweepRun, ...]:
    """The runs of a sweep as they are now.

    Args:
        out: Folder of the sweep.
        store: Address of the database with its runs; needed where `SweepPlace.followed` is.

    Raises:
        ValueError: If the folder holds no sweep of a cluster, or does not say where its runs are.
        OSError: If Slurm, the database or the purse does not respond.
    """
    jobs = _jobs_in(out)
    active: Mapping[str, Status] = {}
    if jobs.submissions:
        with _queue_of(jobs, out) as cluster:
            active = cluster.active()
    found = jobs.runs(out, place_of(out, store))
    order = order_path(out)
    is_stopped = order.is_file() and is_ordered_to_stop(order)
    runs = tuple(_seen(run, active.get(run.name), is_stopped=is_stopped) for run in found)
    is_active = any(run.status in (Status.QUEUED, Status.RUNNING) for run in runs)
    if is_active or jobs.purse is None or not _is_known(jobs.purse, store):
        return runs
    return _with_unpaid(runs, jobs.purse)


def cancel_jobs(out: Path, store: str | None = None) -> None:
    """Cancel the jobs of a sweep: running ones save and end. Connects to no database.

    Args:
        out: Folder of the sweep.
        store: Address of the database with its runs, if the user gave one.

    Raises:
        ValueError: If the folder holds no sweep of a cluster, or one whose runs are in another
            database; nothing is cancelled then.
        OSError: If Slurm does not respond.
    """
    jobs = _jobs_in(out)
    if store is not None:
        place_of(out, store)
    give_order(out, STOP)
    if jobs.submissions:
        with _queue_of(jobs, out) as cluster:
            cluster.cancel()


def _queue_of(jobs: JobFile, out: Path) -> AbstractContextManager[ClusterRuns]:
    """The engine that jobs were submitted to.

    Raises:
        ValueError: If its address names a place. The folder may come from somebody else, and a
            connection to a place of their choice could execute code here.
    """
    if engine_and_place(jobs.engine) != (jobs.engine, ""):
        raise ValueError(f"{out}: its jobs are on {jobs.engine!r}, expected an engine of its own")
    return cluster_at(jobs.engine, out, SweepSettings(out / JOBS))


def _jobs_in(out: Path) -> JobFile:
    if not out.is_dir():
        raise ValueError(f"{out}: is not a folder, expected that of a sweep made with --on")
    jobs = JobFile.load(out)
    if jobs is None:
        raise ValueError(
            f"{out}: holds no sweep of a cluster, expected one made with --on; `costada watch`"
            " shows other sweeps"
        )
    return jobs


def _seen(run: SweepRun, status: Status | None, *, is_stopped: bool) -> SweepRun:
    """A run as it is; a stopped one has no error in its log until its worker removes that."""
    if status is None and run.folder.is_running:
        status = Status.RUNNING
    if status is not None:
        return replace(run, status=status, step=step_of(run))
    run = with_progress(run, may_run=True)
    if run.status is Status.FINISHED:
        return run
    try:
        log = read_end(run.folder.log, MAX_LOG_BYTES)
    except FileNotFoundError:
        return run
    error = last_error(log, ExitCode.FAILED)
    if error.startswith(STOPPED_AT_ONCE) or (is_stopped and not log):
        return replace(run, status=Status.INTERRUPTED)
    return replace(run, status=Status.FAILED, error=error)


def _is_known(purse: PurseAddress, store: str | None) -> bool:
    """Whether the user would have a purse read that the sweep's folder names."""
    address = purse.dsn
    return address is not None and (
        is_followed(address)
        or (store is not None and shown_address(store) == shown_address(address))
    )


def _with_unpaid(runs: tuple[SweepRun, ...], address: PurseAddress) -> tuple[SweepRun, ...]:
    """The runs, of which those that the purse cannot pay for are skipped or cut short."""
    waiting = [run for run in runs if run.status is Status.WAITING]
    if not waiting:
        return runs
    with address.opened() as purse:
        names = {run.name for run in waiting} - {run.name for run in payable(waiting, purse)}
    return tuple(unpaid(run) if run.name in names else run for run in runs)
