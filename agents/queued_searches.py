"""Searches of clients as jobs of a queue, which its servers execute in place of this process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Event
from time import monotonic
from typing import cast

from costada.agents.followed_runs import (
    WAIT_SECONDS,
    FollowedRun,
    spent_of,
    status_of,
)
from costada.agents.job_clients import enqueue
from costada.agents.run_answers import RunList, RunPhase, RunStatus, StopReason
from costada.agents.search_service import SearchService
from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem as problem_named
from costada.nodes.trace_row import TraceRow
from costada.runs.folder import default_names, read_config
from costada.runs.stored_run import StoredRun
from costada.store.address import RunAddress
from costada.store.job_queue import Job, JobQueue
from costada.store.purse import Purse
from costada.store.rows import record
from costada.store.run_store import RunStore
from costada.values.setting import unknown_name

MAX_ENDED = 100
"""Most ended jobs that are listed."""

PHASES: Mapping[str, RunPhase] = {
    "waiting": "running",
    "finished": "finished",
    "cancelled": "interrupted",
    "failed": "failed",
    "unpaid": "failed",
    "running": "running",
}
"""What clients see of each state of a job; they wait for one that waits."""


@dataclass(frozen=True)
class JobRun:
    """The run of a job, also before it has begun.

    Attributes:
        queue: Has the job.
        job: The job as it was.
        folder: Where the run is kept.
        purse: That of the team.
        offered: The problem as this process has it; the servers may have it elsewhere.
    """

    queue: JobQueue
    job: Job
    folder: StoredRun
    purse: Purse
    offered: str | Problem

    @property
    def problem(self) -> Problem:
        """The problem of the run."""
        return self.offered if isinstance(self.offered, Problem) else problem_named(self.offered)

    def wait(self, seconds: float) -> None:
        """Return when the job has ended, or after so many seconds."""
        end, never = monotonic() + seconds, Event()
        while not self._now().ended and (left := end - monotonic()) > 0:
            never.wait(min(left, WAIT_SECONDS))

    def status(self) -> RunStatus:
        """The current state of the run, as the queue has it."""
        with RunStore.at(self.folder.address, is_read_only=True) as store:
            return replace(self, job=self._now()).status_in(store, self.queue.live_servers())

    def status_in(self, store: RunStore, live: Sequence[str]) -> RunStatus:
        """The state of the run by the job, the open database and the servers that live."""
        job = self.job
        phase = PHASES[job.state(live)]
        row, spent = None, 0.0
        if settings := store.named.settings(job.run):
            line = store.named.last_row(job.run)
            row = cast(TraceRow, record(line)) if line else None
            has_slices = read_config(settings, self.folder.place).purse_slice
            spent = spent_of(self.purse.found(job.run), phase, row, has_slices)
        return status_of(
            self.folder,
            job.problem,
            phase,
            row,
            self.purse,
            spent=spent,
            budget=cast(float, job.settings["budget"]),
            stop_reason=cast(StopReason, job.ended if phase == "finished" else ""),
            error=job.error,
        )

    def _now(self) -> Job:
        return next(iter(self.queue.jobs_of([self.job.run])), self.job)


@dataclass(frozen=True)
class QueuedSearches(SearchService):
    """Adds searches of clients to a queue, and follows them; executes none.

    Attributes:
        team: The team that the searches are of; `purse` is its purse.
    """

    team: str = ""
    queue: JobQueue = field(kw_only=True)

    def check(self) -> None:
        """Do nothing: the servers have checked their settings."""

    def follow(self) -> None:
        """Do nothing: the servers resume runs."""

    def start(
        self, name: str, budget: float, seed: int, target: float | None = None
    ) -> FollowedRun:
        """Add a job, or return that of this problem and seed if it has not ended.

        Raises:
            ValueError: There is no such problem, the budget, the seed or the target is invalid, or
                a job of this problem and seed has ended or was removed.
            OSError: The database cannot be reached.
        """
        if name not in self.problems:
            raise ValueError(unknown_name("problem", name, self.problems))
        # The name makes sure that two requests are one job.
        (stem,) = islice(default_names(name), 1)
        run = f"{self.team}/{stem.removesuffix('-1')}/seed-{seed}"
        if not self.queue.jobs_of([run]):
            if self._folder(run).claimed_at is not None:
                raise ValueError(
                    f"discover: problem {name!r} with seed {seed} is run {run!r}, whose job was"
                    " removed; expected another seed"
                )
            wanted = self.settings.target if target is None else target
            database, team = str(self.store), self.team
            try:
                enqueue(
                    database, name, team=team, budget=budget, seeds=[seed], target=wanted, name=run
                )
            except ValueError:
                if not self.queue.jobs_of([run]):  # else another request has added it
                    raise
        found = self.run(run)
        if (phase := found.status()["phase"]) != "running":
            raise ValueError(
                f"discover: problem {name!r} with seed {seed} is run {run!r}, which is {phase};"
                " expected another seed, or continue_run for one that is not finished"
            )
        return found

    def run(self, name: str) -> FollowedRun:
        """A run by its name; raises `ValueError` if the team has none."""
        for job in self.queue.jobs_of([name]):
            if job.team == self.team:
                return self._of(job)
        if earlier := self.paid.runs().get(name):  # its job was removed
            return earlier
        raise ValueError(f"run: got {name!r}, expected one of team {self.team!r}, as in list_runs")

    def listed(self) -> RunList:
        """The jobs of the team that have not ended, and the last ended ones."""
        jobs = [job for job in self.queue.latest(MAX_ENDED) if job.team == self.team]
        live = self.queue.live_servers()
        with RunStore.postgres(str(self.store), is_read_only=True) as store:
            runs = [self._of(job).status_in(store, live) for job in jobs]
        return RunList(
            runs=runs,
            purse_budget=float(self.purse.budget),
            purse_left=max(0.0, float(self.purse.remaining)),
        )

    def stop(self, name: str) -> FollowedRun:
        """Cancel a job: its run saves and ends, and returns its money."""
        run = self.run(name)
        self.queue.cancel(name)
        return run

    def extend(self, name: str, dollars: float, target: float | None = None) -> FollowedRun:
        """Let a job be tried again that was cancelled, has failed or was not paid.

        Raises:
            ValueError: There is no such job, or it is to get another budget or target.
        """
        run = self.run(name)
        if dollars or target is not None:
            raise ValueError(
                f"dollars: got {dollars:g} and target {target}, expected 0 and no target: a job"
                " keeps its own; another seed can have others"
            )
        if not self.queue.retry(name):
            phase = run.status()["phase"]
            raise ValueError(f"run: got {name!r}, which is {phase}; expected one that has failed")
        return run

    def submit(self, name: str, program: str | Mapping[str, str], seconds: float) -> FollowedRun:
        """As `SearchService.submit`; a job that has not begun takes no program."""
        if self.run(name).folder.claimed_at is None:
            raise ValueError(f"run: got {name!r}, which waits for a server; expected one that runs")
        return super().submit(name, program, seconds)

    def _of(self, job: Job) -> JobRun:
        offered = self.problems.get(job.problem, job.problem)
        return JobRun(self.queue, job, self._folder(job.run), self.purse, offered)

    def _folder(self, run: str) -> StoredRun:
        return StoredRun(self.parent / run, RunAddress(str(self.store), run))
