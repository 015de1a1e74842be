"""Searches that a server runs for its clients, in folders or in a Postgres database.

Runs in a database survive the server: any server with the same database resumes those that were
interrupted, or whose process has died.
"""

import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Literal, Protocol, cast

from langgraph.runtime import RunControl
from typing_extensions import TypedDict

from costada.evaluators.registry import problem
from costada.evaluators.sandbox.cancellation import allow_evaluations, cancel_evaluations
from costada.models.errors import UnmeteredCall, describe
from costada.nodes.end_step import TraceRow
from costada.reports.progress import Progress, RunHeading
from costada.runs.config import EXECUTION, RunConfig, checked_config
from costada.runs.folder import RunFolder, unused_folder
from costada.runs.lease import is_held
from costada.runs.plan import Plan, plan_run
from costada.runs.resume import extended
from costada.runs.runner import carry_out, is_finished, saved_state
from costada.runs.shared_purse import account_name
from costada.runs.stored_run import StoredRun, named_runs, unused_run
from costada.runs.user_input import unknown_name
from costada.store.address import is_there
from costada.store.lease import LostLease
from costada.store.purse import Purse
from costada.store.rows import record
from costada.store.run_store import RunStore
from costada.values.candidate import Program
from costada.values.discovery import Discovery

UNEXPECTED = "an unexpected error; see the server's standard error"
SCAN_SECONDS = 15.0
"""Time between two looks for runs that no process holds."""

WAIT_SECONDS = 0.5
"""Time between two looks at a run that another process holds."""

MOST_NAMES = 5
"""Names that are tried for a new run while other servers take them."""

RunPhase = Literal["running", "finished", "interrupted", "failed"]


class RunStatus(TypedDict):
    """The state of a run.

    `spent` and `budget` are dollars; `spent` includes a running call at its upper bound, and
    `budget` may be lower than requested. `best_score` is normalised, higher is better;
    `best_objective` is in the problem's own units. Both are `None` before the first iteration.
    `stop_reason` is `budget`, `iterations` or `failures` for a finished run, `error` says why a run
    failed or could not continue; otherwise they are empty. `folder` holds the run's files.
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


class BestProgram(RunStatus):
    """The best program of a run so far, and the state of the run.

    `files` is the text of each file of a program of several files; empty if it is one text.
    """

    program: str
    files: dict[str, str]


class FollowedRun(Protocol):
    """A run that clients ask for."""

    def status(self) -> RunStatus:
        """The current state of the run."""

    def wait(self, seconds: float) -> None:
        """Return when the run has ended, or after so many seconds."""

    def best_program(self) -> Program:
        """The best program so far; at first the problem's initial program."""


class BackgroundRun(Progress):
    """A run in its own thread, paid from an account of the server's purse."""

    def __init__(self, plan: Plan, folder: RunFolder, account: Purse) -> None:
        """Start at once; the account is closed when the run has ended in any way.

        A stored run must be held by this process; its thread holds it as well when this returns.
        """
        self._plan = replace(plan, purse=account, budget=min(plan.budget, float(account.budget)))
        self._folder, self._account = folder, account
        self._row: TraceRow | None = None
        self._result: Discovery | None = None
        self._error = ""
        self.is_hindered = False
        """Whether a server, the machine or another process stopped it, so it can be resumed."""

        self.control = RunControl()
        self._has_begun = Event()
        self.thread = Thread(target=self._carry_out, daemon=True)
        self.thread.start()
        self._has_begun.wait()

    @property
    def name(self) -> str:
        """The name of the run for clients."""
        return name_of(self._folder)

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Remember what a resumed run has done before."""
        self._row = rows[-1] if rows else None

    def step(self, row: TraceRow) -> None:
        """Remember a finished iteration."""
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
            with _held_first(self._folder), closing(self._account):
                self._has_begun.set()
                self._result = carry_out(self._plan, self._folder, self, self.control)
        except (ValueError, UnmeteredCall, OSError, sqlite3.Error) as error:
            self._error = str(error) or describe(error)
            self.is_hindered = isinstance(error, OSError | LostLease)
        finally:
            self._has_begun.set()


@contextmanager
def _held_first(folder: RunFolder) -> Iterator[None]:
    """Hold a stored run before its account is used, which may be that of its present holder."""
    with folder.hold() if isinstance(folder, StoredRun) else nullcontext():
        yield


@dataclass(frozen=True, slots=True)
class StoredView:
    """A run of the database that has ended, or that another process holds.

    Attributes:
        run: The run.
        purse: Of the server; one of its accounts pays for the run.
        known: Its state when this server last worked on it, `None` if it never has.
    """

    run: StoredRun
    purse: Purse
    known: RunStatus | None = None

    def wait(self, seconds: float) -> None:
        """Return when no process holds the run, or after so many seconds."""
        end, never = monotonic() + seconds, Event()
        while self.run.is_running and (left := end - monotonic()) > 0:
            never.wait(min(left, WAIT_SECONDS))

    def status(self) -> RunStatus:
        """The current state of the run."""
        config, reason, error = self.run.load(), "", ""
        phase: RunPhase = "running"
        if not self.run.is_running:  # first: a run that ends after this has saved its state
            state = saved_state(self.run)
            reason = state.get("stop_reason", "") if state else ""
            phase = "finished" if reason else "interrupted"
            if self.known and not reason:
                phase, error = self.known["phase"], self.known["error"]
        with RunStore.at(self.run.address, is_read_only=True) as store:
            run_id = next(reversed(store.run_ids()), "")
            last = store.last_step(run_id)
            row = cast(TraceRow, record(store.step_line(run_id, last))) if last else None
        accounts = self.purse.accounts()
        own = name_of(self.run)
        return status_of(
            self.run,
            problem(config.problem).name,
            phase,
            row,
            spent=float(sum(each.spent for each in accounts[1:] if each.name == own)),
            budget=config.budget,
            stop_reason=reason,
            error=error,
        )

    def best_program(self) -> Program:
        """The best program so far; at first the problem's initial program."""
        return best_of(self.run, problem(self.run.load().problem).start)


