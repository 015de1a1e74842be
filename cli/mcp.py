"""`costada mcp`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costada.cli import options
from costada.cli.errors import keeping_output_clean, refusing
from costada.evaluators.registry import problem_names
from costada.reports.terminal import show
from costada.runs.config import RunConfig
from costada.runs.exit_codes import ExitCode
from costada.runs.folder import DEFAULT_PARENT
from costada.runs.user_input import listed

if TYPE_CHECKING:
    from costada.agents.mcp import Offer


DEFAULT_PORT = 8000
SAVE_SECONDS = 1.5
"""How long runs may take to save when the client has gone; clients kill a server after two."""


MaxBudget = Annotated[
    float,
    typer.Option(help="Dollars that all runs together may spend, as long as the purse lasts."),
]
PurseFile = Annotated[
    Path | None,
    typer.Option(
        "--purse",
        parser=options.named_path,
        metavar="FILE",
        help="Where the account of all runs is kept, so that a new server goes on with it.",
        show_default="in memory, as long as the server is up",
    ),
]
Problems = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Problems on offer: benchmarks and problem folders, with commas between them.",
        show_default="all benchmarks",
    ),
]
Parent = Annotated[
    Path,
    typer.Option(
        "--out",
        parser=options.named_path,
        metavar="DIR",
        help="Where each run gets a folder of its own.",
    ),
]
Http = Annotated[
    bool,
    typer.Option("--http", help="Listen on 127.0.0.1 instead; prints the address with a token."),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=options.LARGEST_PORT,
        help="Where to listen with --http.",
        show_default=str(DEFAULT_PORT),
    ),
]


def mcp(
    context: typer.Context,
    max_budget: MaxBudget,
    purse: PurseFile = None,
    problems: Problems = None,
    method: options.MethodName = None,
    model: options.Model = None,
    guide_model: options.GuideModel = None,
    base_url: options.BaseUrl = None,
    max_tokens: options.MaxTokens = None,
    price_in: options.PriceIn = None,
    price_out: options.PriceOut = None,
    guide_price_in: options.GuidePriceIn = None,
    guide_price_out: options.GuidePriceOut = None,
    budget_policy: options.BudgetPolicy = None,
    max_iterations: options.MaxIterations = None,
    sandbox: options.Sandbox = None,
    allow_invalid_start: options.AllowInvalidStart = False,
    out: Parent = DEFAULT_PARENT,
    http: Http = False,
    port: Port = None,
) -> None:
    """Offer searches to MCP clients: the tools discover, status and best_program.

    A client starts the server and speaks to it over standard input and output. Runs go on in the
    background as long as the server does; their folders can be gone on with by costada resume.
    """
    with refusing(ExitCode.BAD_INPUT):
        _check_installed()
        if port is not None and not http:
            raise ValueError(f"--port: got {port} without --http, expected both or none")
        given = {name: context.params.get(name) for name in RunConfig.model_fields}
        with keeping_output_clean():
            offer = _offer(given, max_budget, problems, purse, out)
    _serve(offer, (port or DEFAULT_PORT) if http else None)


def _check_installed() -> None:
    if find_spec("mcp") is None:
        raise ValueError('mcp: needs the package mcp, run `pip install "costada[mcp]"`')


def _offer(
    given: Mapping[str, object],
    max_budget: float,
    problems: str | None,
    purse: Path | None,
    out: Path,
) -> Offer:
    """Return what the server offers, with the settings given for every run."""
    from costada.agents.mcp import Offer, named_problems
    from costada.store.purse import Purse

    if not 0 < max_budget < inf:
        raise ValueError(f"--max-budget: got {max_budget:g}, expected finite dollars above 0")
    known = named_problems(listed("--problems", problems) if problems else problem_names())
    any_run = {"problem": next(iter(known.values())), "budget": max_budget}
    settings = RunConfig.model_validate({**given, **any_run})
    account = Purse(
        max_budget, policy=settings.budget_policy, path=purse, name="the server's purse"
    )
    offer = Offer(known, settings, account, out)
    offer.check()
    offer.take_back()
    return offer


def _serve(offer: Offer, port: int | None) -> None:
    from costada.agents.mcp import ADDRESS, mcp_server, serve_over_http
    from costada.reports.page.server import new_token

    try:
        if port is None:
            mcp_server(offer).run("stdio")
        else:
            token = new_token()
            show(f"http://{ADDRESS}:{port}/mcp?token={token}")
            serve_over_http(offer, port, token)
    finally:
        offer.end(SAVE_SECONDS)
