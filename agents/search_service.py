"""Searches that a server runs for its clients, in folders or in a Postgres database.

Runs in a database survive the server: any server with the same database resumes those that were
interrupted, or whose process has died.
"""

import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import inf
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from costada.agents.followed_runs import BackgroundRun, EarlierRun, FollowedRun
from costada.agents.paid_runs import PaidRuns
from costada.agents.run_answers import RunList
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.layers import Layer
from costada.graph.routes import can_resume
from costada.models.menu import label_of
from costada.reports.json_log import is_on, log_message
from costada.runs.config import EXECUTION, RunConfig, checked_config
from costada.runs.folder import RunFolder
from costada.runs.plan import Plan, plan_run
from costada.runs.resume import extended_config, save_extension
from costada.runs.runner import is_finished, saved_state
from costada.runs.search_request import GivenProblem, SearchRequest, problems_by_name
from costada.runs.steering import add_program_text, has_started
from costada.store.outage import NO_PATIENCE, LostWrites, waiting_for_database
from costada.store.purse import Purse
from costada.values.setting import unknown_name

SCAN_SECONDS = 15.0
"""Time between two looks for runs that no process holds."""

START_LOOK_SECONDS = 0.1
"""Time between two looks whether a run has started."""


@contextmanager
def _reporting(run: str = "") -> Iterator[None]:
    """Print why the block failed; the server tries it again."""
    try:
        yield
    except (OSError, ValueError, sqlite3.Error) as error:
        if is_on():
            log_message(str(error), "error", run=run)
        else:
            print(f"costada: {run and f'{run}: '}{error}", file=sys.stderr)  # noqa: T201


def named_problems(given: Sequence[GivenProblem]) -> dict[str, str | Problem]:
    """Problems by the names that clients use; a folder by its whole path, as runs save it.

    Raises:
        ValueError: There is no such problem, or two have the same name.
    """
    whole = [
        each if isinstance(each, Problem) else checked_config({"problem": str(each)}).problem
        for each in given
    ]
    return dict(zip(problems_by_name(whole), whole, strict=True))


