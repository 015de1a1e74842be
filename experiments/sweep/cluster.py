"""The runs of a sweep as jobs of an engine, whose nodes see the run folders at the same paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from costada.evaluators.remote.engine import (
    ALL_WORKERS,
    CLUSTERS,
    RUNS,
    Call,
    Engine,
    QueueEngine,
    SweepSettings,
    checked_address,
    engine_and_place,
    open_engine,
)
from costada.experiments.sweep.job_file import (
    JOBS,
    QUEUE,
    STOP,
    JobFile,
    Submission,
    give_order,
    is_ordered_to_stop,
    order_path,
)
from costada.experiments.sweep.loop import End, payable, unpaid
from costada.experiments.sweep.place import is_followed, place_of
from costada.experiments.sweep.run_process import MAX_LOG_BYTES, LocalRuns, WorkerRun, last_error
from costada.experiments.sweep.sweep import Status, SweepRun, step_of, with_progress
from costada.runs.interruption import STOPPED_AT_ONCE, ExitCode
from costada.runs.shared_purse import PurseAddress
from costada.store.address import shown_address
from costada.store.files import read_end

if TYPE_CHECKING:
    from costada.experiments.sweep.queued_runs import QueuedRuns

SLURM = "slurm"
MAX_LOST = 3
"""How often a run moves to another worker after its own was lost."""


class JobProcess:
    """The job of a run."""

    def __init__(self, run: SweepRun, out: Path, engine: Engine, job: Any = None) -> None:
        """Take the run, the folder of its sweep and the engine.

        Args:
            run: The run.
            out: Folder of the sweep.
            engine: Executes the job.
            job: The job if it has been submitted; None to start it now.
        """
        self._run, self._out, self._engine = run, out, engine
        self._job = job or self._start()
        self._lost = 0.0
        self._is_left = False

    def has_started(self) -> bool:
        """Whether a process works on the run."""
        is_running = self._engine.is_running(self._job)
        return self._run.folder.is_running if is_running is None else is_running

    def end(self) -> End | None:
        """How the run ended, `None` while it waits or runs.

        Raises:
            OSError: If the cluster cannot be reached any more.
        """
        if self._is_left:
            if not self._is_queued:
                return Status.INTERRUPTED, ""
            return Status.RUNNING if self.has_started() else Status.QUEUED, ""
        outcome = self._engine.poll(self._job)
        if outcome is None:
            return None
        if outcome.error is None:
            status, text = outcome.value
            return Status(status), text
        return self._end_of(outcome.error)

    def drain(self) -> None:
        """Let all jobs of the sweep save and end; jobs that outlive the command are only left."""
        if self._is_queued:
            self._is_left = True
        else:
            give_order(self._out, STOP)

    def kill(self) -> None:
        """Stop waiting for the job; unless it outlives the command, it saves and ends."""
        if not self._is_queued:
            self._engine.cancel(self._job)
        self._is_left = True

    @property
    def _is_queued(self) -> bool:
        return isinstance(self._engine, QueueEngine)

    def _start(self) -> Any:
        [job] = self._engine.start([Call(WorkerRun(self._run, order_path(self._out)))])
        return job

    def _end_of(self, error: BaseException) -> End | None:
        """How a run ended whose job has an error; `None` if it moves to another worker."""
        lost = self._engine.lost(error)
        if self._is_queued:
            # Slurm may lose a job that has finished its run: the run itself says how far it is.
            found = with_progress(replace(self._run, status=Status.WAITING), may_run=True)
            if found.status is Status.FINISHED:
                return Status.FINISHED, ""
            return (Status.FAILED if lost is None else Status.INTERRUPTED), str(error)
        if lost is None:
            return Status.FAILED, str(self._engine.cause(error))
        if lost == ALL_WORKERS:
            raise OSError(f"--on: the connection to {self._engine.name} is lost, and its jobs too")
        self._lost += lost
        if self._lost > MAX_LOST:
            return Status.FAILED, str(error).partition("\n")[0]
        self._job = self._start()
        return None


class ClusterRuns:
    """A sweep on an engine, whose runs are in the file of its jobs."""

    def __init__(self, address: str, out: Path, engine: Engine) -> None:
        """Take the engine, the value of `--on` that names it, and the folder of the sweep."""
        self._address, self._out, self._engine = address, out, engine
        self._queue = engine if isinstance(engine, QueueEngine) else None
        self._jobs: dict[str, Any] = {}

    @property
    def leaving(self) -> str:
        """What Ctrl-C does, in a sentence for the user."""
        if self.outlives_command:
            return "Leaving: the jobs continue. --status shows them, --cancel cancels them"
        return "Stopping: every run finishes its current call and saves; Ctrl-C again does not wait"

    @property
    def outlives_command(self) -> bool:
        """Whether jobs continue when the command ends."""
        return self._queue is not None

    def active(self) -> Mapping[str, Status]:
        """The runs that have a queued or running job of an earlier command, by name."""
        return {
            name: Status.RUNNING if self._engine.is_running(job) else Status.QUEUED
            for name, job in self._submitted().items()
            if self._queue and self._queue.is_queued(job)
        }

    def cancel(self) -> None:
        """Cancel the jobs of earlier commands; raises `OSError` if the cluster does not respond."""
        self._engine.cancel(*self._submitted().values())

    def prepare(self, runs: Sequence[SweepRun]) -> None:
        """Write runs that will be started together to the sweep's folder, and submit them.

        A submission is on file before it is made: if the command dies in between, the next one
        finds it by its token.

        Raises:
            ValueError: If the cluster refuses them.
            OSError: If it does not respond.
        """
        known = JobFile.of(self._out, self._address, runs)
        if self._queue is None or runs:
            give_order(self._out)  # withdraws an earlier one to stop
        if self._queue is None:
            known.save(self._out)
            return
        if runs:
            submission = Submission(token_hex(8), tuple(run.name for run in runs))
            replace(known, submissions=(*known.submissions, submission)).save(self._out)
            # A crash here leaves a submission without an id, which the cluster finds by its token.
            try:
                # Without an order file: the queue itself signals a job that is to stop.
                calls = [Call(WorkerRun(run)) for run in runs]
                submission = replace(submission, job=self._queue.submit(calls, submission.token))
            except ValueError as error:
                known.save(self._out)
                raise ValueError(f"--on {error}") from None
            replace(known, submissions=(*known.submissions, submission)).save(self._out)
        self._jobs = self._submitted()

    def start(self, run: SweepRun) -> JobProcess:
        """The job of a run."""
        return JobProcess(run, self._out, self._engine, self._jobs.get(run.name))

    def _submitted(self) -> dict[str, Any]:
        """The last job of each run that was submitted, also by earlier commands."""
        found = JobFile.load(self._out)
        if found is None or self._queue is None:
            return {}
        # Not strict: the queue knows no job of a submission that has never reached it.
        return {
            name: job
            for each in found.submissions
            for name, job in zip(
                each.runs, self._queue.jobs(each.token, each.job, len(each.runs)), strict=False
            )
        }


@contextmanager
def cluster_at(address: str, out: Path, settings: SweepSettings) -> Iterator[ClusterRuns]:
    """The runs of a sweep on the engine at an address, connected during the block.

    Raises:
        ValueError: If the engine or a library is not installed, or refuses the settings.
        OSError: If the cluster cannot be reached.
    """
    try:
        engine = open_engine(address, settings)
    except ValueError as error:
        raise ValueError(f"--on {error}") from None
    except OSError as error:
        raise OSError(f"--on {error}") from None
    try:
        yield ClusterRuns(address, out, engine)
    finally:
        engine.close()


@contextmanager
def runs_on(
    address: str | None, out: Path, options: Mapping[str, str | bool], num_jobs: int | None
) -> Iterator[LocalRuns | ClusterRuns]:
    """What executes the runs of a sweep, connected during the block.

    Args:
        address: See `CLUSTERS`; `None`: this machine.
        out: Folder of the sweep.
        options: Options of `sbatch` by name; only for Slurm.
        num_jobs: Maximum number of parallel runs; `None`: what the cluster allows.

    Raises:
        ValueError: If it is not an address, takes no options, or as `cluster_at` does.
        OSError: If the cluster cannot be reached.
    """
    if options and address != SLURM:
        raise ValueError("--slurm: needs --on slurm")
    if address is None:
        yield LocalRuns()
        return
    if "@" in address:
        raise ValueError("--on: got an address with an @, expected no user and no password in it")
    try:
        checked_address(address, RUNS, CLUSTERS)
    except ValueError as error:
        raise ValueError(f"--on: {error}") from None
    with cluster_at(address, out, SweepSettings(out / JOBS, options, num_jobs)) as cluster:
        yield cluster


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
    if jobs.engine == QUEUE:
        with _queued(jobs, out, store) as queued:
            return queued.runs()
    active: Mapping[str, Status] = {}
    if jobs.submissions:
        with _queue_of(jobs, out) as cluster:
            active = cluster.active()
    found = jobs.runs(out, place_of(out, store))
    order = order_path(out)
    is_stopped = order.is_file() and is_ordered_to_stop(order)
    runs = tuple(_run_now(run, active.get(run.name), is_stopped=is_stopped) for run in found)
    # Active runs may return money, so until they end no other run is out of funds.
    is_active = any(run.status in (Status.QUEUED, Status.RUNNING) for run in runs)
    if is_active or jobs.purse is None or not _is_known(jobs.purse, store):
        return runs
    return _with_unpaid(runs, jobs.purse)


def cancel_jobs(out: Path, store: str | None = None) -> None:
    """Cancel the jobs of a sweep: running ones save and end.

    Connects to no database but that of a queue.

    Args:
        out: Folder of the sweep.
        store: Address of the database with its runs, if the user gave one.

    Raises:
        ValueError: If the folder holds no sweep of a cluster, or one whose runs are in another
            database; nothing is cancelled then.
        OSError: If Slurm or the queue does not respond.
    """
    jobs = _jobs_in(out)
    if jobs.engine == QUEUE:
        with _queued(jobs, out, store) as queued:
            queued.cancel()
        return
    if store is not None:
        place_of(out, store)
    give_order(out, STOP)
    if jobs.submissions:
        with _queue_of(jobs, out) as cluster:
            cluster.cancel()


def _queued(jobs: JobFile, out: Path, store: str | None) -> AbstractContextManager[QueuedRuns]:
    """The runs of a sweep in the queue that has its jobs."""
    from costada.experiments.sweep.queued_runs import queued_runs

    database, team = place_of(out, store), jobs.purse
    if database is None or team is None:
        raise ValueError(f"{out}: does not say where its queue is; give it as --store")
    return queued_runs(database, team.name, out, jobs.runs(out, database))


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
            f"{out}: holds no sweep of a cluster or queue, expected one made with --on;"
            " `costada watch` shows other sweeps"
        )
    return jobs


def _run_now(run: SweepRun, status: Status | None, *, is_stopped: bool) -> SweepRun:
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
    """Mark waiting runs that the purse cannot pay for as skipped or cut short."""
    waiting = [run for run in runs if run.status is Status.WAITING]
    if not waiting:
        return runs
    with address.open() as purse:
        names = {run.name for run in waiting} - {run.name for run in payable(waiting, purse)}
    return tuple(unpaid(run) if run.name in names else run for run in runs)
