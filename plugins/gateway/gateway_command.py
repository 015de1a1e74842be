"""`costada gateway`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import announce, refusing
from costada.cli.main import OTHERS, SERVE, PluginCommand
from costada.plugins.gateway.gateway_protocol import IDLE_SECONDS
from costada.runs.interruption import ExitCode

Upstream = Annotated[
    str,
    typer.Option(metavar="URL", help="Address of the provider, for example http://host:8000/v1."),
]
JournalFile = Annotated[
    Path,
    options.path_option(
        "File of the responses; FILE.address holds the token.", "--journal", metavar="FILE"
    ),
]
Port = Annotated[
    int, typer.Option(min=0, max=options.MAX_PORT, help="Port on 127.0.0.1; 0: any free one.")
]
IdleSeconds = Annotated[
    float, typer.Option(help="Exit after this time without clients and running calls.")
]


def gateway(
    upstream: Upstream,
    journal: JournalFile,
    port: Port = 0,
    idle_seconds: IdleSeconds = IDLE_SECONDS,
) -> None:
    """Persist all responses of a provider, so that no call is paid for twice.

    A run starts its own with --gateway. Requests must carry X-CostAda-Token, which FILE.address
    holds, and X-CostAda-Call, which identifies a call. Ctrl-C stops the gateway after the running
    calls have ended.
    """
    with refusing(ExitCode.BAD_INPUT):
        from costada.plugins.gateway.gateway_of_run import check_installed

        check_installed()
        from costada.plugins.gateway.gateway_server import GatewaySettings, serve

        settings = GatewaySettings(upstream, journal, port, idle_seconds)
        serve(settings, lambda found: announce(found.base_url, address=found.base_url))


COMMAND = PluginCommand(gateway, SERVE, OTHERS)
