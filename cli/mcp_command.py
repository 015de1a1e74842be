"""`costada mcp`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from ipaddress import ip_address
from math import inf
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costada.cli import options
from costada.cli.command_errors import announce, keeping_output_clean, naming_options, refusing
from costada.cli.setting_options import ALL_SETTINGS, with_settings
from costada.cli.span_export import send_spans
from costada.evaluators.registry import problem_names
from costada.reports.terminal import show
from costada.runs.config import RunConfig
from costada.runs.folder import DEFAULT_PARENT
from costada.runs.interruption import ExitCode, ending_on_signal
from costada.runs.user_input import as_option, split_list
from costada.store.address import check_database, is_database, shown_address

if TYPE_CHECKING:
    from costada.agents.search_service import SearchService
    from costada.evaluators.sandbox.layers import Layer

DEFAULT_PORT = 8000
SAVE_SECONDS = 1.5
"""Time that runs have to save after the client has left; clients kill a server after two."""

HTTP_SAVE_SECONDS = 60.0
"""The same over HTTP, where no client kills the server: calls in flight can end."""

TOKEN_VARIABLE = "COSTADA_MCP_TOKEN"  # noqa: S105

MaxBudget = Annotated[
    float | None,
    options.option(
        "Dollars that all runs share over the purse's life; a hard limit only with"
        " --budget-policy hard. Required without --team.",
        metavar="DOLLARS",
    ),
]
Team = Annotated[
    str | None,
    options.option(
        "Let the servers of the queue in --store execute the runs, as jobs of this team, which"
        " pays for them.",
        metavar="NAME",
    ),
]
PursePlace = Annotated[
    str | None,
    options.option(
        "File of the purse that pays for all runs, or a Postgres database, where servers on"
        " several machines share it.",
        "--purse",
        metavar="FILE|DSN",
        parser=options.named_place,
        show_default="in memory, while the server runs",
    ),
]
Problems = Annotated[
    str | None,
    options.option(
        "The problems to offer: benchmarks and problem folders, comma-separated.",
        metavar="NAMES",
        show_default="all benchmarks",
    ),
]
Parent = Annotated[Path, options.path_option("Parent folder of the run folders.", "--out")]
Http = Annotated[
    bool,
    typer.Option("--http", help="Listen on 127.0.0.1 instead; prints the address with a token."),
]
Host = Annotated[
    str | None,
    options.option(
        "Address to listen on with --http; beyond this machine only with a token in"
        f" {TOKEN_VARIABLE}.",
        metavar="IP",
        show_default="127.0.0.1",
    ),
]
Store = Annotated[
    str | None,
    options.option(
        "Keep runs and purse in a Postgres database; interrupted runs are resumed.",
        metavar="DSN",
        show_default="folders, and --purse",
        envvar="COSTADA_STORE",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=1, max=options.MAX_PORT, help="Port for --http.", show_default=str(DEFAULT_PORT)
    ),
]

CHOSEN_BY_CLIENTS = ("problem", "budget", "seed")
SHARED_SETTINGS = [name for name in ALL_SETTINGS if name not in CHOSEN_BY_CLIENTS]


@with_settings(*SHARED_SETTINGS)
def mcp(
    settings: Callable[[], dict[str, Any]],
    max_budget: MaxBudget = None,
    purse: PursePlace = None,
    problems: Problems = None,
    out: Parent = DEFAULT_PARENT,
    store: Store = None,
    team: Team = None,
    http: Http = False,
    host: Host = None,
    port: Port = None,
) -> None:
    """Offer searches to MCP clients, which start, follow, stop and continue them.

    A client starts the server and communicates with it over standard input and output. Runs
    continue in the background while the server runs. Interrupted runs are resumed by costada
    resume; with --store, by the next server.
    """
    with refusing(ExitCode.BAD_INPUT):
        if find_spec("mcp") is None:
            raise ValueError('mcp: needs the package mcp, run `pip install "costada[mcp]"`')
        if (port is not None or host is not None) and not http:
            given = f"--host: got {host}" if port is None else f"--port: got {port}"
            raise ValueError(f"{given} without --http, expected both or none")
        token = _token(host) if http else ""
        with keeping_output_clean():
            if team is None:
                dollars = _checked_dollars(max_budget, purse, store)
                service = _service(settings, dollars, purse, problems, out, store)
            else:
                if max_budget is not None or purse is not None:
                    raise ValueError(
                        "--team: got one with --max-budget or --purse, expected it alone"
                    )
                service = _queued(settings(), team, problems, out, store)
            layer = service.check()
            if store is None:
                service.paid.reclaim()
            service.follow()
    send_spans()
    with ending_on_signal():
        try:
            is_here = team is None
            _serve(service, layer, is_here=is_here, http=http, host=host, port=port, token=token)
        finally:
            service.end(HTTP_SAVE_SECONDS if http else SAVE_SECONDS)


def _checked_dollars(max_budget: float | None, purse: str | None, store: str | None) -> float:
    """The budget; raises `ValueError` if it or the place of the purse is wrong."""
    if max_budget is None:
        raise ValueError("--max-budget: is missing, expected dollars, or --team with --store")
    if not 0 < max_budget < inf:
        raise ValueError(f"--max-budget: got {max_budget:g}, expected finite dollars above 0")
    if store is not None:
        check_database(store)
        if purse is not None:
            place = shown_address(purse) if is_database(purse) else purse
            raise ValueError(f"--purse: got {place} with --store, which keeps the purse")
    if purse is not None and is_database(purse):
        check_database(purse, "--purse")
    return max_budget


def _service(
    settings: Callable[[], dict[str, Any]],
    max_budget: float,
    purse: str | None,
    problems: str | None,
    out: Path,
    store: str | None,
) -> SearchService:
    """The service with its purse open; raises as these do."""
    from costada.agents.search_service import SearchService, named_problems
    from costada.runs.search_request import SearchRequest
    from costada.store.purse import Purse

    known = named_problems(split_list("--problems", problems) if problems else problem_names())
    any_run = {"problem": next(iter(known.values())), "budget": max_budget}
    config = RunConfig.model_validate({**settings(), **any_run})
    is_shared = purse is not None and is_database(purse)
    account = Purse(
        max_budget,
        policy=config.budget_policy,
        path=None if is_shared else purse,
        dsn=purse if is_shared else store,
        name="the server's purse",
    )
    return SearchService(
        known, SearchRequest(config), account, out, store, gethostname() if is_shared else ""
    )


def _queued(
    given: dict[str, Any], team: str, problems: str | None, out: Path, store: str | None
) -> SearchService:
    """The service that adds searches to a queue; raises as these do."""
    from costada.agents.job_clients import queue_of
    from costada.agents.queued_searches import QueuedSearches
    from costada.agents.search_service import named_problems
    from costada.runs.search_request import SearchRequest
    from costada.runs.shared_purse import PurseAddress
    from costada.store.job_queue import JobQueue

    if store is None:
        raise ValueError("--store: is missing, expected the database of the queue with --team")
    check_database(store)
    if others := [as_option(name) for name in given if name != "target"]:
        raise ValueError(f"{', '.join(others)}: not with --team, whose servers have all settings")
    known = named_problems(split_list("--problems", problems) if problems else problem_names())
    with naming_options("team"), queue_of(store, team):
        purse = PurseAddress(store, team).open()
    any_run = {"problem": next(iter(known.values())), "budget_policy": purse.policy}
    request = SearchRequest(RunConfig.model_validate({**given, **any_run}))
    return QueuedSearches(known, request, purse, out, store, team=team, queue=JobQueue(store))


def _serve(
    service: SearchService,
    layer: Layer | None,
    *,
    is_here: bool,
    http: bool,
    host: str | None,
    port: int | None,
    token: str,
) -> None:
    """Serve until the client leaves or a signal arrives; an empty token stands for a new one.

    `is_here` says whether this process executes the runs.
    """
    from costada.agents.health_paths import ADDRESS
    from costada.agents.mcp import serve_over_http, serve_over_stdio
    from costada.evaluators.sandbox.layer_choice import described_layer
    from costada.reports.page_server import new_token

    if not http:
        serve_over_stdio(service)
        return
    place, number = host or ADDRESS, port or DEFAULT_PORT
    address = f"http://{f'[{place}]' if ':' in place else place}:{number}/mcp"
    if token:
        announce(f"{address}, with the token in {TOKEN_VARIABLE}", address=address)
    else:
        token = new_token()
        show(f"{address}?token={token}")  # nobody else knows it
    unknown = "up to the problem" if is_here else "up to the servers of the queue"
    sandbox = described_layer(layer) if layer else unknown
    announce(f"sandbox: {sandbox}", sandbox=sandbox)
    serve_over_http(service, place, number, token)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an IP address; raises `ValueError` if it is none."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        raise ValueError(f"--host: got {host!r}, expected an IP address such as 0.0.0.0") from None


def _token(host: str | None) -> str:
    """The token of the environment, empty if there is none.

    Raises:
        ValueError: It is too short, other machines could connect without one, or the host is not
            an IP address.
    """
    from costada.reports.page_server import token_in

    token = token_in(TOKEN_VARIABLE)
    is_reachable = host is not None and not is_loopback(host)
    if is_reachable and not token:
        raise ValueError(f"--host: got {host} without a token in {TOKEN_VARIABLE}, expected both")
    return token
