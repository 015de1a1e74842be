"""One run that goes on behind the server's back: what is known of it at any moment."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from threading import Thread
from typing import Literal

from langgraph.runtime import RunControl
from typing_extensions import TypedDict

from costada.models.errors import UnmeteredCall, describe
from costada.nodes.trace import TraceRow
from costada.runs.files import read_text
from costada.runs.folder import RunFolder
from costada.runs.plan import Plan
from costada.runs.progress import SilentProgress
from costada.runs.result import Discovery
from costada.runs.runner import carry_out
from costada.store.purse import Ledger

UNEXPECTED = "an error of the program itself; the server's standard error says which"

RunPhase = Literal["running", "finished", "interrupted", "failed"]


class RunStatus(TypedDict):
    """Where a run stands.

    `spent` and `budget` are dollars: what was spent up to now, a call under way at the most it can
    cost, and a budget that may be lower than was asked for. `best_score` is
    normalised, higher is better; `best_objective` is in the problem's own units. Both are `None`
    before the first iteration. `stop_reason` is `budget`, `iterations` or `failures` for a finished
    run, `error` says why one failed; otherwise they are empty. `folder` holds the run's files.
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


class BackgroundRun(SilentProgress):
    """Carries a plan out in a thread of its own, with the money of an account."""

    def __init__(self, plan: Plan, folder: RunFolder, account: Ledger) -> None:
        """Begin at once; the account is closed when the run has ended, whatever its end is."""
        self._plan = replace(plan, ledger=account, budget=float(account.budget))
        self._folder, self._account = folder, account
        self._row: TraceRow | None = None
        self._found: Discovery | None = None
        self._error = ""
        self._control = RunControl()
        self._thread = Thread(target=self._carry_out, daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """Return what clients call the run."""
        return self._folder.path.name

    def step(self, row: TraceRow) -> None:
        """Take note of a finished iteration."""
        self._row = row

    def request_end(self) -> None:
        """Ask the run to end after its current call, saved so that it can be gone on with."""
        self._control.request_drain("the server ends")

    def wait(self, seconds: float) -> None:
        """Return when the run has ended, or after so many seconds."""
        self._thread.join(seconds)

    def status(self) -> RunStatus:
        """Return where the run stands."""
        phase, row, found = self._phase(), self._row, self._found
        return RunStatus(
            run=self.name,
            problem=self._plan.problem.name,
            phase=phase,
            iterations=row["iteration"] if row else 0,
            spent=float(self._account.spent),
            budget=self._plan.budget,
            best_score=row["best_score"] if row else None,
            best_objective=row["best_objective"] if row else None,
            stop_reason=found.stop_reason if found else "",
            error=self._error or (UNEXPECTED if phase == "failed" else ""),
            folder=str(self._folder.path.resolve()),
        )

    def best_program(self) -> str:
        """Return the best program so far, the problem's own until there is a better one."""
        file = self._folder.best_program
        return read_text(file) if file.exists() else self._plan.problem.initial_program

    def _phase(self) -> RunPhase:
        if self._thread.is_alive():
            return "running"
        if self._found is None:
            return "failed"
        return "interrupted" if self._found.stop_reason == "interrupted" else "finished"

    def _carry_out(self) -> None:
        with closing(self._account):
            try:
                self._found = carry_out(self._plan, self._folder, self, self._control)
            except (ValueError, UnmeteredCall, OSError, sqlite3.Error) as error:
                self._error = str(error) or describe(error)
