"""Endpoints for tests: what serves clients, and what keeps account of their requests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from costada.models.asking import ModelFailure
from costada.models.endpoint.exchange import (
    Answer,
    ClientRequest,
    ClientResponse,
    Refusal,
)
from costada.models.endpoint.forwarding import Forwarder
from costada.models.endpoint.http_server import ClientLimits, Endpoint
from costada.models.metering import MeteredCall
from costada.models.providers import RetryPolicy
from costada.models.runnable_tree import OutgoingRequest

TOKEN = "a-token"
POLICY = RetryPolicy(call_timeout=60, retry_wait=0.01, longest_wait=1)


@contextmanager
def serving(answer: Answer, limits: ClientLimits | None = None) -> Iterator[str]:
    """The address of an endpoint that knows `TOKEN`."""
    endpoint = Endpoint(answer, lambda token: token == TOKEN, limits or ClientLimits())
    try:
        yield endpoint.start()
    finally:
        endpoint.close()


@dataclass
class NotedRequests:
    """A ledger in memory; `admit` changes or refuses what is about to leave."""

    admit: Callable[[OutgoingRequest], OutgoingRequest] = lambda request: request
    begun: list[OutgoingRequest] = field(default_factory=list)
    ended: list[MeteredCall] = field(default_factory=list)

    def begin(self, request: OutgoingRequest) -> OutgoingRequest:
        admitted = self.admit(request)
        self.begun.append(admitted)
        return admitted

    def finish(self, call: MeteredCall) -> None:
        self.ended.append(call)


@dataclass
class ForwardingEndpoint:
    """A running endpoint; `requests` are what clients asked, `failures` what came of outages.

    `clients` are closed before it. One that is left to the garbage collector may be found beside an
    error of it that holds a response: its socket is then collected before the client can close it.
    """

    url: str
    ledger: NotedRequests
    forwarder: Forwarder
    requests: list[ClientRequest]
    failures: list[ModelFailure]
    clients: ExitStack


@contextmanager
def forwarding(
    model: Any,
    *,
    policy: RetryPolicy = POLICY,
    ledger: NotedRequests | None = None,
    on_missing_usage: Any = "raise",
) -> Iterator[ForwardingEndpoint]:
    """An endpoint whose clients ask one model, whatever name they give."""
    kept = ledger or NotedRequests()
    requests, failures = list[ClientRequest](), list[ModelFailure]()
    forwarder = Forwarder(
        kept, policy, on_missing_usage=on_missing_usage, on_broken=failures.append
    )

    async def answer(token: str, request: ClientRequest) -> ClientResponse:
        requests.append(request)
        response = await forwarder.send(request, model)
        if isinstance(response, ModelFailure):
            failures.append(response)
            raise Refusal(503, "unavailable", response.reason)
        return response

    with serving(answer) as url, ExitStack() as clients:
        yield ForwardingEndpoint(url, kept, forwarder, requests, failures, clients)