@dataclass(frozen=True, slots=True)
class SearchService:
    """Starts runs for clients and keeps track of them.

    Attributes:
        problems: The problems by name: benchmarks, folders and objects.
        given: The models and settings of every run; a client chooses problem, budget and seed, and
            may choose another target.
        purse: Pays for all runs together.
        parent: Parent of the run folders.
        store: Address of the Postgres database of the runs; `None`: each is in its folder.
        machine: Name of this machine, where the purse also pays for folders of others.
    """

    problems: Mapping[str, str | Problem]
    given: SearchRequest
    purse: Purse
    parent: Path
    store: str | None = None
    machine: str = ""
    runs: dict[str, BackgroundRun] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _ended: set[str] = field(default_factory=set)
    _ending: Event = field(default_factory=Event)

    @property
    def settings(self) -> RunConfig:
        """The settings of every run."""
        return self.given.config

    @property
    def paid(self) -> PaidRuns:
        """The runs that the purse pays for."""
        return PaidRuns(self.purse, self.parent, self.store, self.machine, self._object_of)

    def check(self) -> Layer | None:
        """Refuse settings that no run could start with; raises `ValueError` as `plan_run` does.

        Returns:
            What confines candidates of the first problem; `None` if its own evaluate does.
        """
        unjudged = self.settings.model_copy(update={"preflight": False})
        return plan_run(replace(self.given, config=unjudged), purse=self.purse).sandbox

    def start(
        self, name: str, budget: float, seed: int, target: float | None = None
    ) -> FollowedRun:
        """Start a run in the background, or return that of this problem and seed if it is running.

        Without a target it has that of the settings.

        Raises:
            ValueError: There is no such problem, it does not work, the budget, the seed or the
                target is invalid, the purse has too little left, or a run of this problem and seed
                can be continued.
            OSError: The run's folder cannot be made, or the database not reached.
        """
        if name not in self.problems:
            raise ValueError(unknown_name("problem", name, self.problems))
        if known := self._same_search(name, seed):
            return known
        wanted = {"problem": label_of(self.problems[name]), "budget": budget, "seed": seed}
        if target is not None:
            wanted["target"] = target
        config = checked_config({**self.settings.model_dump(), **wanted})
        plan = self._plan(config)
        with self._lock, ExitStack() as held:
            if self._ending.is_set():
                raise ValueError("discover: the server is ending; ask again when it is back")
            # Another request may have started it while this one was planned.
            if known := self._same_search(name, seed):
                return known
            folder = self.paid.hold_unused(name, held)
            account = self.purse.child(self.paid.account(folder), budget)
            # A server that died before it claimed this name may have drawn more for it.
            granted = min(budget, float(account.budget))
            try:
                folder.claim(config.model_copy(update={"budget": granted}), self.purse.root)
            except (ValueError, OSError):
                if self.store is None:  # else it pays for the next run of this name
                    account.close()
                raise
            return self._begin(plan, folder, account, held)

    def run(self, name: str) -> FollowedRun:
        """A run by its name; raises `ValueError` if no server of this purse has started it."""
        if known := self._of_this_process(name):
            return known
        earlier = self.paid.runs()
        if name not in earlier:
            names = ", ".join({**earlier, **self.runs}) or "none yet"
            raise ValueError(f"run: got {name!r}, expected one that was started here: {names}")
        return self._newest(name, earlier[name])

    def listed(self) -> RunList:
        """The runs that the purse pays for, and what it has left."""
        earlier = self.paid.runs()
        return RunList(
            runs=[self._newest(name, run).status() for name, run in earlier.items()],
            purse_budget=float(self.purse.budget),
            purse_left=max(0.0, float(self.purse.remaining)),
        )

    def stop(self, name: str) -> FollowedRun:
        """Let a run end once its calls in flight have ended; no server resumes it by itself.

        Raises:
            ValueError: There is no such run, or another process works on it.
        """
        run = self.run(name)
        if isinstance(run, BackgroundRun):
            self.paid.mark(run.folder, is_stopped=True)
            run.control.request_drain("a client stops the run")
        elif run.folder.is_running:
            raise ValueError(f"run: got {name!r}, which another process works on; stop it there")
        return run

    def submit(self, name: str, program: str | Mapping[str, str], seconds: float) -> FollowedRun:
        """Let the next step of a run evaluate a program of the client.

        Args:
            name: The run.
            program: One text, or the text of each file by its path.
            seconds: How long to wait for a run to start.

        Raises:
            ValueError: There is no such run, it has not started by then, or it takes no such
                program.
            OSError: The run cannot be written.
        """
        run, deadline = self.run(name), monotonic() + seconds
        while run.folder.is_running and not has_started(run.folder) and monotonic() < deadline:
            run.wait(START_LOOK_SECONDS)
        add_program_text(run.folder, program, run.problem.candidate_name)
        return run

    def extend(self, name: str, dollars: float, target: float | None = None) -> FollowedRun:
        """Continue a run that does not run, within its budget and further dollars.

        It keeps its target unless it gets another one.

        Raises:
            ValueError: There is no such run, it is running, its settings are not those of this
                server, nothing is left for it to do, or the purse has too little left.
            OSError: The database cannot be reached.
        """
        folder = self.run(name).folder
        saved = folder.load()
        if saved.problem not in map(label_of, self.problems.values()):
            raise ValueError(f"run: got {name!r}, whose problem this server does not offer")
        with self._lock, ExitStack() as held:
            if self._ending.is_set():
                raise ValueError("continue_run: the server is ending; ask again when it is back")
            known = self.runs.get(name)
            if (known and known.thread.is_alive()) or folder.is_running:
                raise ValueError(f"run: got {name!r}, which is running; expected one that is not")
            # Before its account is touched: another process that works on the run has the same one.
            held.enter_context(folder.hold())
            budget = self._affordable(folder, saved.budget, dollars)
            own = {"problem": saved.problem, "seed": saved.seed, "budget": budget}
            own["target"] = saved.target if target is None else target
            config = checked_config({**self.settings.model_dump(), **own})
            state = saved_state(folder)
            limits = (budget, config.max_iterations, config.target)
            if state and state.get("stop_reason") and not can_resume(state, *limits):
                raise ValueError(
                    f"run: got {name!r}, which has ended ({state['stop_reason']}) and has nothing"
                    f" left to do within ${budget:g}"
                )
            plan = self._plan(config)
            save_extension(folder, config)
            self.paid.mark(folder, is_stopped=False)
            account = self.purse.child(self.paid.account(folder), budget)
            self._ended.discard(name)
            return self._begin(plan, folder, account, held)

    def reaches_purse(self) -> bool:
        """Whether the server can read its purse now; prints why it cannot."""
        with _reporting(), waiting_for_database(NO_PATIENCE):
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
        """Interrupt all runs, so that they save, and wait for them for at most `seconds`.

        Evaluations of the process that are not of these runs continue.
        A run that takes longer keeps what its journal has by the end of the process.
        """
        self._ending.set()
        with self._lock:
            running = [run for run in self.runs.values() if run.thread.is_alive()]
        for run in running:
            run.interrupt("the server ends")
        deadline = monotonic() + seconds
        for run in running:
            run.thread.join(max(0.0, deadline - monotonic()))
            run.is_abandoned = run.thread.is_alive()

    def _begin(
        self,
        plan: Plan,
        folder: RunFolder,
        account: Purse,
        held: ExitStack,
        *,
        accepts_loss: bool = False,
    ) -> BackgroundRun:
        """Start the thread of a run whose folder this thread holds.

        It takes over the lock of a folder. A run in the database is held by each of its threads.
        """
        lease = held.pop_all() if self.store is None else ExitStack()
        run = BackgroundRun(plan, folder, account, self.purse, lease, accepts_loss=accepts_loss)
        self.runs[run.name] = run
        return run

    def _plan(self, config: RunConfig) -> Plan:
        """The plan of a run with these settings; raises `ValueError` as `plan_run` does."""
        given = self._object_of(config)
        return plan_run(replace(self.given, config=config, problem=given))

    def _object_of(self, config: RunConfig) -> Problem | None:
        """The problem of a run, if this service offers it as an object."""
        objects = [each for each in self.problems.values() if isinstance(each, Problem)]
        return next((each for each in objects if label_of(each) == config.problem), None)

    def _of_this_process(self, name: str) -> BackgroundRun | None:
        """A run that this process works on, or has worked on where no other process can."""
        known = self.runs.get(name)
        return known if known and (self.store is None or known.thread.is_alive()) else None

    def _newest(self, name: str, earlier: EarlierRun) -> FollowedRun:
        """A run as this process knows it, if nobody else can have worked on it since."""
        if known := self._of_this_process(name):
            return known
        last = self.runs.get(name)
        return replace(earlier, known=last.status()) if last else earlier

    def _same_search(self, name: str, seed: int) -> FollowedRun | None:
        """The run of a problem and seed that is running; `None` if there is none.

        Raises:
            ValueError: Such a run has ended, or was stopped or interrupted.
        """
        for own, run in self.paid.runs().items():
            try:
                config = run.folder.load()
            except (ValueError, OSError):  # `list_runs` says why; other searches go on
                continue
            if (config.problem, config.seed) != (label_of(self.problems[name]), seed):
                continue
            newest = self._newest(own, run)
            status = newest.status()
            if status["phase"] == "running":
                return newest
            if status["phase"] != "failed":
                raise ValueError(
                    f"discover: problem {name!r} with seed {seed} is run {own!r}, which is"
                    f" {status['phase']}; expected another seed, or continue_run with more dollars"
                )
        return None

    def _affordable(self, folder: RunFolder, budget: float, dollars: float) -> float:
        """The budget of a run with further dollars, as far as the purse has them.

        Raises:
            ValueError: The dollars are below 0, or the purse has nothing left, or less under a
                hard policy.
        """
        if not 0 <= dollars < inf:
            raise ValueError(f"dollars: got {dollars:g}, expected a finite number of at least 0")
        account = self.purse.found(self.paid.account(folder))
        held = account.held if account else Decimal(0)
        most = float(held + self.purse.remaining)
        wanted = budget + dollars
        if most < wanted and (most <= budget or self.settings.budget_policy == "hard"):
            raise ValueError(
                f"dollars: got {dollars:g} for a run with a budget of ${budget:g}, but the purse"
                f" has ${max(0.0, most - budget):g} left for it"
            )
        return min(wanted, most)

    def _follow(self) -> None:
        while not self._ending.is_set():
            with _reporting():
                self._accept_loss()
                for name, run in self.paid.runs().items():
                    if name not in self._ended and not self.paid.is_stopped(run.folder):
                        with _reporting(name):
                            self._resume(name, run.folder)
            self._ending.wait(SCAN_SECONDS)

    def _accept_loss(self) -> None:
        """Let a purse go on that lacks writes, once all runs of this process have ended.

        Each of them may lack some as well. They are resumed, which reports their calls again.
        """
        try:
            _ = self.purse.budget
        except LostWrites as error:
            log_message(str(error), "warning")
            for run in [*self.runs.values()]:
                run.interrupt("the database has lost writes")
                run.thread.join()
            self.purse.accept_loss()

    def _resume(self, name: str, folder: RunFolder) -> None:
        """Resume a run unless a process holds it or nothing is left to do."""
        known = self.runs.get(name)
        if (known and not known.is_hindered) or folder.is_running:
            return
        with ExitStack() as held:
            held.enter_context(folder.hold())
            if is_finished(folder):
                self._ended.add(name)
                self.purse.close_child(name)
                return
            now = {each: getattr(self.settings, each) for each in EXECUTION}
            config = extended_config(folder.load(), now)
            plan = self._plan(config)
            with self._lock:
                if not self._ending.is_set():
                    account = self.purse.child(name, config.budget)
                    has_lost = known is not None and known.has_lost_writes
                    self._begin(plan, folder, account, held, accepts_loss=has_lost)
