"""The relay of a worker, through which evaluations there ask the models of their run."""

import json
import os
import socket

import pytest
from endpoint_clients import TOKEN, serving
from impatience import PATIENCE

from costada.models.endpoint.exchange import ClientRequest, ClientResponse
from costada.nodes.calls.relayed_models import RELAY, RelayedModels
from costada.values.roles import CANDIDATE

pytestmark = pytest.mark.process


async def echo(token: str, request: ClientRequest) -> ClientResponse:
    return ClientResponse(200, "application/json", json.dumps({"token": token}).encode())


def answer_through(relayed: RelayedModels) -> bytes:
    """What a program in the sandbox of an evaluation is answered."""
    ours, theirs = socket.socketpair()
    with ours, relayed.begun() as models:
        ours.settimeout(PATIENCE)
        connect = models.connect(is_shared=False)
        assert connect is not None
        connect(theirs)
        ours.sendall(b"GET /v1/models HTTP/1.1\r\nHost: run\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: ours.recv(65536), b""))


def test_a_forked_process_passes_on_what_its_own_evaluations_ask():
    with serving(echo) as url:
        assert TOKEN.encode() in answer_through(RelayedModels(url, {CANDIDATE: TOKEN}))
    child = os.fork()
    if not child:
        status = 1
        try:
            with serving(echo) as url:
                found = answer_through(RelayedModels(url, {CANDIDATE: TOKEN}))
            status = 0 if TOKEN.encode() in found else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_token_may_be_dismissed_by_its_call_and_by_the_end_of_its_evaluation():
    for _ in range(2):
        RELAY.dismiss("token")
