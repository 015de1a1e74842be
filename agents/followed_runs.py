"""Runs that a service starts or follows for its clients, and what these get of them."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from threading import Event, Thread
from time import monotonic
from typing import Protocol, cast

from langgraph.runtime import RunControl

from costada.agents.run_answers import BestProgram, RunPhase, RunResult, RunStatus, StopReason
from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem as problem_named
from costada.evaluators.sandbox.concurrency import CancellationToken, current_token
from costada.models.errors import UnmeteredCall, describe
from costada.nodes.state import SearchState
from costada.nodes.trace_row import TraceRow
from costada.reports.json_log import current_run, log_message
from costada.reports.logged_progress import LoggedProgress
from costada.reports.progress import RunHeading
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.plan import Plan
from costada.runs.runner import execute_run, saved_state
from costada.runs.stored_run import StoredRun
from costada.store.accounts import Account
from costada.store.address import is_there
from costada.store.lease import HeldElsewhere, LostLease
from costada.store.outage import LostWrites
from costada.store.purse import Purse
from costada.store.rows import record
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate
from costada.values.search_result import Discovery
from costada.values.setting import OBJECT_MARK

UNEXPECTED = "an unexpected error; see the server's standard error"
HINDRANCES = (OSError, HeldElsewhere, LostLease, LostWrites)
"""Errors of a server, the machine or another process, after which a run can be resumed."""

WAIT_SECONDS = 0.5
"""Time between two looks at a run that another process holds."""

LOOK_SECONDS = 1.0
"""Time between two looks for progress to report while a client waits."""


class FollowedRun(Protocol):
    """A run that clients ask for."""

    @property
    def folder(self) -> RunFolder:
        """Where the run is kept."""

    def status(self) -> RunStatus:
        """The current state of the run."""

    def wait(self, seconds: float) -> None:
        """Return when the run has ended, or after so many seconds."""

    @property
    def problem(self) -> Problem:
        """The problem of the run."""


class BackgroundRun(LoggedProgress):
    """A run in its own thread, paid from an account of the server's purse."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        account: Purse,
        purse: Purse,
        lease: ExitStack,
        *,
        accepts_loss: bool,
    ) -> None:
        """Start at once; the account of the purse is closed when the run has ended in any way.

        The lease has the lock of a folder. A stored run must be held by this process; its thread
        holds it as well when this returns.
        """
        self._lease = lease
        self._plan = replace(plan, purse=account, budget=min(plan.budget, float(account.budget)))
        self._folder, self._account, self._purse = folder, account, purse
        self._row: TraceRow | None = None
        self._result: Discovery | None = None
        self._error = ""
        self.is_hindered = False
        """Whether a server, the machine or another process stopped it, so it can be resumed."""

        self.has_lost_writes = accepts_loss
        """Whether its database may lack writes of this process, which it then counts as spent."""

        self.is_abandoned = False
        """Whether the process ends before the run: its interpreter starts no more threads."""

        self.control = RunControl()
        self._token = CancellationToken()
        self._has_begun = Event()
        self.thread = Thread(target=self._carry_out, daemon=True)
        self.thread.start()
        # The caller holds a stored run until here, so no other server can take it in between.
        self._has_begun.wait()

    @property
    def folder(self) -> RunFolder:
        """Where the run is kept."""
        return self._folder

    @property
    def name(self) -> str:
        """The name of the run for clients."""
        return self._folder.name

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self._plan.settings.seed

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Note the last iteration of a resumed run."""
        super().begin(heading, rows)
        self._row = rows[-1] if rows else None

    def step(self, row: TraceRow) -> None:
        """Note a finished iteration."""
        super().step(row)
        self._row = row

    def interrupt(self, reason: str) -> None:
        """Let the run end as `control` does, and cancel its evaluations, which it repeats later."""
        self.control.request_drain(reason)
        self._token.cancel()

    def wait(self, seconds: float) -> None:
        """Return when the run has ended, or after so many seconds."""
        self.thread.join(seconds)

    def status(self) -> RunStatus:
        """The current state of the run."""
        is_alive = self.thread.is_alive()  # first: the result is set by then
        reason = self._result.stop_reason if self._result else ""
        phase: RunPhase = "interrupted" if self.is_hindered else "failed"
        if is_alive:
            phase = "running"
        elif reason:
            phase = "interrupted" if reason == "interrupted" else "finished"
        return status_of(
            self._folder,
            self._plan.problem.name,
            phase,
            self._row,
            self._purse,
            spent=spent_of(self._account, phase, self._row, self._plan.settings.purse_slice),
            budget=self._plan.budget,
            stop_reason="" if reason == "interrupted" else reason,
            error=self._error or (UNEXPECTED if phase == "failed" else ""),
        )

    @property
    def problem(self) -> Problem:
        """The problem of the run."""
        return self._plan.problem

    def _carry_out(self) -> None:
        current_token.set(self._token)  # for this thread, and those that the run begins
        current_run.set(self.name)
        try:
            # Held until the account is closed: another process may have both.
            with self._lease as lease:
                if isinstance(self._folder, StoredRun):
                    lease.enter_context(self._folder.hold())
                lease.enter_context(closing(self._account))
                self._has_begun.set()
                self._result = execute_run(
                    self._plan,
                    self._folder,
                    self,
                    self.control,
                    accepts_loss=self.has_lost_writes,
                    lease=lease,
                )
        except (ValueError, UnmeteredCall, OSError, sqlite3.Error) as error:
            self._error = str(error) or describe(error)
            log_message(self._error, "error")
            self.has_lost_writes |= isinstance(error, LostLease | LostWrites)
            self.is_hindered = isinstance(error, HINDRANCES)
        except RuntimeError:
            if not self.is_abandoned:
                raise
            self.is_hindered = True
        finally:
            self._has_begun.set()


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A run that has ended, or that another process holds.

    Attributes:
        folder: Where the run is kept.
        purse: Of the server; one of its accounts pays for the run.
        account: The name of that account.
        object_of: The problem of settings, if the server got that as an object.
        known: Its state when this server last worked on it, `None` if it never has.
    """

    folder: RunFolder
    purse: Purse
    account: str
    object_of: Callable[[RunConfig], Problem | None]
    known: RunStatus | None = None

    def wait(self, seconds: float) -> None:
        """Return when no process holds the run, or after so many seconds."""
        end, never = monotonic() + seconds, Event()
        while self.folder.is_running and (left := end - monotonic()) > 0:
            never.wait(min(left, WAIT_SECONDS))

    def status(self) -> RunStatus:
        """The current state of the run; with damaged files it says why they cannot be read."""
        account = self.purse.found(self.account)
        spent = float(account.spent) if account else 0.0
        try:
            return self._status(account)
        except (ValueError, OSError) as error:
            return status_of(
                self.folder,
                "",
                "unreadable",
                None,
                self.purse,
                spent=spent,
                budget=float(account.budget) if account else 0.0,
                error=str(error),
            )

    def _status(self, account: Account | None) -> RunStatus:
        reason: StopReason = ""
        config, error = self.folder.load(), ""
        phase: RunPhase = "running"
        if not self.folder.is_running:  # first: a run that ends after this has saved its state
            state = saved_state(self.folder)
            reason = cast(StopReason, state.get("stop_reason", "") if state else "")
            phase = "finished" if reason else "interrupted"
            if self.known and not reason:
                phase, error = self.known["phase"], self.known["error"]
        row = last_row(self.folder)
        return status_of(
            self.folder,
            _problem_name(config.problem),
            phase,
            row,
            self.purse,
            spent=spent_of(account, phase, row, config.purse_slice),
            budget=config.budget,
            stop_reason=reason,
            error=error,
        )

    @property
    def problem(self) -> Problem:
        """The problem of the run."""
        config = self.folder.load()
        return self.object_of(config) or problem_named(config.problem)