@contextmanager
def _reporting(run: str = "") -> Iterator[None]:
    """Print why the block failed; the server tries it again."""
    try:
        yield
    except (OSError, ValueError, sqlite3.Error) as error:
        print(f"costada: {run and f'{run}: '}{error}", file=sys.stderr)  # noqa: T201


def name_of(folder: RunFolder) -> str:
    """The name of a run for clients: in the database, or of its folder."""
    return folder.address.run if isinstance(folder, StoredRun) else folder.path.name


def status_of(
    folder: RunFolder,
    problem_name: str,
    phase: RunPhase,
    row: TraceRow | None,
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
    )


def best_of(folder: RunFolder, start: Program) -> Program:
    """The best program of a run so far; `start` until there is a better one."""
    if not is_there(folder.database):
        return start
    with RunStore.at(folder.database, is_read_only=True) as store:
        run_id = next(reversed(store.run_ids()), "")
        best = store.last_improvement(run_id)
        return start if best is None else store.candidates.get(run_id, best).program


def named_problems(given: Sequence[str]) -> dict[str, str]:
    """Benchmarks and problem folders by the names that clients use.

    Raises:
        ValueError: There is no such problem, or two have the same name.
    """
    found: dict[str, str] = {}
    for each in given:
        name = problem(each).name
        if name in found:
            raise ValueError(f"problems: got two named {name!r}, expected different names")
        found[name] = each
    return found


