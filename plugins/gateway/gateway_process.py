"""Starts a gateway that outlives its starter: `python -m costada.plugins.gateway.gateway_process`.

It prints its address on standard output once it can be used, or what is wrong on standard error;
both are closed then, so a starter that reads to their end has waited long enough.
"""

import os
import sqlite3
import sys
from argparse import ArgumentParser
from pathlib import Path

from costada.evaluators.sandbox.inside.kernel import PR_SET_DUMPABLE, set_process_option
from costada.models.errors import describe
from costada.plugins.gateway.gateway_protocol import (
    CALL_TIMEOUT,
    IDLE_SECONDS,
    GatewayAddress,
    open_for_owner,
)
from costada.plugins.gateway.gateway_server import GatewaySettings, serve


def main() -> None:
    """Leave the starter's process, then serve.

    Keys come with the requests. Programs of the same user cannot read them in the memory of this
    process.
    """
    set_process_option(PR_SET_DUMPABLE, 0)
    parser = ArgumentParser(prog="costada.plugins.gateway.gateway_process")
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    parser.add_argument("--call-timeout", type=float, default=CALL_TIMEOUT)
    given = parser.parse_args()
    if os.fork():
        os._exit(0)
    stdout, stderr = 1, 2

    def announce(address: GatewayAddress) -> None:
        os.write(stdout, f"{address.base_url}\n".encode())
        log = open_for_owner(given.log, os.O_WRONLY | os.O_APPEND)
        # The starter reads both to their end, so they must not stay open as long as the gateway.
        os.dup2(log, stdout)
        os.dup2(log, stderr)
        os.close(log)

    settings = GatewaySettings(
        given.upstream,
        given.journal,
        idle_seconds=given.idle_seconds,
        call_timeout=given.call_timeout,
    )
    try:
        serve(settings, announce)
    except (ValueError, OSError, sqlite3.Error) as error:
        sys.exit(str(error) if isinstance(error, ValueError) else describe(error))


if __name__ == "__main__":
    main()
