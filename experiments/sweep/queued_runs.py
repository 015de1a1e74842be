"""The runs of a sweep as jobs of a queue in Postgres, which its servers execute.

A job has the name of its run, so a sweep finds its jobs by the names of its runs alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from costada.agents.job_clients import Chosen, check_chosen, check_offered, queue_of
from costada.experiments.sweep.job_file import QUEUE, JobFile
from costada.experiments.sweep.loop import End
from costada.experiments.sweep.sweep import Status, SweepRun, smaller_budget_at_start, stored_step
from costada.runs.folder import read_config
from costada.runs.runner import saved_state
from costada.runs.stored_run import StoredRun
from costada.store.job_queue import Job, JobQueue
from costada.store.run_store import RunStore

LOOK_SECONDS = 1.0
"""Time between two looks at the jobs."""

STATUSES = {"waiting": Status.QUEUED, "running": Status.RUNNING, "finished": Status.FINISHED}
"""What a run is whose job has this state; with any other it has failed."""


def name_of(run: SweepRun) -> str:
    """The name of a run in the database, and of its job."""
    return run.folder.place.rpartition("#")[2]


def chosen_by(run: SweepRun) -> Chosen:
    """What the job of a run chooses; its server may call a problem by its folder."""
    config = run.config
    own: Chosen = {"problem": Path(config.problem).name, "budget": config.budget}
    target = {} if config.target is None else {"target": config.target}
    return {**own, **target, "seed": config.seed}


def write_page(run: SweepRun) -> str:
    """Write the page of a run that has finished; returns why that is impossible, if it is."""
    from costada.reports.page.page import write_page as write

    try:
        if isinstance(run.folder, StoredRun):
            run.folder.take_folder()
        write(run.folder)
    except (ValueError, OSError) as error:
        return str(error)
    return ""


class QueuedRun:
    """The job of a run, which the queue keeps when the command ends."""

    def __init__(self, run: SweepRun, jobs: QueuedRuns) -> None:
        self._run, self._jobs = run, jobs
        self._is_left = False

    def has_started(self) -> bool:
        """Whether a server executes it."""
        return self._jobs.end_of(self._run)[0] is not Status.QUEUED

    def end(self) -> End | None:
        """How it has ended, `None` while it waits or runs."""
        status, text = self._jobs.end_of(self._run)
        if status is Status.FINISHED:
            return status, write_page(self._run)
        is_active = status in (Status.QUEUED, Status.RUNNING)
        return None if is_active and not self._is_left else (status, text)

    def drain(self) -> None:
        """Leave it in the queue."""
        self._is_left = True

    kill = drain


class QueuedRuns:
    """A sweep whose runs are jobs of a team."""

    def __init__(
        self, queue: JobQueue, store: RunStore, team: str, out: Path, wanted: Sequence[SweepRun]
    ) -> None:
        """Take the open queue and database, the folder of the sweep and its runs."""
        self._queue, self._store, self._team, self._out = queue, store, team, out
        self._wanted = wanted
        self._jobs: Mapping[str, Job] = {}
        self._live: Sequence[str] = ()
        self._looked = 0.0
        self._look()

    @property
    def leaving(self) -> str:
        """What Ctrl-C does, in a sentence for the user."""
        return (
            "Leaving: the jobs stay in the queue. Repeat the command to follow them; `costada sweep"
            f" --out {self._out} --cancel` cancels them"
        )

    def runs(self) -> tuple[SweepRun, ...]:
        """The runs as the queue and the database have them.

        Raises:
            ValueError: A job or a run of one of the names is not that of the sweep.
            OSError: The server cannot be reached.
        """
        return tuple(map(self._known, self._wanted))

    def submit(self) -> None:
        """Add the jobs of runs that have none, all together, and let failed ones wait again.

        Raises:
            ValueError: No server offers a problem, or somebody else has taken one of the names;
                then no job is added.
            OSError: The server cannot be reached.
        """
        waiting = [run for run in self.runs() if run.status is Status.WAITING]
        new = {name_of(run): chosen_by(run) for run in waiting}
        check_offered(self._queue, [*new.values()])
        # A job has the name of its run: a command that dies from here on adds none twice.
        JobFile.of(self._out, QUEUE, self._wanted).save(self._out)
        if taken := self._queue.add(self._team, 0, new):
            raise ValueError(f"--out: {taken!r} is taken in the database; choose another name")
        for name in self._jobs:
            self._queue.retry(name)
        self._look()

    def cancel(self) -> None:
        """Cancel the jobs that have not ended."""
        for name in self._jobs:
            self._queue.cancel(name)
        self._look()

    def start(self, run: SweepRun) -> QueuedRun:
        """The job of a run."""
        return QueuedRun(run, self)

    def as_stored(self, run: SweepRun) -> SweepRun:
        """The run with what the database has of it; as it is known if that cannot be read."""
        if run.status is Status.QUEUED or not isinstance(run.folder, StoredRun):
            return run
        try:
            config, step = run.config, stored_step(run.folder, self._store)
            # Settings of a run do not change once it has made a step.
            if run.step is None:
                if not (text := self._store.named.settings(name_of(run))):
                    return run
                saved = read_config(text, run.folder.place)
                config = saved.model_copy(update={"problem": run.config.problem})
            given = smaller_budget_at_start(run) if run.status is Status.FINISHED else None
            return replace(run, config=config, step=step, budget_at_start=given)
        except (ValueError, OSError):
            return run

    def end_of(self, run: SweepRun) -> End:
        """How far the job of a run is, and its error; the last known if the server is away."""
        if monotonic() - self._looked >= LOOK_SECONDS:
            with suppress(OSError):
                self._look()
        job = self._jobs.get(name_of(run))
        if job is None:  # removed from the queue, which only one can be that has ended
            saved = saved_state(run.folder) if run.has_begun else None
            if saved and saved.get("stop_reason"):
                return Status.FINISHED, ""
            return Status.FAILED, "its job was removed from the queue"
        state = job.state(self._live)
        if state in STATUSES:
            return STATUSES[state], ""
        return Status.FAILED, f"{state}: {job.error}" if job.error else state

    def _look(self) -> None:
        self._looked = monotonic()
        jobs = self._queue.jobs_of([*map(name_of, self._wanted)])
        self._live = self._queue.live_servers()
        self._jobs = {job.run: job for job in jobs}

    def _known(self, run: SweepRun) -> SweepRun:
        job = self._jobs.get(name_of(run))
        wanted: dict[str, object] = {"team": self._team, **chosen_by(run)}
        found = wanted
        if job:
            found = {"team": job.team, **job.settings}
        elif run.has_begun:
            saved = run.folder.load()
            found = {
                **wanted,
                **chosen_by(replace(run, config=saved)),
                "problem": wanted["problem"],
            }
        if found != wanted:
            raise ValueError(
                f"{run.folder.place}: was given {found}, expected {wanted}; choose another --out"
            )
        status, error = self.end_of(run)
        if job is None and status is Status.FAILED:
            return run
        return self.as_stored(replace(run, status=status, error=error))


@contextmanager
def queued_runs(
    database: str, team: str, out: Path, wanted: Sequence[SweepRun]
) -> Iterator[QueuedRuns]:
    """The runs of a sweep as jobs of a team, connected to the queue during the block.

    Raises:
        ValueError: What a job chooses is invalid, or no server knows the team.
        OSError: The server cannot be reached.
    """
    check_chosen([*map(chosen_by, wanted)])
    with queue_of(database, team) as queue, RunStore.postgres(database, is_read_only=True) as store:
        yield QueuedRuns(queue, store, team, out, wanted)
