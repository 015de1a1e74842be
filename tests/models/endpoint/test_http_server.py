"""What the HTTP server of the endpoint takes from clients, and how it ends with those it does not.

Clients are sockets, which send what no HTTP library would.
"""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from endpoint_clients import TOKEN, serving
from waiting import within

from costada.models.endpoint.exchange import BrokenStream, ClientRequest, ClientResponse, Refusal
from costada.models.endpoint.http_server import ClientLimits, Endpoint

PATIENCE = 30.0
CHAT = {"model": "judge", "messages": [{"role": "user", "content": "hi"}]}
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


async def echo(token: str, request: ClientRequest) -> ClientResponse:
    words = {"token": token, "dialect": request.dialect, "model": request.model}
    return ClientResponse(200, "application/json", json.dumps(words).encode())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(echo) as address:
        yield address


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), PATIENCE) as connection:
        yield connection


def received(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            found += piece
    return found


def head(*lines: str, path: str = "/v1/chat/completions", method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def post(url: str, **options: Any) -> httpx.Response:
    given = {"headers": AUTHORIZED, "json": CHAT, "timeout": PATIENCE, **options}
    return httpx.post(f"{url}/v1/chat/completions", **given)


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


def test_a_request_reaches_its_handler_with_its_token_and_model(url: str):
    response = post(url)
    assert response.status_code == 200
    assert response.json() == {"token": TOKEN, "dialect": "chat/completions", "model": "judge"}


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer other"}, {"Authorization": f"Basic {TOKEN}"}]
)
def test_a_request_without_a_known_token_is_refused(url: str, headers: dict[str, str]):
    response = post(url, headers=headers)
    assert response.status_code == 401
    assert error_of(response)["code"] == "invalid_token"
    assert response.headers["x-should-retry"] == "false"


def test_the_header_of_anthropic_shows_a_token_too_and_errors_are_in_its_protocol(url: str):
    known = post(url, headers={"x-api-key": TOKEN})
    refused = post(url, headers={"x-api-key": "other", "anthropic-version": "2023-06-01"})
    assert known.status_code == 200
    assert refused.json()["type"] == "error"
    assert refused.json()["error"]["type"] == "authentication_error"


def test_a_body_is_not_waited_for_before_its_token_is_known(url: str):
    with connected(url) as connection:
        connection.sendall(head("Content-Length: 1000"))
        assert received(connection).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/unknown", 404),
        ("POST", "/chat/completions", 404),
        ("GET", "/v1/../v1/chat/completions", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("HEAD", "/v1/models", 405),
    ],
)
def test_another_path_or_method_is_refused(url: str, method: str, path: str, status: int):
    with connected(url) as connection:
        line = head(f"Authorization: Bearer {TOKEN}", "Connection: close", path=path, method=method)
        connection.sendall(line)
        assert received(connection).startswith(f"HTTP/1.1 {status}".encode())


def test_a_body_of_a_hundred_megabytes_is_refused_and_its_sender_reads_why(url: str):
    response = post(url, json=None, content=b" " * 100_000_000)
    assert response.status_code == 413
    assert error_of(response)["message"] == "body: expected at most 16,777,216 bytes"


def test_a_body_without_a_stated_length_is_cut_off_where_it_is_too_large(url: str):
    def endless() -> Iterator[bytes]:
        for _ in range(1000):
            yield b" " * 100_000

    assert post(url, json=None, content=endless()).status_code == 413


def test_large_bodies_are_refused_where_they_are_too_much_together():
    arrived, answering = threading.Event(), threading.Event()

    async def wait(token: str, request: ClientRequest) -> ClientResponse:
        arrived.set()
        await asyncio.to_thread(answering.wait, PATIENCE)
        return await echo(token, request)

    large = {**CHAT, "user": "x" * 600_000}
    with (
        serving(wait, ClientLimits(bodies=1_000_000)) as url,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(post, url, json=large)
        assert arrived.wait(PATIENCE)
        refused = post(url, json=large)
        answering.set()
        assert first.result(PATIENCE).status_code == 200
        assert refused.status_code == 429
        assert error_of(refused)["message"] == "bodies: expected at most 1,000,000 bytes at once"
        assert post(url, json=large).status_code == 200


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\n\r\n",
        head("Content-Length: -1"),
        head("Content-Length: 1", "Content-Length: 2"),
        head(f"X: {'x' * 500_000}"),
    ],
    ids=["no HTTP", "no host", "negative length", "two lengths", "a long header"],
)
def test_a_malformed_head_is_answered_with_an_error(url: str, line: bytes):
    with connected(url) as connection:
        connection.sendall(line)
        assert received(connection).startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))


