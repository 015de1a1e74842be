"""The relay of a worker, through which evaluations there ask the models of their run."""

import json
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from endpoint_clients import TOKEN
from impatience import PATIENCE

from costada.evaluators.granted_models import ModelsUnreachable
from costada.models.endpoint.exchange import ClientRequest, ClientResponse
from costada.models.endpoint.http_server import CHALLENGE, Endpoint, proof_of
from costada.nodes.calls.relayed_models import RELAY, RelayedModels
from costada.values.roles import CANDIDATE

pytestmark = pytest.mark.process


async def echo(token: str, request: ClientRequest) -> ClientResponse:
    return ClientResponse(200, "application/json", json.dumps({"token": token}).encode())


@contextmanager
def sent_models() -> Iterator[RelayedModels]:
    """What a run sends whose endpoint answers with the token it is shown."""
    endpoint = Endpoint(echo, lambda token: token == TOKEN)
    try:
        yield RelayedModels(endpoint.start(), endpoint.secret, {CANDIDATE: TOKEN})
    finally:
        endpoint.close()


def answer_through_relay() -> bytes:
    """What a program in the sandbox of an evaluation is answered."""
    ours, theirs = socket.socketpair()
    with ours, sent_models() as sent, sent.attempt() as models:
        ours.settimeout(PATIENCE)
        connect = models.connect(is_shared=False)
        assert connect is not None
        connect(theirs)
        ours.sendall(b"GET /v1/models HTTP/1.1\r\nHost: run\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: ours.recv(65536), b""))


def test_a_forked_process_passes_on_what_its_own_evaluations_ask():
    assert TOKEN.encode() in answer_through_relay()
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if TOKEN.encode() in answer_through_relay() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_token_may_be_dismissed_by_its_call_and_by_the_end_of_its_evaluation():
    for _ in range(2):
        RELAY.dismiss("token")


@contextmanager
def answering_by_hand(*bodies: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """The address of a server, and what clients send to it.

    It answers one connection after the other: with a body, with the proof that it has the secret
    `secret` for an empty one, and not at all for None.
    """
    seen = list[bytes]()

    def serve() -> None:
        for body in bodies:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                if body is None:
                    continue
                found = re.search(rf"{CHALLENGE}: (\S+)".encode(), seen[-1], re.IGNORECASE)
                sent = body or proof_of("secret", found[1].decode() if found else "")
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(sent)}\r\n\r\n"
                connection.sendall(head.encode() + sent)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        listener.settimeout(PATIENCE)
        served = threads.submit(serve)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        served.result(PATIENCE)


def test_no_token_is_sent_to_another_server_than_that_of_the_run():
    with (
        answering_by_hand(b"ok") as (url, seen),
        pytest.raises(ModelsUnreachable, match="another server answers there"),
        RelayedModels(url, "secret", {CANDIDATE: TOKEN}).attempt(),
    ):
        pass
    assert len(seen) == 1
    assert TOKEN.encode() not in seen[0]


def test_a_run_that_drops_connections_is_asked_again():
    with (
        answering_by_hand(None, b"") as (url, seen),
        RelayedModels(url, "secret", {CANDIDATE: TOKEN}).attempt(),
    ):
        assert len(seen) == 2
