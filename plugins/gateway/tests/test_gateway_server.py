"""Gateways, clients and providers that really die, and what is billed in spite of it."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_connection
from threading import Barrier, Thread

import pytest
from billing_server import Answer, BillingServer, Body, Refusal, Reply
from gateways import PATIENCE, Gate, Gateway, until
from ports import refusing_port

from costada.models.connection import CALL_HEADER
from costada.plugins.gateway.client import HeldGateway, stop_gateway
from costada.plugins.gateway.gateway_protocol import TOKEN_HEADER, address_file, is_held
from costada.plugins.gateway.response_journal import RequestState

PRIVATE = "a-prompt-that-only-the-owner-may-read"
LONG_WORD = "w" * 1000


@pytest.fixture
def own_gateway(server: BillingServer, tmp_path: Path) -> Iterator[Gateway]:
    started = Gateway(tmp_path, server.url)
    yield started
    started.end()


def test_a_client_that_timed_out_waits_for_the_same_answer_when_it_asks_again(
    gateway: Gateway, server: BillingServer
):
    gate = Gate()
    server.script(gate)
    with pytest.raises(TimeoutError):
        gateway.ask(execution="one", timeout=2)
    gate.opened.set()
    assert gateway.ask(execution="one").content == "late"
    assert len(server.bill) == 1


@pytest.mark.process
def test_the_answer_of_a_killed_client_is_persisted(own_gateway: Gateway, server: BillingServer):
    gate = Gate()
    server.script(gate)
    with own_gateway.client_process({"model": "stand-in"}) as client:
        assert gate.arrived.wait(PATIENCE)
        client.kill()
    gate.opened.set()
    stop_gateway(own_gateway.address)
    own_gateway.wait()
    assert own_gateway.states() == [RequestState.ANSWERED]
    own_gateway.start()
    assert own_gateway.ask().content == "late"
    assert len(server.bill) == 1


@pytest.mark.process
def test_a_running_call_of_a_gateway_that_dies_is_lost_and_sent_again_only_when_asked(
    own_gateway: Gateway, server: BillingServer
):
    gate = Gate()
    server.script(gate)
    with own_gateway.client_process({"model": "stand-in"}):
        assert gate.arrived.wait(PATIENCE)
        own_gateway.kill()
    gate.opened.set()
    until(lambda: len(server.bill) == 1)
    assert own_gateway.states() == [RequestState.LOST]
    own_gateway.start()
    with pytest.raises((ConnectionError, HTTPException)):
        own_gateway.ask(execution="resumed")
    assert len(server.requests) == 1
    assert own_gateway.ask(execution="resumed").content == "hello"
    assert len(server.bill) == 2


@pytest.mark.process
def test_a_response_that_the_provider_breaks_is_broken_for_the_client_too(
    own_gateway: Gateway, server: BillingServer
):
    server.script(Reply("one two three", breaks_after=2))
    with pytest.raises((ConnectionError, HTTPException)):
        own_gateway.ask(execution="one", body={"stream": True})
    assert own_gateway.ask(execution="one", body={"stream": True}).status == 200
    stop_gateway(own_gateway.address)
    own_gateway.wait()
    assert own_gateway.states() == [RequestState.LOST, RequestState.ANSWERED]


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_a_refusal_passes_through_and_the_next_request_is_sent(
    gateway: Gateway, server: BillingServer, status: int
):
    server.script(Refusal(status, "not now"))
    refused = gateway.ask(execution="one")
    assert (refused.status, "not now" in refused.text) == (status, True)
    assert gateway.ask(execution="one").content == "hello"
    assert gateway.ask(execution="two").content == "hello"
    assert (len(server.requests), len(server.bill)) == (2, 1)


@pytest.mark.process
def test_a_provider_out_of_reach_is_said_so_and_nothing_counts_as_sent(tmp_path: Path):
    with refusing_port() as port:
        gateway = Gateway(tmp_path, f"http://127.0.0.1:{port}/v1")
        received = gateway.ask()
        gateway.end()
    assert (received.status, "nothing was sent" in received.text) == (502, True)
    assert gateway.states() == [RequestState.UNSENT]


def test_a_stream_arrives_piece_by_piece_and_survives_its_client(
    gateway: Gateway, server: BillingServer
):
    body = {"model": "stand-in", "stream": True}
    server.script(Reply(f"{LONG_WORD} " * 10_000))
    with gateway.client_process(body) as client:
        assert client.stdout is not None
        assert client.stdout.read(6) == b"data: "
        client.kill()
    received = gateway.ask(body=body)
    assert received.headers["Content-Type"] == "text/event-stream"
    assert received.text.count('"content"') == 10_001
    assert received.text.endswith("data: [DONE]\n\n")
    assert len(server.bill) == 1


def test_many_calls_go_on_at_the_same_time_and_each_is_billed_once(
    gateway: Gateway, server: BillingServer
):
    server.default = lambda body: Reply(body["prompt"])
    names = [str(number % 20) for number in range(60)]

    def ask(name: str) -> str:
        return gateway.ask(call=f"many/{name}/generation/1", body={"prompt": name}).content

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(ask, names)) == names
    assert len(server.bill) == 20


def test_as_many_requests_are_with_the_provider_at_once_as_clients_ask(
    gateway: Gateway, server: BillingServer
):
    together = Barrier(32)

    def answer(body: Body) -> Answer:
        together.wait(PATIENCE)
        return Reply(body["prompt"])

    server.default = answer

    def ask(number: int) -> str:
        call = f"{gateway.call}/{number}"
        return gateway.ask(call=call, body={"prompt": str(number)}).content

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(ask, range(32))) == [str(number) for number in range(32)]
    assert len(server.bill) == 32


def test_a_long_prompt_passes(gateway: Gateway, server: BillingServer):
    server.default = lambda body: Reply(str(len(body["prompt"])))
    assert gateway.ask(body={"prompt": "x" * 3_000_000}).content == "3000000"


def test_neither_the_order_of_keys_nor_the_limit_of_the_answer_makes_another_request(
    gateway: Gateway, server: BillingServer
):
    gateway.ask(body={"model": "stand-in", "seed": 1, "max_tokens": 4000})
    gateway.ask(body={"seed": 1, "max_tokens": 300, "model": "stand-in"})
    assert len(server.bill) == 1


@pytest.mark.parametrize("token", ["", "wrong", "\xff"])
def test_a_client_without_the_token_is_refused(gateway: Gateway, server: BillingServer, token: str):
    received = gateway.ask(headers={TOKEN_HEADER: token})
    assert (received.status, server.requests) == (403, [])
    assert gateway.address.token not in received.text


def test_a_request_without_a_key_is_refused(gateway: Gateway, server: BillingServer):
    received = gateway.ask(headers={CALL_HEADER: ""})
    assert (received.status, server.requests) == (400, [])
    assert f"header {CALL_HEADER}: got none" in received.text


@pytest.mark.process
def test_neither_keys_nor_prompts_are_kept_and_only_the_owner_can_read_the_answers(
    own_gateway: Gateway, tmp_path: Path
):
    own_gateway.ask(body={"prompt": PRIVATE}, headers={"Authorization": f"Bearer {PRIVATE}"})
    stop_gateway(own_gateway.address)
    own_gateway.wait()
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0
        assert PRIVATE.encode() not in path.read_bytes()
    with closing(sqlite3.connect(own_gateway.journal)) as database:
        assert database.execute("SELECT call, status FROM costada_request").fetchall() == [
            (own_gateway.call, 200)
        ]


@pytest.mark.process
def test_an_unused_gateway_ends(server: BillingServer, tmp_path: Path):
    gateway = Gateway(tmp_path, server.url, "--idle-seconds", "0.2")
    gateway.wait()
    assert gateway.log.read_text() == "costada gateway: unused for 0.2 seconds\n"


@pytest.mark.process
def test_a_gateway_that_is_held_does_not_end(server: BillingServer, tmp_path: Path):
    gateway = Gateway(tmp_path, server.url, "--idle-seconds", "0.4")
    held = HeldGateway(gateway.address, lambda _: gateway.start())
    with pytest.raises(AssertionError):
        until(lambda: not is_held(address_file(gateway.journal)), seconds=1.0)
    assert gateway.ask().content == "hello"
    held.release()
    gateway.wait()


@pytest.mark.process
def test_a_gateway_ends_only_after_the_running_call(own_gateway: Gateway, server: BillingServer):
    gate = Gate()
    server.script(gate)
    with own_gateway.client_process({"model": "stand-in"}) as client:
        assert gate.arrived.wait(PATIENCE)
        os.kill(own_gateway.address.pid, signal.SIGTERM)
        until(lambda: own_gateway.log.read_text())
        gate.opened.set()
        assert client.stdout is not None
        assert b"late" in client.stdout.read()
    own_gateway.wait()
    assert own_gateway.states() == [RequestState.ANSWERED]


def test_a_second_gateway_on_the_same_journal_is_refused(gateway: Gateway):
    assert "another gateway uses this journal" in gateway.spawn()
    assert gateway.ask().content == "hello"


LEADING_OUT = (
    *("/v1/../admin", "/v1/./../admin", "/v1/a/../../admin", "/v1/..", "/v1/../v1/../admin"),
    *("/v1/%2e%2e/admin", "/v1/%2E./admin", "/v1/.%2e%2fadmin", "/v1/a/%2e%2e%2f%2e%2e%2fadmin"),
    *("/v1/%252e%252e/admin", "/v1/%25252e%25252e/admin", "/v1/..;/admin", "/v1/..;x=1/admin"),
    *("/v1/..\\admin", "/v1/..%5cadmin", "/v1/a%5c..%5c..%5cadmin", "/v1/%00/admin", "/v1/%0a/x"),
    *("http://127.0.0.1/v1/../admin", "http://evil.example/v1/admin", "/v1//evil.example/admin"),
)
STAYING = {
    "/v1/chat/completions": "/base/v1/chat/completions",
    "/v1/models/org%2Fname": "/base/v1/models/org%2Fname",
    "/v1/models/ft:a..b::c?limit=1&after=%2e%2e": "/base/v1/models/ft:a..b::c?limit=1&after=%2e%2e",
}


@pytest.fixture
def provider_paths() -> Iterator[tuple[str, list[str]]]:
    """The address of a provider below `/base/v1`, and the paths it is asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/base/v1", asked
        server.shutdown()


@pytest.mark.process
def test_no_path_leads_out_of_what_a_gateway_stands_for(
    provider_paths: tuple[str, list[str]], tmp_path: Path
):
    address, asked = provider_paths
    gateway = Gateway(tmp_path, address)
    refused = {path: sent(gateway, path) for path in LEADING_OUT}
    assert {path for path, status in refused.items() if status not in (400, 404)} == set()
    assert asked == []
    assert [sent(gateway, path) for path in STAYING] == [200] * len(STAYING)
    assert asked == list(STAYING.values())
    gateway.end()


def sent(gateway: Gateway, path: str) -> int:
    """Return the status of a request for a path, sent as it is."""
    with closing(
        create_connection(("127.0.0.1", gateway.address.port), timeout=PATIENCE)
    ) as connection:
        lines = (
            f"POST {path} HTTP/1.1",
            f"Host: 127.0.0.1:{gateway.address.port}",
            f"{TOKEN_HEADER}: {gateway.address.token}",
            f"{CALL_HEADER}: {path}",
            "Content-Length: 2",
            "Connection: close",
        )
        connection.sendall("\r\n".join((*lines, "", "{}")).encode())
        return int(connection.makefile("rb").readline().split()[1])
