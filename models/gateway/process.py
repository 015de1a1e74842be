"""The life of a gateway process: from taking its journal to its last answer."""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from costada.models.gateway.address import Door, DoorFile, door_file, hold_door
from costada.models.gateway.exchange import Exchange
from costada.models.gateway.journal import Journal
from costada.models.gateway.protocol import CALL_TIMEOUT, IDLE_SECONDS
from costada.models.gateway.server import Server
from costada.models.gateway.upstream import Upstream, checked_upstream

HOST = "127.0.0.1"
TOKEN_BYTES = 32
_OWNER_ONLY_MASK = 0o077
_LONGEST_TICK = 1.0
_FAREWELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Duty:
    """What a gateway is asked to do.

    Attributes:
        upstream: Address of the provider.
        journal: Its file; the door file lies beside it.
        port: Where to listen on 127.0.0.1; 0: any free port.
        idle_seconds: It ends after so long without a client and without a request under way.
        call_timeout: Seconds after which a response is given up as lost.
    """

    upstream: str
    journal: Path
    port: int = 0
    idle_seconds: float = IDLE_SECONDS
    call_timeout: float = CALL_TIMEOUT


def serve(duty: Duty, announce: Callable[[Door], None]) -> None:
    """Serve until idle or told to stop; requests under way are read to their end first.

    `announce` is called once the gateway can be used. SIGTERM or Ctrl-C tells it to stop, a
    second one ends it where it stands. Meant for a process of its own.

    Raises:
        ValueError: The upstream is no address, another gateway is at work on the journal, or that
            is of a newer version.
        OSError: A file cannot be created or the port is taken.
        sqlite3.Error: The journal cannot be written.
    """
    upstream = checked_upstream(duty.upstream)
    if not duty.idle_seconds > 0:
        raise ValueError(f"idle_seconds: got {duty.idle_seconds}, expected > 0")
    if not duty.call_timeout > 0:
        raise ValueError(f"call_timeout: got {duty.call_timeout}, expected > 0")
    os.umask(_OWNER_ONLY_MASK)
    # A login for the provider's host in that file would clash with the client's own key.
    os.environ["NETRC"] = os.devnull
    with hold_door(door_file(duty.journal)) as file, closing(Journal(duty.journal)) as journal:
        if journal.num_lost:
            _log(f"{journal.num_lost} requests were under way when the last gateway ended: lost")
        asyncio.run(_serve(duty, upstream, journal, file, announce))


async def _serve(
    duty: Duty, address: str, journal: Journal, file: DoorFile, announce: Callable[[Door], None]
) -> None:
    upstream = Upstream(address, duty.call_timeout)
    exchange = Exchange(upstream, journal, _log)
    server = Server(exchange, secrets.token_urlsafe(TOKEN_BYTES))
    runner = web.AppRunner(
        server.application(),
        handle_signals=False,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_FAREWELL_SECONDS,
    )
    try:
        await runner.setup()
        site = web.TCPSite(runner, HOST, duty.port)
        await site.start()
        door = Door(runner.addresses[0][1], os.getpid(), server.token, address)
        _stop_on_signal(server.stopping)
        file.open(door)
        announce(door)
        await _until_unneeded(server, duty.idle_seconds)
        file.close()
        await site.stop()
        await exchange.drain()
    finally:
        await runner.cleanup()
        await upstream.close()


async def _until_unneeded(server: Server, idle_seconds: float) -> None:
    tick = min(idle_seconds / 4, _LONGEST_TICK)
    while server.idle_seconds < idle_seconds:
        try:
            await asyncio.wait_for(server.stopping.wait(), tick)
        except TimeoutError:
            continue
        _log("told to stop")
        return
    server.stopping.set()
    _log(f"unused for {idle_seconds:g} seconds")


def _stop_on_signal(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _log(text: str) -> None:
    shown = text.encode("unicode_escape").decode()
    print(f"costada gateway: {shown}", file=sys.stderr, flush=True)  # noqa: T201  no room above