def test_a_compressed_body_is_refused(url: str):
    response = post(url, headers=AUTHORIZED | {"Content-Encoding": "gzip"})
    assert response.status_code == 415


def test_a_client_that_waits_for_it_is_told_to_send_its_body(url: str):
    body = json.dumps(CHAT).encode()
    with connected(url) as connection:
        lines = ("Expect: 100-continue", f"Content-Length: {len(body)}", "Connection: close")
        connection.sendall(head(f"Authorization: Bearer {TOKEN}", *lines))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert received(connection).startswith(b"HTTP/1.1 200")


def test_requests_that_are_sent_at_once_are_answered_in_their_order(url: str):
    with connected(url) as connection:
        for number in range(3):
            body = json.dumps({**CHAT, "model": f"judge-{number}"}).encode()
            last = ["Connection: close"] if number == 2 else []
            length = f"Content-Length: {len(body)}"
            connection.sendall(head(f"Authorization: Bearer {TOKEN}", length, *last) + body)
        found = received(connection)
    assert [found.index(f"judge-{number}".encode()) for number in range(3)] == sorted(
        found.index(f"judge-{number}".encode()) for number in range(3)
    )


def test_a_connection_serves_many_requests(url: str):
    with httpx.Client(headers=AUTHORIZED, timeout=PATIENCE) as client:
        ports = set()
        for _ in range(20):
            response = client.post(f"{url}/v1/chat/completions", json=CHAT)
            stream = response.extensions["network_stream"]
            ports.add(stream.get_extra_info("client_addr"))
    assert len(ports) == 1


def test_ten_thousand_requests_of_one_client_leave_the_server_serving_others(url: str):
    request = head(f"Authorization: Bearer {TOKEN}", "Content-Length: 2") + b"{}"

    def flood(_: int) -> int:
        with connected(url) as connection:
            for _ in range(100):
                connection.sendall(request * 12)
            connection.sendall(request.replace(b"Host: x", b"Host: x\r\nConnection: close"))
            return received(connection).count(b"HTTP/1.1 400")

    with ThreadPoolExecutor(9) as pool:
        found = [pool.submit(flood, number) for number in range(8)]
        others = [pool.submit(post, url) for _ in range(20)]
        assert {each.result().status_code for each in others} == {200}
        assert [each.result() for each in found] == [1201] * 8


SHORT = ClientLimits(read_seconds=0.3, connections=2, open_connections=4, linger_seconds=0.3)


def test_a_client_whose_head_arrives_byte_by_byte_is_cut_off():
    stopped = threading.Event()

    def drip(connection: socket.socket) -> None:
        with suppress(OSError):
            while not stopped.wait(0.05):
                connection.sendall(b"x")

    with serving(echo, SHORT) as url, connected(url) as connection:
        connection.sendall(b"POST /")
        dripping = threading.Thread(target=drip, args=(connection,))
        dripping.start()
        try:
            assert received(connection) == b""
        finally:
            stopped.set()
            dripping.join()


def test_a_client_whose_body_does_not_arrive_is_cut_off():
    with serving(echo, SHORT) as url, connected(url) as connection:
        connection.sendall(head(f"Authorization: Bearer {TOKEN}", "Content-Length: 10") + b"{")
        assert received(connection) == b""


@contextmanager
def reaching(kind: str, limits: ClientLimits) -> Iterator[socket.socket]:
    """A client's end of a connection, by the address of an endpoint or over a channel."""
    if kind == "address":
        with serving(echo, limits) as url, connected(url) as connection:
            yield connection
        return
    endpoint = Endpoint(echo, lambda token: token == TOKEN, limits)
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(PATIENCE)
        endpoint.adopt(theirs, TOKEN)
        yield ours


@pytest.mark.parametrize("kind", ["address", "channel"])
def test_a_client_that_says_nothing_is_cut_off(kind: str):
    with reaching(kind, SHORT) as connection:
        assert received(connection) == b""


@pytest.mark.parametrize("kind", ["address", "channel"])
def test_a_client_that_says_nothing_more_is_cut_off(kind: str):
    with reaching(kind, ClientLimits(read_seconds=PATIENCE, idle_seconds=0.3)) as connection:
        body = json.dumps(CHAT).encode()
        length = f"Content-Length: {len(body)}"
        connection.sendall(head(f"Authorization: Bearer {TOKEN}", length) + body)
        assert received(connection).startswith(b"HTTP/1.1 200")


def test_a_token_has_so_many_connections_and_is_served_again_when_one_is_free():
    with serving(echo, SHORT) as url:
        with httpx.Client(timeout=PATIENCE) as first, httpx.Client(timeout=PATIENCE) as second:
            address = f"{url}/v1/chat/completions"
            for client in (first, second):
                assert client.post(address, json=CHAT, headers=AUTHORIZED).status_code == 200
            refused = post(url)
            assert refused.status_code == 429
            assert refused.headers["x-should-retry"] == "true"
        within(PATIENCE, lambda: post(url).status_code == 200)


