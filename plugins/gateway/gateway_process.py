"""The process of the gateways of one client process, which they outlive.

`python -m costada.plugins.gateway.gateway_process` reads a line of JSON on standard input for each
gateway that it is to start, and answers each with a line on standard output: what is wrong, empty
once the gateway can be used, and whether it was hindered. It ends with its last gateway. Its own
errors go to the log of the newest one.
"""

import asyncio
import json
import os
import sys
from argparse import ArgumentParser
from contextlib import suppress
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

from costada.evaluators.sandbox.inside.kernel import PR_SET_DUMPABLE, set_process_option
from costada.models.errors import describe
from costada.plugins.gateway.gateway_protocol import (
    IDLE_SECONDS,
    GatewayAddress,
    open_for_owner,
)
from costada.plugins.gateway.gateway_server import (
    GatewaySettings,
    logged_line,
    prepare_process,
    serve_journal,
    stop_on_signal,
)

STDIN, STDOUT, STDERR = range(3)


def main() -> None:
    """Leave the starter's process, then serve.

    Keys come with the requests. Programs of the same user cannot read them in the memory of this
    process.
    """
    set_process_option(PR_SET_DUMPABLE, 0)
    parser = ArgumentParser(prog="costada.plugins.gateway.gateway_process")
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    idle_seconds = parser.parse_args().idle_seconds
    if os.fork():
        os._exit(0)
    _, most = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (most, most))  # a gateway has about 25 files and connections
    prepare_process()
    asyncio.run(_serve(idle_seconds))


async def _serve(idle_seconds: float) -> None:
    """Start gateways as asked, until the last one has ended, or none is asked for."""
    requests = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(requests)
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: protocol, sys.stdin)
    gateways: dict[asyncio.Task[None], asyncio.Event] = {}

    def stop_all() -> None:
        for stopping in gateways.values():
            stopping.set()

    stop_on_signal(stop_all)

    def forget(ended: asyncio.Task[None]) -> None:
        del gateways[ended]
        if not gateways:
            pipe.close()

    with suppress(ConnectionResetError):  # the client has died before it read an answer
        while line := await requests.readline():
            given = json.loads(line)
            settings = GatewaySettings(
                given["upstream"],
                Path(given["journal"]),
                given["port"],
                idle_seconds,
                given["call_timeout"],
                given["token"],
            )
            stopping, started = asyncio.Event(), loop.create_future()
            gateway = loop.create_task(_run(settings, Path(given["log"]), stopping, started))
            gateways[gateway] = stopping
            gateway.add_done_callback(forget)
            answer = json.dumps(await started)
            with suppress(BrokenPipeError):  # the client has died
                os.write(STDOUT, f"{answer}\n".encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in (STDIN, STDOUT):  # a client that asks again starts another process
        os.dup2(nothing, each)
    if gateways:
        await asyncio.wait(gateways)


async def _run(
    settings: GatewaySettings,
    log: Path,
    stopping: asyncio.Event,
    started: asyncio.Future[tuple[str, bool]],
) -> None:
    """Run a gateway, and set `started` to the answer once it can be used, or cannot."""
    open_log = partial(open_for_owner, log, os.O_WRONLY | os.O_APPEND)

    def tell(text: str) -> None:
        # A log that cannot be written must not keep an answer from its client.
        with suppress(OSError, ValueError), open(open_log(), "w", encoding="utf-8") as file:
            file.write(f"{logged_line(text)}\n")

    def announce(_: GatewayAddress) -> None:
        file = open_log()
        os.dup2(file, STDERR)
        os.close(file)
        started.set_result(("", False))

    try:
        await serve_journal(settings, announce, stopping, tell)
    except (ValueError, OSError) as error:
        is_refused = isinstance(error, ValueError)
        wrong = str(error) if is_refused else describe(error)
        if started.done():
            tell(wrong)
        else:
            started.set_result((wrong, not is_refused))


if __name__ == "__main__":
    main()
