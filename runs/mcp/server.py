"""The MCP server: three tools over what a host offers.

A search takes minutes to days, and MCP clients give a request up after a minute, many of them
whatever progress it reports. So `discover` starts a run and answers at once, and `status` can wait
a while for its end: a client that keeps asking misses nothing, and no request lasts.
"""

from typing import Annotated

import anyio.to_thread
import uvicorn
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations
from pydantic import Field
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from costada.runs.access import REFUSAL, shows_token
from costada.runs.mcp.background import RunStatus
from costada.runs.mcp.offer import Offer

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
