"""Runs that a server starts or follows for its clients, and what these get of them."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from threading import Event, Thread
from time import monotonic
from typing import Literal, Protocol, cast

from langgraph.runtime import RunControl
from typing_extensions import TypedDict

from costada.evaluators.registry import problem
from costada.models.errors import UnmeteredCall, describe
from costada.nodes.trace_row import TraceRow
from costada.reports.progress import Progress, RunHeading
from costada.runs.folder import RunFolder
from costada.runs.plan import Plan
from costada.runs.runner import execute_run, saved_state
from costada.runs.stored_run import StoredRun
from costada.store.address import is_there
from costada.store.lease import LostLease
from costada.store.purse import Purse
from costada.store.rows import record
from costada.store.run_store import RunStore
from costada.values.candidate import Program
from costada.values.search_result import Discovery

UNEXPECTED = "an unexpected error; see the server's standard error"
WAIT_SECONDS = 0.5
"""Time between two looks at a run that another process holds."""

RunPhase = Literal["running", "finished", "interrupted", "failed"]


class RunStatus(TypedDict):
    """The state of a run.

    `spent` and `budget` are dollars; `spent` includes a running call at its upper bound, and
    `budget` may be lower than requested. `best_score` is normalised, higher is better;
    `best_objective` is in the problem's own units. Both are `None` before the first iteration.
    `stop_reason` is `target`, `budget`, `iterations`, `flat` or `failures` for a finished run,
    `error` says why a run failed or could not continue; otherwise they are empty. `folder` has the
    run's files. `purse_budget` is what all runs of the server share, in dollars, and `purse_left`
    what of it no run holds or has spent.
    """

    run: str
    problem: str
    phase: RunPhase
    iterations: int
    spent: float
    budget: float
    best_score: float | None
    best_objective: float | None
    stop_reason: str
    error: str
    folder: str
    purse_budget: float
    purse_left: float


class RunList(TypedDict):
    """The runs that a purse pays for, the oldest first."""

    runs: list[RunStatus]
    purse_budget: float
    purse_left: float


class BestProgram(RunStatus):
    """The best program of a run so far, and the state of the run.

    `files` is the text of each file of a program of several files; empty if it is one text.
    """

    program: str
    files: dict[str, str]


class FollowedRun(Protocol):
    """A run that clients ask for."""

    @property
    def folder(self) -> RunFolder:
        """Where the run is kept."""

    def status(self) -> RunStatus:
        """The current state of the run."""

    def wait(self, seconds: float) -> None:
        """Return when the run has ended, or after so many seconds."""

    def best_program(self) -> Program:
        """The best program so far; at first the problem's initial program."""


class BackgroundRun(Progress):
    """A run in its own thread, paid from an account of the server's purse."""

    def __init__(self, plan: Plan, folder: RunFolder, account: Purse, purse: Purse) -> None:
        """Start at once; the account of the purse is closed when the run has ended in any way.

        A stored run must be held by this process; its thread holds it as well when this returns.
        """
        self._plan = replace(plan, purse=account, budget=min(plan.budget, float(account.budget)))
        self._folder, self._account, self._purse = folder, account, purse
        self._row: TraceRow | None = None
        self._result: Discovery | None = None
        self._error = ""
        self.is_hindered = False
        """Whether a server, the machine or another process stopped it, so it can be resumed."""

        self.is_abandoned = False
        """Whether the process ends before the run: its interpreter starts no more threads."""

        self.control = RunControl()
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
        return name_of(self._folder)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self._plan.settings.seed

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Note the last iteration of a resumed run."""
        self._row = rows[-1] if rows else None

    def step(self, row: TraceRow) -> None:
        """Note a finished iteration."""
        self._row = row

    def wait(self, seconds: float) -> None:
        """Return when the run has ended, or after so many seconds."""
        self.thread.join(seconds)

    def status(self) -> RunStatus:
        """The current state of the run."""
        is_alive = self.thread.is_alive()  # first: the result is set by then
        result = self._result
        phase: RunPhase = "interrupted" if self.is_hindered else "failed"
        if is_alive:
            phase = "running"
        elif result:
            phase = "interrupted" if result.stop_reason == "interrupted" else "finished"
        return status_of(
            self._folder,
            self._plan.problem.name,
            phase,
            self._row,
            self._purse,
            spent=float(self._account.spent),
            budget=self._plan.budget,
            stop_reason=result.stop_reason if result else "",
            error=self._error or (UNEXPECTED if phase == "failed" else ""),
        )

    def best_program(self) -> Program:
        """The best program so far; at first the problem's initial program."""
        return best_of(self._folder, self._plan.problem.start)

    def _carry_out(self) -> None:
        try:
            # A stored run is held before its account is used: another process may have both.
            is_stored = isinstance(self._folder, StoredRun)
            with self._folder.hold() if is_stored else nullcontext(), closing(self._account):
                self._has_begun.set()
                self._result = execute_run(self._plan, self._folder, self, self.control)
        except (ValueError, UnmeteredCall, OSError, sqlite3.Error) as error:
            self._error = str(error) or describe(error)
            self.is_hindered = isinstance(error, OSError | LostLease)
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
        known: Its state when this server last worked on it, `None` if it never has.
    """

    folder: RunFolder
    purse: Purse
    account: str
    known: RunStatus | None = None

    def wait(self, seconds: float) -> None:
        """Return when no process holds the run, or after so many seconds."""
        end, never = monotonic() + seconds, Event()
        while self.folder.is_running and (left := end - monotonic()) > 0:
            never.wait(min(left, WAIT_SECONDS))

    def status(self) -> RunStatus:
        """The current state of the run."""
        config, reason, error = self.folder.load(), "", ""
        phase: RunPhase = "running"
        if not self.folder.is_running:  # first: a run that ends after this has saved its state
            state = saved_state(self.folder)
            reason = state.get("stop_reason", "") if state else ""
            phase = "finished" if reason else "interrupted"
            if self.known and not reason:
                phase, error = self.known["phase"], self.known["error"]
        row = None
        if is_there(self.folder.database):
            with RunStore.at(self.folder.database, is_read_only=True) as store:
                run_id = store.last_run()
                if last := store.last_step(run_id):
                    row = cast(TraceRow, record(store.step_line(run_id, last)))
        account = self.purse.found(self.account)
        return status_of(
            self.folder,
            problem(config.problem).name,
            phase,
            row,
            self.purse,
            spent=float(account.spent) if account else 0.0,
            budget=config.budget,
            stop_reason=reason,
            error=error,
        )

    def best_program(self) -> Program:
        """The best program so far; at first the problem's initial program."""
        return best_of(self.folder, problem(self.folder.load().problem).start)


def name_of(folder: RunFolder) -> str:
    """The name of a run for clients: in the database, or of its folder."""
    return folder.address.run if isinstance(folder, StoredRun) else folder.path.name


def status_of(
    folder: RunFolder,
    problem_name: str,
    phase: RunPhase,
    row: TraceRow | None,
    purse: Purse,
    *,
    spent: float,
    budget: float,
    stop_reason: str = "",
    error: str = "",
) -> RunStatus:
    """The state of a run after the iteration of a row of its trace; `None` before the first."""
    return RunStatus(
        run=name_of(folder),
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


def best_of(folder: RunFolder, start: Program) -> Program:
    """The best program of a run so far; `start` until there is a better one."""
    if not is_there(folder.database):
        return start
    with RunStore.at(folder.database, is_read_only=True) as store:
        run_id = store.last_run()
        best = store.last_improvement(run_id)
        return start if best is None else store.candidates.get(run_id, best).program
