"""The paths by which servers say how they are: `/live` and `/ready`. They need no token."""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Thread

import anyio.to_thread
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

ADDRESS = "127.0.0.1"
LIVE, READY = "/live", ("/ready", "/health")
"""`/health` is the earlier name of `/ready`."""


async def health_answer(path: str, unready_reason: Callable[[], str]) -> ASGIApp | None:
    """The answer at one of these paths, `None` at another one.

    Args:
        path: What a client asks for.
        unready_reason: Called in a thread; says why the server cannot work now, empty if it can.
    """
    if path == LIVE:
        return PlainTextResponse("ok\n")
    if path not in READY:
        return None
    reason = await anyio.to_thread.run_sync(unready_reason)
    return PlainTextResponse(f"{reason or 'ok'}\n", 503 if reason else 200)


def serve_health(unready_reason: Callable[[], str], host: str, port: int) -> None:
    """Answer at these paths in a thread until the process ends; raises `OSError` if a port is used.

    Args:
        unready_reason: As in `health_answer`.
        host: IP address to listen on.
        port: Port to listen at.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = f"{error.strerror}, expected a free port"
        raise OSError(error.errno, reason, f"{host}:{port}") from None

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        answer = await health_answer(scope["path"], unready_reason)
        await (answer or PlainTextResponse("not found\n", 404))(scope, receive, send)

    # Without a configuration of its own, uvicorn's messages go where those of the process go.
    config = uvicorn.Config(application, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    Thread(target=server.run, args=([listening],), name="health", daemon=True).start()
