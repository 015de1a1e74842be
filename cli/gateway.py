"""`costada gateway`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costada.cli import options
from costada.cli.errors import refusing
from costada.models.gateway.protocol import IDLE_SECONDS
from costada.reports.terminal import show
from costada.runs.exit_codes import ExitCode
from costada.runs.gateway import check_installed

if TYPE_CHECKING:
    from costada.models.gateway.protocol import GatewayAddress


Upstream = Annotated[
    str,
    typer.Option(metavar="URL", help="Address of the provider, for example http://host:8000/v1."),
]
JournalFile = Annotated[
    Path,
    typer.Option(
        "--journal",
        parser=options.named_path,
        metavar="FILE",
        help="Where answers are kept; FILE.address holds the token.",
    ),
]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=options.LARGEST_PORT, help="Where to listen on 127.0.0.1; 0: anywhere."
    ),
]
IdleSeconds = Annotated[
    float, typer.Option(help="End after so long without clients and without calls under way.")
]


def gateway(
    upstream: Upstream,
    journal: JournalFile,
    port: Port = 0,
    idle_seconds: IdleSeconds = IDLE_SECONDS,
) -> None:
    """Keep every answer of a provider, so that no call is paid twice.

    A run starts its own with --gateway. Requests must carry X-CostAda-Token, which FILE.address
    holds, and X-CostAda-Call, which tells one call from another. Ctrl-C stops the gateway once
    calls under way have ended.
    """
    with refusing(ExitCode.BAD_INPUT):
        check_installed()
        from costada.models.gateway.server import GatewaySettings, serve

        serve(GatewaySettings(upstream, journal, port, idle_seconds), _print)


def _print(door: GatewayAddress) -> None:
    show(door.base_url)
