"""The MCP server: three tools to start and follow searches.

A search takes minutes to days, but MCP clients abandon a request after a minute, many despite
progress reports. So `discover` starts a run and returns at once, and `status` can wait for its end.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import Annotated, Literal

import anyio.to_thread
import uvicorn
from langgraph.runtime import RunControl
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations
from pydantic import Field
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import TypedDict

from costada.evaluators.registry import problem
from costada.evaluators.sandbox.cancellation import allow_evaluations, cancel_evaluations
from costada.models.errors import UnmeteredCall, describe
from costada.nodes.end_step import TraceRow
from costada.reports.page.server import REFUSAL, shows_token
from costada.reports.progress import Progress
from costada.runs.config import RunConfig, checked_config
from costada.runs.folder import RunFolder, unused_folder
from costada.runs.lease import is_held
from costada.runs.plan import Plan, plan_run
from costada.runs.runner import carry_out
from costada.runs.user_input import unknown_name
from costada.store.address import is_there
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.candidate import Program
from costada.values.discovery import Discovery

ADDRESS = "127.0.0.1"
LONGEST_WAIT = 45.0
"""Seconds that one request may take; clients give up after 60."""

UNEXPECTED = "an unexpected error; see the server's standard error"
READS = ToolAnnotations(readOnlyHint=True, openWorldHint=False)
SPENDS = ToolAnnotations(readOnlyHint=False, destructiveHint=False, openWorldHint=True)

RunPhase = Literal["running", "finished", "interrupted", "failed"]


class RunStatus(TypedDict):
    """The state of a run.

    `spent` and `budget` are dollars; `spent` includes a running call at its upper bound, and
    `budget` may be lower than requested. `best_score` is normalised, higher is better;
    `best_objective` is in the problem's own units. Both are `None` before the first iteration.
    `stop_reason` is `budget`, `iterations` or `failures` for a finished run, `error` says why a run
    failed; otherwise they are empty. `folder` holds the run's files.
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


