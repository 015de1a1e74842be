"""A server that takes runs from a queue in Postgres and executes many of them in this process.

Several servers may have one queue, on one machine or on many. A run whose server has died is taken
by another one and resumed.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple

from langgraph.runtime import RunControl

from costada.agents.followed_runs import HINDRANCES, UNEXPECTED
from costada.agents.teams import Team, next_jobs
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.concurrency import CancellationToken, current_token
from costada.models.errors import (
    AccountRefused,
    ModelRefused,
    ProviderAway,
    UnmeteredCall,
    describe,
)
from costada.models.menu import label_of
from costada.reports.json_log import current_run
from costada.reports.logged_progress import LoggedProgress
from costada.runs.config import CHOSEN_BY_JOBS, EXECUTION, RunConfig, checked_config
from costada.runs.folder import RunFolder
from costada.runs.gateways import GATEWAY_LOG, installed_gateway
from costada.runs.plan import plan_run
from costada.runs.runner import execute_run, patience_of
from costada.runs.search_request import SearchRequest
from costada.runs.shared_purse import PurseAddress, paid_from, return_money
from costada.runs.stored_run import StoredRun, run_at
from costada.store.accounts import OverBudget
from costada.store.address import RunAddress
from costada.store.job_queue import CANCELLED, FAILED, SERVER, UNPAID, Job, JobQueue
from costada.store.lease import HeldElsewhere, Lease
from costada.store.outage import (
    NO_PATIENCE,
    Patience,
    outlast,
    waiting_for_database,
    waiting_in_any_case,
)
from costada.store.run_store import RunStore
from costada.values.search_result import Discovery

POLL_SECONDS = 1.0
"""Time between two looks for jobs."""

RETRY_SECONDS = 15.0
"""Time until a run is tried again that another process or an outage has hindered."""

SWITCH_SECONDS = 0.1
"""Time after which a thread lets another one run; each one that waits wakes as often."""

NO_THREAD = "can't start new thread"
"""In the error of a process that has reached a limit of threads or of memory."""

LOG = logging.getLogger("costada.server")


@dataclass(slots=True)
class _Execution:
    """A job that this process executes."""

    job: Job
    control: RunControl = field(default_factory=RunControl)
    token: CancellationToken = field(default_factory=CancellationToken)

    def interrupt(self, reason: str) -> None:
        """Let the run save and end; evaluations are cancelled, and repeated later."""
        self.control.request_drain(reason)
        self.token.cancel()


class _Outcome(NamedTuple):
    """Why a job has ended, empty if it is tried again; the error, and seconds until then."""

    ended: str = ""
    error: str = ""
    seconds: float = 0.0


class RunServer:
    """Executes jobs of a queue in threads until it is told to end.

    Attributes:
        name: The name of the server's lease.
    """

    def __init__(
        self,
        address: str,
        problems: Mapping[str, str | Problem],
        given: SearchRequest,
        teams: Mapping[str, Team],
        parent: Path,
        at_once: int,
        planned: Mapping[str, Problem] | None = None,
    ) -> None:
        """Open the queue, and the purse of each team.

        Args:
            address: The database of the queue, the runs and the purses.
            problems: The problems that jobs may choose, by name: benchmarks and folders.
            given: The models and settings of every run.
            teams: The teams by name.
            parent: Parent of the folders of the runs on this machine.
            at_once: Most runs at the same time.
            planned: Problems by name whose initial program is evaluated already, as in a plan.

        Raises:
            ValueError: A purse has another policy, or a higher budget.
            OSError: The server cannot be reached.
        """
        self.name = f"{SERVER}{token_hex(8)}"
        self._address, self._problems, self._given = address, problems, given
        self._teams, self._parent, self._at_once = teams, parent, at_once
        self._store, self._queue = RunStore.postgres(address), JobQueue(address)
        # It keeps connections open for what each run reads when it begins.
        self._reader = RunStore.postgres(address, is_read_only=True)
        self._running: dict[str, _Execution] = {}
        self._planned = {name: each for name, each in problems.items() if isinstance(each, Problem)}
        self._planned |= planned or {}
        self._lock, self._ending, self._has_changed = Lock(), Event(), Event()
        self._planning: defaultdict[str, Lock] = defaultdict(Lock)
        self._lease: Lease | None = None
        self._has_offered = False
        self._is_abandoned = False  # the process ends before its runs
        self._refusal: AccountRefused | ModelRefused | None = None
        for name, team in teams.items():
            try:
                self._purse(name).create(team.budget, given.config.budget_policy).close()
            except ValueError as error:
                raise ValueError(f"team {name!r}: {error}") from None

    def serve(self) -> None:
        """Take and execute jobs until `end` is called; the process is to have no other work.

        Raises:
            AccountRefused: A provider refuses the key of this server.
            ModelRefused: A provider does not know the model of this server.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        patience = Patience(inf, self._check_ending)
        while not self._ending.is_set():
            with _reporting():
                outlast(self._poll, patience)
            self._has_changed.wait(POLL_SECONDS)
            self._has_changed.clear()
        if self._refusal:
            raise self._refusal

    def _check_ending(self) -> None:
        if self._ending.is_set():
            raise InterruptedError("the server ends while it waits for its database")

    def end(self, seconds: float) -> None:
        """Interrupt all runs, so that they save, and wait for them for at most `seconds`.

        Their jobs are free for other servers then.
        """
        self._ending.set()
        self._has_changed.set()
        deadline = monotonic() + seconds
        with self._lock:
            running = [*self._running.values()]
        for each in running:
            each.interrupt("the server ends")
        while self.num_running and (left := deadline - monotonic()) > 0:
            self._has_changed.wait(min(left, POLL_SECONDS))
            self._has_changed.clear()
        self._is_abandoned = self.num_running > 0
        # Last: jobs of a server without a lease are taken by others.
        if self._lease:
            with _reporting(), waiting_for_database(NO_PATIENCE):
                self._queue.withdraw(self.name)
            self._lease.release()

    @property
    def num_running(self) -> int:
        """How many jobs this process executes."""
        with self._lock:
            return len(self._running)

    def unready_reason(self) -> str:
        """Why this server takes no jobs now; empty if it does."""
        if self._ending.is_set():
            return "is ending"
        try:
            with waiting_for_database(NO_PATIENCE):
                is_live = self.name in self._queue.live_servers()
        except (OSError, ValueError, sqlite3.Error):
            return "cannot read its queue"  # `serve` logs why
        return "" if is_live else "does not hold its lease"

    def _poll(self) -> None:
        """Hold the lease, interrupt cancelled jobs, and take new ones; may be repeated."""
        with waiting_for_database(NO_PATIENCE):
            if self._lease is None or self._lease.lost:
                self._lease, self._has_offered = self._store.hold(self.name), False
            if not self._has_offered:
                self._queue.offer(self.name, [*self._problems])
                self._has_offered = True
            self._change_jobs()

    def _change_jobs(self) -> None:
        for job in self._queue.taken_by(self.name):
            with self._lock:
                known = self._running.get(job.run)
            if known is None:
                # Its end was not written, or the database went back to before that.
                self._queue.release(job.run, self.name)
            elif job.is_cancelled:
                known.interrupt(CANCELLED)
        room = self._at_once - self.num_running
        if room > 0:
            choose = partial(self._next, room)
            for job in self._queue.take(self.name, [*self._teams], [*self._problems], room, choose):
                self._start(job)

    def _start(self, job: Job) -> None:
        """Execute a job in a thread of its own."""
        execution = _Execution(job)
        with self._lock:
            self._running[job.run] = execution
        try:
            Thread(target=self._execute, args=(execution,), name=job.run, daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                del self._running[job.run]
            LOG.warning("%s: %s; it is tried again", job.run, error)
            self._queue.release(job.run, self.name, str(error), RETRY_SECONDS)

    def _next(self, room: int, waiting: Sequence[Job], running: Mapping[str, int]) -> list[Job]:
        """The jobs to start; not those that run here while the server's lease was lost."""
        with self._lock:
            others = [job for job in waiting if job.run not in self._running]
        return next_jobs(others, running, self._teams, room)

    def _execute(self, execution: _Execution) -> None:
        """Execute a job in its thread, and note how it has ended."""
        job = execution.job
        current_token.set(execution.token)
        current_run.set(job.run)
        patience = patience_of(self._given.config.longest_pause, execution.control)
        outcome = _Outcome(FAILED, UNEXPECTED)
        try:
            with waiting_for_database(patience):
                outcome = self._outcome(execution)
        finally:
            try:
                with _reporting(), waiting_for_database(patience), waiting_in_any_case():
                    self._note(execution, outcome)
            finally:
                with self._lock:
                    del self._running[job.run]
                self._has_changed.set()

    def _outcome(self, execution: _Execution) -> _Outcome:
        """Execute a job; how it has ended, or why it is tried again."""
        job = execution.job
        try:
            if not job.is_cancelled:
                found = self._discovery(execution)
                if found.stop_reason != "interrupted":
                    return _Outcome(found.stop_reason)
            if job.is_cancelled or execution.control.drain_reason == CANCELLED:
                return _Outcome(CANCELLED)
            return _Outcome()
        except OverBudget as error:
            return _Outcome(UNPAID, str(error))
        except (AccountRefused, ModelRefused) as error:
            # Each further job of this server would end like this one.
            self._refusal = error
            self._ending.set()
            return _Outcome("", str(error))
        except (*HINDRANCES, ProviderAway, sqlite3.Error) as error:
            LOG.warning("%s: %s; it is tried again", job.run, error)
            return _Outcome("", str(error), RETRY_SECONDS)
        except RuntimeError as error:
            if NO_THREAD not in str(error):
                raise
            LOG.warning("%s: %s; it is tried again", job.run, error)
            return _Outcome("", str(error), RETRY_SECONDS)
        except (ValueError, UnmeteredCall) as error:
            LOG.warning("%s: %s", job.run, error)
            return _Outcome(FAILED, str(error) or describe(error))

    def _note(self, execution: _Execution, outcome: _Outcome) -> None:
        """Write how a job has ended, or release it; what fails here is done at the next poll."""
        job, (ended, error, seconds) = execution.job, outcome
        if self._refusal and not ended:
            # A server with another model does not resume a run that was begun with this one. It may
            # be another run than the refused one, which was interrupted before its first request.
            self._free_unpaid(job)
        if ended == UNPAID and self._is_lent(job.team):
            ended, seconds = "", RETRY_SECONDS
        if not ended or self._is_abandoned:
            self._queue.release(job.run, self.name, error, seconds)
            return
        if ended in (FAILED, CANCELLED):
            return_money(self._purse(job.team), self._folder(job))
        self._queue.end(job, self.name, ended, error)

    def _free_unpaid(self, job: Job) -> None:
        """Return the money of a run, and free its name if it has bought nothing."""
        folder = self._folder(job)
        return_money(self._purse(job.team), folder)
        # Before it has begun, a run of its name is somebody else's.
        if any(each.has_begun for each in self._queue.jobs_of([job.run])):
            if folder.has_own_files() and (folder.path / GATEWAY_LOG).exists():
                installed_gateway().stop(folder)
            folder.forget_unpaid()

    def _folder(self, job: Job) -> StoredRun:
        return StoredRun(self._parent / job.run, RunAddress(self._address, job.run))

    def _discovery(self, execution: _Execution) -> Discovery:
        """Start or resume the run of a job; raises as `plan_run`, `paid_from`, `execute_run` do."""
        job = execution.job
        folder = run_at(f"{self._address}#{job.run}", self._parent / job.run)
        config = self._settings(job)
        if job.has_begun and folder.claimed_at is not None:
            self._check_settings(job, _other_settings(folder.load(), config))
        # The first plan of a problem evaluates its initial program; its runs share the sandboxes.
        with self._planning[job.problem]:
            known = self._planned.get(job.problem)
            plan = plan_run(replace(self._given, config=config, problem=known))
            self._planned[job.problem] = plan.problem
        with paid_from(self._purse(job.team), plan, folder) as paid:
            self._claim(job, folder, config)
            # No user can accept lost requests here, so they are logged and charged.
            return execute_run(paid, folder, LoggedProgress(), execution.control, accepts_loss=True)

    def _check_settings(self, job: Job, others: Sequence[str]) -> None:
        """Refuse a run with other settings, or free its name if it has bought nothing."""
        if not others:
            return
        if self._folder(job).has_bought():
            raise HeldElsewhere(
                f"was begun with other settings than this server has: {'; '.join(others)}"
            )
        self._free_unpaid(job)

    def _settings(self, job: Job) -> RunConfig:
        """The settings of the run of a job."""
        chosen = {**job.settings, "problem": label_of(self._problems[job.problem])}
        if unknown := chosen.keys() - set(CHOSEN_BY_JOBS):
            names = ", ".join(sorted(unknown))
            raise ValueError(f"job: chooses {names}, expected {', '.join(CHOSEN_BY_JOBS)}")
        return checked_config({**self._given.config.model_dump(), **chosen})

    def _claim(self, job: Job, folder: RunFolder, config: RunConfig) -> None:
        """Take the name for the run of a job, unless it has it already."""
        if not job.has_begun:
            folder.check_free()
            if not self._queue.begin(job, self.name):
                raise HeldElsewhere("another server has taken the job")
        if folder.claimed_at is None:
            folder.claim(config, job.team)

    def _purse(self, team: str) -> PurseAddress:
        return PurseAddress(self._address, team)

    def _is_lent(self, team: str) -> bool:
        """Whether runs of a team have money that they may return."""
        with self._purse(team).open() as purse:
            return purse.budget - purse.remaining > purse.spent


def _other_settings(saved: RunConfig, config: RunConfig) -> list[str]:
    """The settings with which a run was begun and that this server has otherwise."""
    return [
        f"{name} was {getattr(saved, name)!r}, got {getattr(config, name)!r}"
        for name in RunConfig.model_fields
        if name not in EXECUTION and getattr(saved, name) != getattr(config, name)
    ]


@contextmanager
def _reporting() -> Iterator[None]:
    """Log why the block failed; what it did is tried again."""
    try:
        yield
    except (OSError, ValueError, sqlite3.Error) as error:
        LOG.warning("%s", error)
