"""What a host offers to MCP clients: problems, a model, and one purse for all their runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic

from costada.evaluators.registry import problem
from costada.evaluators.sandbox.interruption import allow_evaluations, interrupt_evaluations
from costada.runs.config import RunConfig, checked_config
from costada.runs.folder import unused_folder
from costada.runs.lease import is_held
from costada.runs.mcp.background import BackgroundRun
from costada.runs.plan import plan_run
from costada.runs.suggestion import unknown_name
from costada.store.purse import Ledger


def named_problems(given: Sequence[str]) -> dict[str, str]:
    """Return problems by the name that clients know them by: benchmarks, and folders by theirs.

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
class Offer:
    """The runs that clients may start, and those that they have started.

    Attributes:
        problems: The problems by name; benchmarks and folders.
        settings: The settings of every run but for problem, budget and seed.
        purse: What all runs together may spend.
        parent: Folder in which each run gets a folder of its own.
    """

    problems: Mapping[str, str]
    settings: RunConfig
    purse: Ledger
    parent: Path
    runs: dict[str, BackgroundRun] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def check(self) -> None:
        """Refuse what no run could begin with; raises `ValueError` as `plan_run` does."""
        plan_run(self.settings.model_copy(update={"preflight": False}))

    def take_back(self) -> None:
        """Take back what runs of an earlier server had left, unless another one is at work."""
        for account in self.purse.accounts()[1:]:
            folder = Path(account.name)
            if not account.is_closed and not is_held(folder):
                self.purse.close_child(account.name)

    def start(self, name: str, budget: float, seed: int) -> BackgroundRun:
        """Return a new run, which goes on in the background.

        Raises:
            ValueError: There is no such problem, it does not work, the budget or the seed is not
                what it should be, or the purse has too little left.
            OSError: The run's folder cannot be made.
        """
        if name not in self.problems:
            raise ValueError(unknown_name("problem", name, self.problems))
        wanted = {"problem": self.problems[name], "budget": budget, "seed": seed}
        config = checked_config({**self.settings.model_dump(), **wanted})
        plan = plan_run(config)
        with self._lock:
            folder = unused_folder(name, self.parent)
            account = self.purse.child(str(folder.path.resolve()), budget)
            try:
                folder.claim(config.model_copy(update={"budget": float(account.budget)}))
            except OSError:
                account.close()
                raise
            run = BackgroundRun(plan, folder, account)
            self.runs[run.name] = run
        return run

    def run(self, name: str) -> BackgroundRun:
        """Return a run by its name.

        Raises:
            ValueError: This server has started no such run.
        """
        if name not in self.runs:
            known = ", ".join(self.runs) or "none yet"
            raise ValueError(f"run: got {name!r}, expected one that was started here: {known}")
        return self.runs[name]

    def end(self, seconds: float) -> None:
        """Let all runs save and end, and wait so many seconds for them in all."""
        running = [run for run in self.runs.values() if run.status()["phase"] == "running"]
        for run in running:
            run.request_end()
        interrupt_evaluations()
        deadline = monotonic() + seconds
        for run in running:
            run.wait(max(0.0, deadline - monotonic()))
        allow_evaluations()
