"""Searches that a server runs for its clients, in folders or in a Postgres database.

Runs in a database survive the server: any server with the same database resumes those that were
interrupted, or whose process has died.
"""

import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from costada.agents.followed_runs import BackgroundRun, FollowedRun, StoredView
from costada.evaluators.sandbox.concurrency import allow_evaluations, cancel_evaluations
from costada.evaluators.sandbox.layers import Layer
from costada.runs.config import EXECUTION, RunConfig, checked_config
from costada.runs.folder import RunFolder, unused_folder
from costada.runs.folder_lease import is_held
from costada.runs.plan import plan_run, problems_by_name
from costada.runs.resume import extended_config
from costada.runs.runner import is_finished
from costada.runs.shared_purse import account_name
from costada.runs.stored_run import StoredRun, named_runs, unused_run
from costada.store.purse import Purse
from costada.values.setting import unknown_name

SCAN_SECONDS = 15.0
"""Time between two looks for runs that no process holds."""

MAX_NAMES = 5
"""Names that are tried for a new run while other servers take them."""


@contextmanager
def _reporting(run: str = "") -> Iterator[None]:
    """Print why the block failed; the server tries it again."""
    try:
        yield
    except (OSError, ValueError, sqlite3.Error) as error:
        print(f"costada: {run and f'{run}: '}{error}", file=sys.stderr)  # noqa: T201


def named_problems(given: Sequence[str]) -> dict[str, str]:
    """Benchmarks and problem folders by the names that clients use.

    Raises:
        ValueError: There is no such problem, or two have the same name.
    """
    return dict(zip(problems_by_name(given), given, strict=True))


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

    def check(self) -> Layer | None:
        """Refuse settings that no run could start with; raises `ValueError` as `plan_run` does.

        Returns:
            What confines candidates of the first problem; `None` if its own evaluate does.
        """
        return plan_run(self.settings.model_copy(update={"preflight": False})).sandbox

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
        with self._lock, self._hold_unused_run(name) as folder:
            if self._ending.is_set():
                raise ValueError("discover: the server is ending; ask again when it is back")
            owner = account_name(folder)
            account = self.purse.child(f"{self.machine}:{owner}" if self.machine else owner, budget)
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
        stored = self._stored_views()
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
        """Interrupt all runs, so that they save, and wait for them for at most `seconds`.

        A run that takes longer keeps what its journal has by the end of the process.
        """
        self._ending.set()
        with self._lock:
            running = [run for run in self.runs.values() if run.thread.is_alive()]
        for run in running:
            run.control.request_drain("the server ends")
        cancel_evaluations()
        deadline = monotonic() + seconds
        for run in running:
            run.thread.join(max(0.0, deadline - monotonic()))
            run.is_abandoned = run.thread.is_alive()
        allow_evaluations()

    @contextmanager
    def _hold_unused_run(self, problem_name: str) -> Iterator[RunFolder]:
        """A folder, or a name in the database, which is held: other servers take names as well.

        Raises:
            ValueError: Other servers hold or take the names that are tried.
            OSError: The database cannot be reached, or the folder not made.
        """
        if self.store is None:
            yield unused_folder(problem_name, self.parent)
            return
        fault = f"{problem_name}: other servers have taken the names that were tried; ask again"
        for _ in range(MAX_NAMES):
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

    def _stored_views(self) -> dict[str, StoredView]:
        """The runs of the database that this purse pays for, the oldest first."""
        if self.store is None:
            return {}
        root, *accounts = self.purse.accounts()
        own = {each.name for each in accounts if each.parent == root.id}
        found = {run.address.run: run for run in named_runs(self.store)}
        return {
            name: StoredView(replace(run, path=self.parent / name), self.purse)
            for name, run in found.items()
            if name in own
        }

    def _follow(self) -> None:
        while not self._ending.is_set():
            with _reporting():
                for name, view in self._stored_views().items():
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
            config = extended_config(folder.load(), now)
            plan = plan_run(config)
            with self._lock:
                if not self._ending.is_set():
                    account = self.purse.child(name, config.budget)
                    self.runs[name] = BackgroundRun(plan, folder, account)