class BackgroundRun(Progress):
    """A run in its own thread, paid from an account of the server's purse."""

    def __init__(self, plan: Plan, folder: RunFolder, account: Purse) -> None:
        """Start at once; the account is closed when the run has ended in any way."""
        self._plan = replace(plan, purse=account, budget=float(account.budget))
        self._folder, self._account = folder, account
        self._row: TraceRow | None = None
        self._result: Discovery | None = None
        self._error = ""
        self.control = RunControl()
        self.thread = Thread(target=self._carry_out, daemon=True)
        self.thread.start()

    @property
    def name(self) -> str:
        """The name of the run for clients."""
        return self._folder.path.name

    def step(self, row: TraceRow) -> None:
        """Remember a finished iteration."""
        self._row = row

    def status(self) -> RunStatus:
        """The current state of the run."""
        row, result = self._row, self._result
        phase: RunPhase = "failed"
        if self.thread.is_alive():
            phase = "running"
        elif result:
            phase = "interrupted" if result.stop_reason == "interrupted" else "finished"
        return RunStatus(
            run=self.name,
            problem=self._plan.problem.name,
            phase=phase,
            iterations=row["iteration"] if row else 0,
            spent=float(self._account.spent),
            budget=self._plan.budget,
            best_score=row["best_score"] if row else None,
            best_objective=row["best_objective"] if row else None,
            stop_reason=result.stop_reason if result else "",
            error=self._error or (UNEXPECTED if phase == "failed" else ""),
            folder=str(self._folder.path.resolve()),
        )

    def best_program(self) -> Program:
        """The best program so far; at first the problem's initial program."""
        if not is_there(self._folder.database):
            return self._plan.problem.start
        with RunStore.at(self._folder.database, is_read_only=True) as store:
            run_id = next(reversed(store.run_ids()), "")
            best = store.last_improvement(run_id)
            if best is None:
                return self._plan.problem.start
            return store.candidates.get(run_id, best).program

    def _carry_out(self) -> None:
        with closing(self._account):
            try:
                self._result = carry_out(self._plan, self._folder, self, self.control)
            except (ValueError, UnmeteredCall, OSError, sqlite3.Error) as error:
                self._error = str(error) or describe(error)


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
    """

    problems: Mapping[str, str]
    settings: RunConfig
    purse: Purse
    parent: Path
    runs: dict[str, BackgroundRun] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def check(self) -> None:
        """Refuse settings that no run could start with; raises `ValueError` as `plan_run` does."""
        plan_run(self.settings.model_copy(update={"preflight": False}))

    def reclaim(self) -> None:
        """Return the unspent money of an earlier server's runs that no process works on."""
        for account in self.purse.accounts()[1:]:
            if not account.is_closed and not is_held(Path(account.name)):
                self.purse.close_child(account.name)

    def start(self, name: str, budget: float, seed: int) -> BackgroundRun:
        """Start a run in the background.

        Raises:
            ValueError: There is no such problem, it does not work, the budget or the seed is
                invalid, or the purse has too little left.
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
        """A run by its name; raises `ValueError` if this server has not started it."""
        if name not in self.runs:
            known = ", ".join(self.runs) or "none yet"
            raise ValueError(f"run: got {name!r}, expected one that was started here: {known}")
        return self.runs[name]

    def end(self, seconds: float) -> None:
        """Interrupt all runs, so that they save, and wait for them for at most `seconds`."""
        running = [run for run in self.runs.values() if run.thread.is_alive()]
        for run in running:
            run.control.request_drain("the server ends")
        cancel_evaluations()
        deadline = monotonic() + seconds
        for run in running:
            run.thread.join(max(0.0, deadline - monotonic()))
        allow_evaluations()


Run = Annotated[str, Field(description="Name of the run, as discover returned it.")]
ProblemName = Annotated[str, Field(description="One of the problems that this server offers.")]
Budget = Annotated[float, Field(description="Dollars to spend; lowered to what the server has.")]
Seed = Annotated[int, Field(description="Random seed of the run.")]
WaitSeconds = Annotated[
    float, Field(ge=0, le=LONGEST_WAIT, description="Return when the run ends, or after this time.")
]


def mcp_server(service: SearchService, *, port: int = 0) -> FastMCP:
    """The MCP server of a service; `port` is for HTTP."""
    instructions = (
        "Improves programs by a search with language models within a budget of dollars. Start a"
        " run with discover, ask status until its phase is no longer running, then best_program."
        f" Problems: {', '.join(service.problems)}. All runs together may spend"
        f" ${service.purse.budget:f}."
    )

    async def discover(problem: ProblemName, budget: Budget, seed: Seed = 0) -> RunStatus:
        """Start a search for a better program and return at once; it runs in the background."""
        run = await anyio.to_thread.run_sync(service.start, problem, budget, seed)
        return run.status()

    async def status(run: Run, wait_seconds: WaitSeconds = 0.0) -> RunStatus:
        """Return the state of a run: phase, iterations, dollars spent, best score, any error."""
        found = service.run(run)
        if wait_seconds:
            join = found.thread.join
            await anyio.to_thread.run_sync(join, wait_seconds, abandon_on_cancel=True)
        return found.status()

    async def best_program(run: Run) -> BestProgram:
        """Return the best program of a run so far, with its score and the state of the run."""
        found = service.run(run)
        program = await anyio.to_thread.run_sync(found.best_program)
        return BestProgram(**found.status(), program=program.text, files=program.by_path)

    server = FastMCP(
        "costada", instructions=instructions, host=ADDRESS, port=port, log_level="WARNING"
    )
    server.add_tool(discover, annotations=SPENDS)
    server.add_tool(status, annotations=READS)
    server.add_tool(best_program, annotations=READS)
    return server


def serve_over_http(service: SearchService, port: int, token: str) -> None:
    """Serve on this machine until Ctrl-C, to clients that send the token.

    The SDK refuses requests that name another host or another origin.
    """
    application = mcp_server(service, port=port).streamable_http_app()
    uvicorn.run(_guarded(application, token), host=ADDRESS, port=port, log_level="warning")


def _guarded(application: ASGIApp, token: str) -> ASGIApp:
    """An application that refuses requests without the token."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            headers = dict(scope["headers"])
            authorization = headers.get(b"authorization", b"").decode("latin-1")
            if not shows_token(token, scope["query_string"].decode("latin-1"), authorization):
                await PlainTextResponse(REFUSAL, status_code=401)(scope, receive, send)
                return
        await application(scope, receive, send)

    return guarded
