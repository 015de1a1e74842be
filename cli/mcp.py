"""`costada mcp`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from costada.cli import options
from costada.cli.errors import keeping_output_clean, refusing
from costada.evaluators.registry import problem_names
from costada.reports.terminal import show
from costada.runs.config import RunConfig
from costada.runs.folder import DEFAULT_PARENT
from costada.runs.interruption import ExitCode
from costada.runs.user_input import listed

DEFAULT_PORT = 8000
SAVE_SECONDS = 1.5
"""Time that runs have to save after the client has gone; clients kill a server after two."""

MaxBudget = Annotated[
    float, typer.Option(help="Dollars that all runs together may spend, over the purse's life.")
]
PurseFile = Annotated[
    Path | None,
    options.path_option(
        "File of the purse that pays for all runs, so that it survives a restart.",
        "--purse",
        metavar="FILE",
        show_default="in memory, while the server runs",
    ),
]
Problems = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="The problems to offer: benchmarks and problem folders, comma-separated.",
        show_default="all benchmarks",
    ),
]
Parent = Annotated[Path, options.path_option("Parent folder of the run folders.", "--out")]
Http = Annotated[
    bool,
    typer.Option("--http", help="Listen on 127.0.0.1 instead; prints the address with a token."),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=1, max=options.LARGEST_PORT, help="Port for --http.", show_default=str(DEFAULT_PORT)
    ),
]

CHOSEN_BY_CLIENTS = ("problem", "budget", "seed")
SHARED_SETTINGS = [name for name in options.ALL_SETTINGS if name not in CHOSEN_BY_CLIENTS]


@options.with_settings(*SHARED_SETTINGS)
def mcp(
    settings: Callable[[], dict[str, Any]],
    max_budget: MaxBudget,
    purse: PurseFile = None,
    problems: Problems = None,
    out: Parent = DEFAULT_PARENT,
    http: Http = False,
    port: Port = None,
) -> None:
    """Offer searches to MCP clients: the tools discover, status and best_program.

    A client starts the server and talks to it over standard input and output. Runs continue in the
    background while the server runs; costada resume resumes interrupted ones.
    """
    with refusing(ExitCode.BAD_INPUT):
        if find_spec("mcp") is None:
            raise ValueError('mcp: needs the package mcp, run `pip install "costada[mcp]"`')
        if port is not None and not http:
            raise ValueError(f"--port: got {port} without --http, expected both or none")
        if not 0 < max_budget < inf:
            raise ValueError(f"--max-budget: got {max_budget:g}, expected finite dollars above 0")
        from costada.agents.mcp import (
            ADDRESS,
            SearchService,
            mcp_server,
            named_problems,
            serve_over_http,
        )
        from costada.reports.page.server import new_token
        from costada.store.purse import Purse

        with keeping_output_clean():
            known = named_problems(listed("--problems", problems) if problems else problem_names())
            any_run = {"problem": next(iter(known.values())), "budget": max_budget}
            config = RunConfig.model_validate({**settings(), **any_run})
            policy = config.budget_policy
            account = Purse(max_budget, policy=policy, path=purse, name="the server's purse")
            service = SearchService(known, config, account, out)
            service.check()
            service.reclaim()
    try:
        if http:
            token = new_token()
            show(f"http://{ADDRESS}:{port or DEFAULT_PORT}/mcp?token={token}")
            serve_over_http(service, port or DEFAULT_PORT, token)
        else:
            mcp_server(service).run("stdio")
    finally:
        service.end(SAVE_SECONDS)