@dataclass(frozen=True, slots=True)
class SearchService:
    """Starts runs for clients and keeps track of them.

    Attributes:
        problems: The problems by name; benchmarks and folders.
        settings: The settings of every run; a client chooses problem, budget and seed.
        purse: Pays for all runs together.
        parent: Parent of the run folders.
        store: Address of the Postgres database of the runs; `None`: each is in its folder.
        machine: Name of this machine, where the purse also pays for folders of others.
    """

    problems: Mapping[str, str]
    settings: RunConfig
    purse: Purse
    parent: Path
    store: str | None = None
    machine: str = ""
    runs: dict[str, BackgroundRun] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _ended: set[str] = field(default_factory=set)
    _ending: Event = field(default_factory=Event)

    def check(self) -> None:
        """Refuse settings that no run could start with; raises `ValueError` as `plan_run` does."""
        plan_run(self.settings.model_copy(update={"preflight": False}))

    def reclaim(self) -> None:
        """Return the unspent money of an earlier server's runs here that no process works on."""
        here = f"{self.machine}:" if self.machine else ""
        for account in self.purse.accounts()[1:]:
            if account.is_closed or not account.name.startswith(here):
                continue
            if not is_held(Path(account.name.removeprefix(here))):
                self.purse.close_child(account.name)

    def start(self, name: str, budget: float, seed: int) -> BackgroundRun:
        """Start a run in the background.

        Raises:
            ValueError: There is no such problem, it does not work, the budget or the seed is
                invalid, or the purse has too little left.
            OSError: The run's folder cannot be made, or the database not reached.
        """
        if name not in self.problems:
            raise ValueError(unknown_name("problem", name, self.problems))
        wanted = {"problem": self.problems[name], "budget": budget, "seed": seed}
        config = checked_config({**self.settings.model_dump(), **wanted})
        plan = plan_run(config)
        with self._lock, self._unused(name) as folder:
            if self._ending.is_set():
                raise ValueError("discover: the server is ending; ask again when it is back")
            account = self.purse.child(self._account_name(folder), budget)
            # A server that died before it claimed this name may have drawn more for it.
            granted = min(budget, float(account.budget))
            try:
                folder.claim(config.model_copy(update={"budget": granted}))
            except OSError:
                if self.store is None:  # else it pays for the next run of this name
                    account.close()
                raise
            run = BackgroundRun(plan, folder, account)
            self.runs[run.name] = run
        return run

    def run(self, name: str) -> FollowedRun:
        """A run by its name; raises `ValueError` if no server of this purse has started it."""
        known = self.runs.get(name)
        if known and (self.store is None or known.thread.is_alive()):
            return known
        stored = self._stored()
        if name not in stored:
            names = ", ".join({**stored, **self.runs}) or "none yet"
            raise ValueError(f"run: got {name!r}, expected one that was started here: {names}")
        return replace(stored[name], known=known.status()) if known else stored[name]

    def reaches_purse(self) -> bool:
        """Whether the server can read its purse; prints why it cannot."""
        with _reporting():
            _ = self.purse.budget
            return True
        return False

    def follow(self) -> None:
        """Resume interrupted runs of the database, now and whenever their process has died.

        A run that fails for a reason of its own is not tried again by this process.
        """
        if self.store is not None:
            Thread(target=self._follow, name="costada-follow", daemon=True).start()

    def end(self, seconds: float) -> None:
        """Interrupt all runs, so that they save, and wait for them for at most `seconds`."""
        self._ending.set()
        with self._lock:
            running = [run for run in self.runs.values() if run.thread.is_alive()]
        for run in running:
            run.control.request_drain("the server ends")
        cancel_evaluations()
        deadline = monotonic() + seconds
        for run in running:
            run.thread.join(max(0.0, deadline - monotonic()))
        allow_evaluations()

    @contextmanager
    def _unused(self, problem_name: str) -> Iterator[RunFolder]:
        """A folder, or a name in the database, which is held: other servers take names as well.

        Raises:
            ValueError: Other servers hold or take the names that are tried.
            OSError: The database cannot be reached, or the folder not made.
        """
        if self.store is None:
            yield unused_folder(problem_name, self.parent)
            return
        fault = f"{problem_name}: other servers have taken the names that were tried; ask again"
        for _ in range(MOST_NAMES):
            run = unused_run(problem_name, self.store, self.parent)
            with ExitStack() as held:
                try:
                    held.enter_context(run.hold())
                except ValueError as error:
                    fault = str(error)
                    continue
                if run.claimed_at is None:
                    yield run
                    return
        raise ValueError(fault)

    def _placed(self, run: StoredRun) -> StoredRun:
        """A stored run whose files are below the server's folder."""
        return replace(run, path=self.parent / run.address.run)

    def _account_name(self, folder: RunFolder) -> str:
        name = account_name(folder)
        return f"{self.machine}:{name}" if self.machine else name

    def _stored(self) -> dict[str, StoredView]:
        """The runs of the database that this purse pays for, the oldest first."""
        if self.store is None:
            return {}
        root, *accounts = self.purse.accounts()
        own = {each.name for each in accounts if each.parent == root.id}
        found = (self._placed(run) for run in named_runs(self.store) if run.address.run in own)
        return {run.address.run: StoredView(run, self.purse) for run in found}

    def _follow(self) -> None:
        while not self._ending.is_set():
            with _reporting():
                for name, view in self._stored().items():
                    if name not in self._ended:
                        with _reporting(name):
                            self._resume(name, view.run)
            self._ending.wait(SCAN_SECONDS)

    def _resume(self, name: str, folder: StoredRun) -> None:
        """Resume a run unless a process holds it or nothing is left to do."""
        known = self.runs.get(name)
        if (known and not known.is_hindered) or folder.is_running:
            return
        with folder.hold():
            if is_finished(folder):
                self._ended.add(name)
                self.purse.close_child(name)
                return
            now = {each: getattr(self.settings, each) for each in EXECUTION}
            config = extended(folder.load(), now)
            plan = plan_run(config)
            with self._lock:
                if not self._ending.is_set():
                    account = self.purse.child(name, config.budget)
                    self.runs[name] = BackgroundRun(plan, folder, account)