TWO = ClientLimits(open_connections=2)


def test_all_clients_together_have_so_many_connections():
    with serving(echo, TWO) as url, ExitStack() as clients:
        for _ in range(2):
            client = clients.enter_context(httpx.Client(headers=AUTHORIZED, timeout=PATIENCE))
            assert client.post(f"{url}/v1/chat/completions", json=CHAT).status_code == 200
        with connected(url) as third:
            assert received(third) == b""


def test_connections_without_a_known_token_keep_no_client_out():
    with serving(echo, TWO) as url, ExitStack() as strangers:
        first = strangers.enter_context(connected(url))
        for number in range(3):
            second = strangers.enter_context(connected(url))
            if number:
                second.sendall(head("Authorization: Bearer other", "Content-Length: 2"))
                assert second.recv(1000).startswith(b"HTTP/1.1 401")
            assert post(url).status_code == 200
        assert received(first) == b""


async def pieces(*words: bytes, broken: bool = False) -> AsyncGenerator[bytes, None]:
    for word in words:
        yield word
        await asyncio.sleep(0)
    if broken:
        raise BrokenStream


@pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "broken"])
def test_a_stream_is_passed_on_and_breaks_where_the_providers_broke(is_broken: bool):
    async def answer(token: str, request: ClientRequest) -> ClientResponse:
        return ClientResponse(200, "text/event-stream", pieces(b"one", b"two", broken=is_broken))

    with serving(answer) as url:
        if is_broken:
            with pytest.raises(httpx.RemoteProtocolError):
                post(url)
        else:
            assert post(url).content == b"onetwo"


def test_a_refusal_of_the_handler_is_answered_in_the_protocol_of_the_client():
    async def refuse(token: str, request: ClientRequest) -> ClientResponse:
        raise Refusal(402, "budget", "nothing is left", retry_after=2)

    with serving(refuse) as url:
        response = post(url)
    assert response.status_code == 402
    assert response.headers["retry-after"] == "2"
    expected = {"message": "nothing is left", "code": "budget", "param": None}
    assert error_of(response) == expected | {"type": "invalid_request_error"}


def test_a_run_that_is_stopped_breaks_the_connection_of_a_waiting_client():
    async def stop(token: str, request: ClientRequest) -> ClientResponse:
        raise InterruptedError("stopped")

    with serving(stop) as url, pytest.raises(httpx.RemoteProtocolError):
        post(url)


def test_an_adopted_socket_has_its_token_whatever_its_requests_show():
    endpoint = Endpoint(echo, lambda token: token == "of the channel")
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(PATIENCE)
        endpoint.adopt(theirs, "of the channel")
        body = json.dumps(CHAT).encode()
        for number in range(2):
            last = ["Connection: close"] if number else []
            length = f"Content-Length: {len(body)}"
            ours.sendall(head("Authorization: Bearer stolen", length, *last) + body)
        found = received(ours)
    assert found.count(b'"token": "of the channel"') == 2


def test_channels_of_a_token_have_so_many_connections_and_leave_the_rest_to_others():
    limits = ClientLimits(connections=2, open_connections=3)
    endpoint = Endpoint(echo, lambda token: True, limits)
    pairs = [socket.socketpair() for _ in range(5)]
    for number, (_, theirs) in enumerate(pairs):
        endpoint.adopt(theirs, "greedy" if number < 4 else "modest")
    body = json.dumps(CHAT).encode()
    request = head(f"Content-Length: {len(body)}", "Connection: close") + body
    found = []
    for ours, _ in reversed(pairs):
        with ours:
            ours.settimeout(PATIENCE)
            with suppress(ConnectionError):
                ours.sendall(request)
            found.append(received(ours)[:12])
    served = b"HTTP/1.1 200"
    assert found == [served, b"", b"", served, served]


def test_connections_of_a_token_can_be_closed_and_it_can_be_unknown_afterwards():
    known = {TOKEN}
    endpoint = Endpoint(echo, known.__contains__)
    url = endpoint.start()
    try:
        with connected(url) as connection:
            body = json.dumps(CHAT).encode()
            length = f"Content-Length: {len(body)}"
            connection.sendall(head(f"Authorization: Bearer {TOKEN}", length) + body)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            known.clear()
            endpoint.disconnect(TOKEN)
            assert received(connection) == b""
        assert post(url).status_code == 401
    finally:
        endpoint.close()


def test_a_closed_endpoint_takes_no_connection():
    with serving(echo) as url:
        assert post(url).status_code == 200
    with pytest.raises(httpx.ConnectError):
        post(url)
