"""The models of an evaluation in another process: a relay to the endpoint of the run.

A worker has a relay with an address of its own, so that the processes of its evaluators keep theirs
from evaluation to evaluation, and from run to run. The relay passes requests on with the token of
the evaluation, which never leaves the worker. The run accounts for their cost.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from socket import gethostname
from threading import Lock
from typing import Any, NamedTuple

import httpx

from costada.evaluators.granted_models import ModelsUnreachable
from costada.evaluators.sandbox.concurrency import CANCELLED, is_cancelled
from costada.models.connection import CONNECT_SECONDS
from costada.models.endpoint.client_requests import ATTEMPT, PREFIX
from costada.models.endpoint.exchange import (
    BrokenStream,
    ClientRequest,
    ClientResponse,
    Dialect,
    Refusal,
)
from costada.models.endpoint.http_server import CHALLENGE, Endpoint, proof_of
from costada.models.event_loop import run
from costada.nodes.calls.endpoint_models import EndpointModels
from costada.values.model_access import new_token

NO_TLS = False
"""The endpoint speaks plain HTTP, and the certificates that a client loads take it milliseconds."""

PAUSES = (0.0, 0.5, 1.0)
"""Seconds before each attempt to reach the run, which may serve as many clients as it can."""

PASSED_HEADERS = ("x-should-retry", "retry-after")
"""Headers of a response that clients heed."""


class Upstream(NamedTuple):
    """Where requests are passed on to, and as whose.

    Attributes:
        url: Address of the endpoint of the run.
        token: That of the evaluation.
        attempt: Tells this attempt at the evaluation from one whose worker was lost.
        client: That of the attempt: the run breaks the connections of another one as it ends.
    """

    url: str
    token: str
    attempt: str
    client: httpx.AsyncClient

    @property
    def headers(self) -> dict[str, str]:
        """What a request to it needs."""
        return {"authorization": f"Bearer {self.token}", ATTEMPT: self.attempt}


@dataclass(frozen=True, slots=True)
class RelayedModels:
    """What an evaluation in a worker may ask, as it is sent there; a `SentModels`.

    Attributes:
        url: Address of the endpoint of the run.
        secret: By which that endpoint proves what it is; see `proof_of`.
        tokens: By the role of the calls, or `SHARED`; none for roles that may ask no model.
    """

    url: str
    secret: str
    tokens: Mapping[str, str]

    @contextmanager
    def attempt(self) -> Iterator[AttemptModels]:
        """What an attempt at the evaluation may ask until the block ends.

        Raises:
            ModelsUnreachable: The endpoint cannot be reached from here.
            InterruptedError: The evaluation was cancelled.
        """
        _check_reachable(self.url, self.secret)
        attempt = new_token()
        client = httpx.AsyncClient(
            # The run waits for its providers as long as its settings say.
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
            verify=NO_TLS,
        )
        upstreams = {
            role: Upstream(self.url, token, attempt, client) for role, token in self.tokens.items()
        }
        models = AttemptModels(upstreams)
        try:
            yield models
        finally:
            models.end()
            run(client.aclose())


class AttemptModels(EndpointModels):
    """What an attempt at an evaluation may ask, by the relay."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        """Take where requests go by role."""
        super().__init__(RELAY)
        self._upstreams = upstreams
        self._tokens: set[str] = set()

    def admit(self, token: str, role: str) -> bool:
        """Let whoever shows a token ask the models of a role, or `SHARED`, if there are any."""
        if role not in self._upstreams:
            return False
        self._tokens.add(token)
        RELAY.admit(token, self._upstreams[role])
        return True

    def dismiss(self, token: str) -> None:
        """Let whoever shows a token ask nothing more."""
        # The process of an evaluator that had it may get it for another evaluation.
        self._tokens.discard(token)
        RELAY.dismiss(token)

    def end(self) -> None:
        """Let nobody ask anything more."""
        for token in tuple(self._tokens):
            self.dismiss(token)


def _check_reachable(url: str, secret: str) -> None:
    """Raise `ModelsUnreachable` unless the run answers at an address, before a token is sent."""
    reason = ""
    for seconds in PAUSES:
        if is_cancelled(seconds):
            raise InterruptedError(CANCELLED)
        challenge = new_token()
        try:
            response = httpx.get(
                f"{url}{PREFIX}{Dialect.MODELS}",
                headers={CHALLENGE: challenge},
                timeout=CONNECT_SECONDS,
                trust_env=False,
                verify=NO_TLS,
            )
        except httpx.HTTPError as error:
            reason = f"{type(error).__name__}: {error}"
            continue
        if response.content == proof_of(secret, challenge):
            return
        reason = "another server answers there"
        break
    raise ModelsUnreachable(
        f"worker {gethostname()} cannot reach the models of the run at {url} ({reason}); expected"
        " this address to be open to workers, or another one of the machine of the run: endpoint"
        " (--endpoint HOST:PORT)"
    )


class Relay:
    """The endpoint of a worker, started when it is first needed.

    Attributes:
        endpoint: The server.
    """

    def __init__(self) -> None:
        """Start nothing."""
        self._upstreams: dict[str, Upstream] = {}
        self.endpoint = Endpoint(self._answer, self._upstreams.__contains__)
        self._starting = Lock()
        self._url = ""

    @property
    def url(self) -> str:
        """Where it listens."""
        with self._starting:
            self._url = self._url or self.endpoint.start()
            return self._url

    def admit(self, token: str, upstream: Upstream) -> None:
        """Pass the requests on of whoever shows a token."""
        self._upstreams[token] = upstream

    def dismiss(self, token: str) -> None:
        """Pass the requests on of whoever shows a token no more."""
        self._upstreams.pop(token, None)
        self.endpoint.disconnect(token)

    async def _answer(self, token: str, request: ClientRequest) -> ClientResponse:
        upstream = self._upstreams.get(token)
        if upstream is None:
            raise Refusal(401, "invalid_token", "token: the work that had it has ended")
        is_list = request.dialect is Dialect.MODELS
        sent = upstream.client.build_request(
            "GET" if is_list else "POST",
            f"{upstream.url}{PREFIX}{request.dialect}",
            headers={**request.headers, **upstream.headers},
            content=None if is_list else _encoded(request.body),
        )
        try:
            response = await upstream.client.send(sent, stream=True)
            headers = response.headers
            kind = headers.get("content-type", "")
            passed = {name: headers[name] for name in PASSED_HEADERS if name in headers}
            if request.is_stream and response.is_success:
                return ClientResponse(response.status_code, kind, _pieces(response), passed)
            return ClientResponse(response.status_code, kind, await response.aread(), passed)
        except httpx.HTTPError:  # the client sees what it would see of the endpoint of the run
            raise BrokenStream from None


def _encoded(body: Mapping[str, Any]) -> bytes:
    # As short as clients write it: its bytes are the bound of its tokens.
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


async def _pieces(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in response.aiter_bytes():
            yield piece
    except httpx.HTTPError:
        raise BrokenStream from None
    finally:
        await response.aclose()


RELAY = Relay()
# A forked process has neither the threads nor the sockets of its parent.
os.register_at_fork(after_in_child=lambda: RELAY.__init__())  # type: ignore[misc]
