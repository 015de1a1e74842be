"""Clients that soon give up what a server does not answer, and wait for all that it answers.

A short timeout alone also ends requests that a slow machine has not sent yet, or answers late.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
from billing_server import BillingServer, Silence

PATIENCE = 60.0
SOON = httpx.Timeout(PATIENCE, read=0.2)
"""For a server that answers nothing, perhaps before it has noted the request."""


def impatient(model: Any, server: BillingServer, seconds: float = 0.2) -> Any:
    """A model of `chat_model` that waits so long for an answer once its server keeps silent.

    Its requests are sent one after the other.
    """

    http = model.bound.root_async_client._client
    send = http.send

    async def send_impatiently(request: Any, **options: Any) -> Any:
        taken, is_silent = server.num_taken, isinstance(server.next_answer, Silence)

        async def wait_until_it_is_taken(event: str, _: Mapping[str, Any]) -> None:
            while event == "http11.receive_response_headers.started" and server.num_taken == taken:
                await asyncio.sleep(0.005)

        request.extensions["trace"] = wait_until_it_is_taken
        request.extensions["timeout"]["read"] = seconds if is_silent else PATIENCE
        return await send(request, **options)

    http.send = send_impatiently
    return model
