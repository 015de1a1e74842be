"""The models of an evaluation in another process: a relay to the endpoint of the run.

A worker has a relay with an address of its own, so that the processes of its evaluators keep theirs
from evaluation to evaluation, and from run to run. The relay passes requests on with the token of
the evaluation, which never leaves the worker. What they cost is the business of the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from socket import gethostname, socket
from threading import Lock
from typing import Any, NamedTuple

import httpx

from costada.evaluators.granted_models import FunctionCall
from costada.evaluators.remote.score_processes import judge_in_process
from costada.models.endpoint.client_requests import ATTEMPT, PREFIX
from costada.models.endpoint.exchange import (
    BrokenStream,
    ClientRequest,
    ClientResponse,
    Dialect,
    Refusal,
)
from costada.models.endpoint.http_server import Endpoint
from costada.models.event_loop import CONNECT_SECONDS, run
from costada.values.evaluation import Evaluation
from costada.values.model_access import new_token
from costada.values.roles import CANDIDATE, EVALUATION

SHARED = "shared"
"""Whose token a sandbox has that evaluator and candidate share."""

PASSED_HEADERS = ("x-should-retry", "retry-after")
"""Headers of a response that clients heed."""


class Upstream(NamedTuple):
    """Where requests are passed on to, and as whose.

    Attributes:
        url: Address of the endpoint of the run.
        token: That of the evaluation.
        attempt: Tells this attempt at the evaluation from one whose worker was lost.
    """

    url: str
    token: str
    attempt: str

    @property
    def headers(self) -> dict[str, str]:
        """What a request to it needs."""
        return {"authorization": f"Bearer {self.token}", ATTEMPT: self.attempt}


@dataclass(frozen=True, slots=True)
class RelayedModels:
    """What an evaluation in a worker may ask: `SentModels`, and `GrantedModels` once begun.

    Attributes:
        url: Address of the endpoint of the run.
        tokens: By the role of the calls, or `SHARED`; none for roles that may ask no model.
        attempt: Names an attempt at the evaluation; empty before it begins.
    """

    url: str
    tokens: Mapping[str, str]
    attempt: str = ""

    @contextmanager
    def begun(self) -> Iterator[RelayedModels]:
        """What an attempt at the evaluation may ask until the block ends.

        Raises:
            OSError: The endpoint cannot be reached from here.
        """
        begun = replace(self, attempt=new_token())
        _check_reachable(begun._upstream(next(iter(self.tokens))))
        try:
            yield begun
        finally:
            RELAY.end(begun.attempt)

    def connect(self, *, is_shared: bool) -> Callable[[socket], None] | None:
        """What serves the connections of a sandbox; `None` if its programs may ask no model."""
        role = SHARED if is_shared else CANDIDATE
        if role not in self.tokens:
            return None
        token = RELAY.admit(new_token(), self._upstream(role))
        return partial(RELAY.endpoint.adopt, token=token)

    def call(self, problem: Any, called: FunctionCall, judged: object) -> Evaluation:
        """What a function of a problem says, called in a process that asks through the relay."""
        grant = partial(RELAY.admitting, upstream=self._upstream(EVALUATION))
        return judge_in_process(problem, called, judged, RELAY.url, grant)

    def for_worker(self, host: str, port: int) -> RelayedModels:
        """The same: a worker of this one finds the run as this one does."""
        return self

    def _upstream(self, role: str) -> Upstream:
        return Upstream(self.url, self.tokens[role], self.attempt)


def _check_reachable(upstream: Upstream) -> None:
    try:
        response = httpx.get(
            f"{upstream.url}{PREFIX}{Dialect.MODELS}",
            headers=upstream.headers,
            timeout=CONNECT_SECONDS,
            trust_env=False,
        )
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise OSError(
            f"worker {gethostname()} cannot reach the models of the run at {upstream.url}"
            f" ({type(error).__name__}: {error}); expected this address to be open to workers, or"
            " another one of the machine of the run: endpoint (--endpoint HOST:PORT)"
        ) from None


class Relay:
    """The endpoint of a worker, started when it is first needed."""

    def __init__(self) -> None:
        """Start nothing."""
        self._upstreams: dict[str, Upstream] = {}
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._starting = Lock()
        self._url = ""

    @cached_property
    def endpoint(self) -> Endpoint:
        """The server."""
        return Endpoint(self._answer, self._upstreams.__contains__)

    @property
    def url(self) -> str:
        """Where it listens."""
        with self._starting:
            self._url = self._url or self.endpoint.start()
            return self._url

    def admit(self, token: str, upstream: Upstream) -> str:
        """Pass the requests on of whoever shows a token; returns the token."""
        self._upstreams[token] = upstream
        return token

    @contextmanager
    def admitting(self, token: str, upstream: Upstream) -> Iterator[None]:
        """Do so within the block."""
        self.admit(token, upstream)
        try:
            yield
        finally:
            self._dismiss(token)

    def end(self, attempt: str) -> None:
        """Pass nothing more on of an attempt at an evaluation."""
        for token, upstream in tuple(self._upstreams.items()):
            if upstream.attempt == attempt:
                self._dismiss(token)
        if client := self._clients.pop(attempt, None):
            run(client.aclose())

    def _dismiss(self, token: str) -> None:
        del self._upstreams[token]
        self.endpoint.disconnect(token)

    def _client(self, attempt: str) -> httpx.AsyncClient:
        """The client of an attempt: the run breaks the connections of another one as it ends."""
        if attempt not in self._clients:
            self._clients[attempt] = httpx.AsyncClient(
                # The run waits for its providers as long as its settings say.
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=None),
                trust_env=False,
            )
        return self._clients[attempt]

    async def _answer(self, token: str, request: ClientRequest) -> ClientResponse:
        upstream = self._upstreams.get(token)
        if upstream is None:
            raise Refusal(401, "invalid_token", "token: the work that had it has ended")
        is_list = request.dialect is Dialect.MODELS
        client = self._client(upstream.attempt)
        sent = client.build_request(
            "GET" if is_list else "POST",
            f"{upstream.url}{PREFIX}{request.dialect}",
            headers={**request.headers, **upstream.headers},
            content=None if is_list else _encoded(request.body),
        )
        try:
            response = await client.send(sent, stream=True)
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