def last_row(folder: RunFolder) -> TraceRow | None:
    """The trace row of a run's last iteration, `None` before the first."""
    if not is_there(folder.database):
        return None
    with RunStore.at(folder.database, is_read_only=True) as store:
        run_id = store.last_run()
        last = store.last_step(run_id)
        return cast(TraceRow, record(store.step_line(run_id, last))) if last else None


def spent_of(
    account: Account | Purse | None, phase: RunPhase, row: TraceRow | None, has_slices: object
) -> float:
    """Dollars that a run has spent; while it reserves slices of its account, up to its last row."""
    if phase == "running" and has_slices:
        return row["spent"] if row else 0.0
    return float(account.spent) if account else 0.0


def _problem_name(label: str) -> str:
    """The name of the problem that settings refer to, also of an object that is not there."""
    if label.startswith(OBJECT_MARK):
        return label.removeprefix(OBJECT_MARK)
    return problem_named(label).name


def status_of(
    folder: RunFolder,
    problem_name: str,
    phase: RunPhase,
    row: TraceRow | None,
    purse: Purse,
    *,
    spent: float,
    budget: float,
    stop_reason: StopReason = "",
    error: str = "",
) -> RunStatus:
    """The state of a run after the iteration of a row of its trace; `None` before the first."""
    return RunStatus(
        run=folder.name,
        problem=problem_name,
        phase=phase,
        iterations=row["iteration"] if row else 0,
        spent=spent,
        budget=budget,
        best_score=row["best_score"] if row else None,
        best_objective=row["best_objective"] if row else None,
        stop_reason=stop_reason,
        error=error,
        folder=str(folder.path.resolve()),
        purse_budget=float(purse.budget),
        purse_left=max(0.0, float(purse.remaining)),
    )


def states_of(run: FollowedRun, seconds: float) -> Iterator[RunStatus]:
    """The state of a run at each look, the last one when it has ended or the time is over."""
    end = monotonic() + seconds
    while True:
        state = run.status()
        yield state
        left = end - monotonic()
        if state["phase"] != "running" or left <= 0:
            return
        run.wait(min(left, LOOK_SECONDS))


def best_program_of(run: FollowedRun) -> BestProgram:
    """The best program of a run so far, and the state of the run."""
    best = _best_candidate(run.folder)
    program = best.program if best else run.problem.start
    return BestProgram(**run.status(), program=program.text, files=program.by_path)


def result_of(run: FollowedRun) -> RunResult:
    """What a run has found; raises `ValueError` while it is running."""
    if run.status()["phase"] == "running":
        raise ValueError(
            f"run: got {run.folder.name!r}, which is running; expected one that is not, or"
            " best_program for what it has so far"
        )
    best, state = _best_candidate(run.folder), saved_state(run.folder) or SearchState()
    has_failed = state.get("stop_reason") == "failures"
    return RunResult(
        **best_program_of(run),
        metrics=dict(best.metrics) if best else {},
        validation_score=best.validation_score if best else None,
        pareto_front=state.get("pareto_front", []),
        in_doubt=state.get("in_doubt", 0.0),
        last_failure=state.get("last_failure", "") if has_failed else "",
    )


def _best_candidate(folder: RunFolder) -> Candidate | None:
    """The best candidate of a run so far; `None` until one is better than the start."""
    if not is_there(folder.database):
        return None
    with RunStore.at(folder.database, is_read_only=True) as store:
        run_id = store.last_run()
        best = store.last_improvement(run_id)
        return None if best is None else store.candidates.get(run_id, best)
