"""The runs that a server's purse pays for: their accounts, their names, and who has stopped them.

Several processes may have one purse and one parent folder, or one database. A process holds a run
before it draws, changes or closes the run's account.
"""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from costada.agents.followed_runs import EarlierRun
from costada.evaluators.problem import Problem
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder, default_names
from costada.runs.folder_lease import is_held
from costada.runs.shared_purse import account_name, settle_slices
from costada.runs.stored_run import named_runs, unused_run
from costada.store.files import OWNER_ONLY_FOLDER, make_folder
from costada.store.purse import Purse

STOP = "stop"
"""Begins the key of a purse's entry that says whether a client has stopped a run."""

MAX_NAMES = 5
"""Names in the database that are tried for a new run while other servers take them."""


@dataclass(frozen=True, slots=True)
class PaidRuns:
    """The runs of a purse, in the folders of a parent or in a database.

    Attributes:
        purse: Pays for all of them.
        parent: Parent of the run folders.
        store: Address of their Postgres database; `None`: each is in its folder.
        machine: Name of this machine, where the purse also pays for folders of others.
        object_of: The problem of settings, if the server got that as an object.
    """

    purse: Purse
    parent: Path
    store: str | None
    machine: str
    object_of: Callable[[RunConfig], Problem | None]

    def runs(self) -> dict[str, EarlierRun]:
        """The runs by name, whichever server has started them."""
        root, *accounts = self.purse.accounts()
        own = [each.name for each in accounts if each.parent == root.id]
        if self.store is None:
            found = [RunFolder(path) for path in map(self._own_folder, own) if path]
            kept = [folder for folder in found if folder.settings.is_file()]
        else:
            stored = [run for run in named_runs(self.store) if run.address.run in own]
            kept = [replace(run, path=self.parent / run.address.run) for run in stored]
        return {
            each.name: EarlierRun(each, self.purse, self.account(each), self.object_of)
            for each in kept
        }

    def account(self, folder: RunFolder) -> str:
        """What the purse calls the account of a run."""
        name = account_name(folder)
        return f"{self.machine}:{name}" if self.machine else name

    def reclaim(self) -> None:
        """Return the unspent money of an earlier server's runs here that no process works on.

        Their accounts have the path of a folder of this parent for a name. All others stay as they
        are, such as that of an agent, or of a run that is kept elsewhere.
        """
        for account in self.purse.accounts()[1:]:
            folder = self._own_folder(account.name)
            if not folder or account.is_closed or is_held(folder):
                continue
            # Another process may begin to work on the run, or the folder be that of another user.
            # No run starts where a folder is missing whose account exists.
            lease = RunFolder(folder).hold() if folder.is_dir() else nullcontext()
            with suppress(ValueError, PermissionError), lease:
                settle_slices(self.purse, account.name, RunFolder(folder))
                self.purse.close_child(account.name)

    def hold_unused(self, problem_name: str, held: ExitStack) -> RunFolder:
        """Hold an unused folder, or an unused name in the database, until the stack is closed.

        A new folder that has no settings by then is removed.

        Raises:
            ValueError: Other servers hold or take the names that are tried.
            OSError: The database cannot be reached, or the folder not made.
        """
        if self.store is not None:
            return self._hold_unused_name(problem_name, self.store, held)
        make_folder(self.parent)
        folders = (RunFolder(self.parent / name) for name in default_names(problem_name))
        # A folder of an account that exists was removed; what it spent is not the new run's.
        unpaid = (each for each in folders if self.purse.found(self.account(each)) is None)
        folder = next(each for each in unpaid if _is_made(each.path))
        held.callback(_remove_if_empty, folder.path)
        held.enter_context(folder.hold())
        return folder

    def _hold_unused_name(self, problem_name: str, store: str, held: ExitStack) -> RunFolder:
        fault = f"{problem_name}: other servers have taken the names that were tried; ask again"
        for _ in range(MAX_NAMES):
            run = unused_run(problem_name, store, self.parent)
            with ExitStack() as lease:
                try:
                    lease.enter_context(run.hold())
                except ValueError as error:
                    fault = str(error)
                    continue
                if run.claimed_at is None:
                    held.enter_context(lease.pop_all())
                    return run
        raise ValueError(fault)

    def mark(self, folder: RunFolder, *, is_stopped: bool) -> None:
        """Note for all servers of the purse whether a client has stopped a run."""
        self.purse.put(f"{STOP} {self.account(folder)}", cost=0, is_stopped=is_stopped)

    def is_stopped(self, folder: RunFolder) -> bool:
        """Whether a client has stopped a run, so that no server resumes it by itself."""
        noted = self.purse.entry(f"{STOP} {self.account(folder)}")
        return noted is not None and noted.facts["is_stopped"] is True

    def _own_folder(self, account: str) -> Path | None:
        """The run folder that an account pays for, if it is on this machine and in the parent."""
        here = f"{self.machine}:" if self.machine else ""
        folder = Path(account.removeprefix(here))
        is_own = account.startswith(here) and folder.parent == self.parent.resolve()
        return folder if is_own else None


def _is_made(folder: Path) -> bool:
    """Whether this process has made the folder, and no other one has."""
    try:
        folder.mkdir(OWNER_ONLY_FOLDER)
    except FileExistsError:
        return False
    return True


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # it has the files of a run
        folder.rmdir()
