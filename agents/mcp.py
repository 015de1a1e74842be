"""The MCP server: three tools over what a host offers.

A search takes minutes to days, and MCP clients give a request up after a minute, many of them
whatever progress it reports. So `discover` starts a run and answers at once, and `status` can wait
a while for its end: a client that keeps asking misses nothing, and no request lasts.
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
from costada.store.files import read_text
from costada.store.purse import Purse
from costada.values.discovery import Discovery

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


class BackgroundRun(Progress):
    """Carries a plan out in a thread of its own, with the money of an account."""

    def __init__(self, plan: Plan, folder: RunFolder, account: Purse) -> None:
        """Begin at once; the account is closed when the run has ended, whatever its end is."""
        self._plan = replace(plan, purse=account, budget=float(account.budget))
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
    purse: Purse
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
        cancel_evaluations()
        deadline = monotonic() + seconds
        for run in running:
            run.wait(max(0.0, deadline - monotonic()))
        allow_evaluations()


LONGEST_WAIT = 45.0
"""Seconds that one request may last at most; clients give up after 60."""

ADDRESS = "127.0.0.1"

READS = ToolAnnotations(readOnlyHint=True, openWorldHint=False)
SPENDS = ToolAnnotations(readOnlyHint=False, destructiveHint=False, openWorldHint=True)


class BestProgram(RunStatus):
    """The best program of a run so far, and where the run stands."""

    program: str


def mcp_server(offer: Offer, *, port: int = 0) -> FastMCP:
    """Return the server; `port` matters where it is reached over HTTP."""
    server = FastMCP(
        "costada", instructions=_instructions(offer), host=ADDRESS, port=port, log_level="WARNING"
    )
    tools = _Tools(offer)
    server.add_tool(tools.discover, annotations=SPENDS)
    server.add_tool(tools.status, annotations=READS)
    server.add_tool(tools.best_program, annotations=READS)
    return server


def serve_over_http(offer: Offer, port: int, token: str) -> None:
    """Serve on this machine until Ctrl-C, to clients that show the token.

    The SDK refuses requests that name another host or another origin.
    """
    server = mcp_server(offer, port=port)
    guarded = _Guarded(server.streamable_http_app(), token)
    uvicorn.run(guarded, host=ADDRESS, port=port, log_level="warning")


class _Guarded:
    """An application whose requests must show a token."""

    def __init__(self, application: ASGIApp, token: str) -> None:
        self._application, self._token = application, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            headers = dict(scope["headers"])
            authorization = headers.get(b"authorization", b"").decode("latin-1")
            if not shows_token(self._token, scope["query_string"].decode("latin-1"), authorization):
                await PlainTextResponse(REFUSAL, status_code=401)(scope, receive, send)
                return
        await self._application(scope, receive, send)


def _instructions(offer: Offer) -> str:
    return (
        "Improves programs by a search with language models within a budget of dollars. Start a"
        " run with discover, ask status until its phase is no longer running, then best_program."
        f" Problems: {', '.join(offer.problems)}. All runs together may spend"
        f" ${offer.purse.budget:f}."
    )


Run = Annotated[str, Field(description="Name of the run, as discover returned it.")]
ProblemName = Annotated[str, Field(description="One of the problems that this server offers.")]
Budget = Annotated[float, Field(description="Dollars to spend; less if less is left here.")]
Seed = Annotated[int, Field(description="Start of the run's randomness.")]
WaitSeconds = Annotated[
    float,
    Field(ge=0, le=LONGEST_WAIT, description="Answer when the run ends, or after so long."),
]


class _Tools:
    """The tools; their docstrings are what clients read."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    async def discover(self, problem: ProblemName, budget: Budget, seed: Seed = 0) -> RunStatus:
        """Start a search for a better program and return at once; it goes on in the background."""
        run = await anyio.to_thread.run_sync(self._offer.start, problem, budget, seed)
        return run.status()

    async def status(self, run: Run, wait_seconds: WaitSeconds = 0.0) -> RunStatus:
        """Return where a run stands: phase, iterations, dollars spent, best score, any error."""
        found = self._offer.run(run)
        if wait_seconds:
            await anyio.to_thread.run_sync(found.wait, wait_seconds, abandon_on_cancel=True)
        return found.status()

    async def best_program(self, run: Run) -> BestProgram:
        """Return the best program of a run so far, with its score and where the run stands."""
        found = self._offer.run(run)
        program = await anyio.to_thread.run_sync(found.best_program)
        return BestProgram(**found.status(), program=program)
