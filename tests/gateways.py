"""Gateways in processes of their own, and the plainest client they can have.

`call` is the key of the requests that name none; tests that share a gateway have one each.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import Any, NamedTuple

from billing_server import Answer, Body, Reply

from costada.models.connection import CALL_HEADER, EXECUTION_HEADER
from costada.plugins.gateway.gateway_protocol import (
    TOKEN_HEADER,
    GatewayAddress,
    address_file,
    is_held,
    read_address,
)
from costada.plugins.gateway.response_journal import Journal, RequestState

PATIENCE = 60.0
CLIENT = f"""
import http.client, sys
port, token, call, body = sys.argv[1:]
connection = http.client.HTTPConnection("127.0.0.1", int(port))
headers = {{"{TOKEN_HEADER}": token, "{CALL_HEADER}": call}}
connection.request("POST", "/v1/chat/completions", body, headers)
response = connection.getresponse()
while piece := response.read1():
    sys.stdout.buffer.write(piece)
    sys.stdout.flush()
"""


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return the first true value of a condition that comes true soon."""
    deadline = monotonic() + seconds
    while not (value := condition()):
        assert monotonic() < deadline, condition
        sleep(0.005)
    return value


class Received(NamedTuple):
    status: int
    headers: HTTPMessage
    text: str

    @property
    def content(self) -> str:
        return str(json.loads(self.text)["choices"][0]["message"]["content"])


class Gateway:
    """A gateway on a journal; `start` it as often as needed, and `end` it at last."""

    def __init__(self, folder: Path, upstream: str, *options: str) -> None:
        self.journal = folder / "gateway.sqlite"
        self.log = folder / "gateway.log"
        self.call = "run/1/generation/1"
        self._settings = {"upstream": upstream, "call_timeout": 3600.0, "port": 0, "token": ""}
        self._options = options
        self.address: GatewayAddress = self.start()

    def spawn(self) -> str:
        """Start its process; returns what is wrong."""
        command = [sys.executable, "-m", "costada.plugins.gateway.gateway_process", *self._options]
        given = {**self._settings, "journal": str(self.journal), "log": str(self.log)}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin
            assert process.stdout
            process.stdin.write(f"{json.dumps(given)}\n".encode())
            process.stdin.close()
            wrong, _ = json.loads(process.stdout.readline())
            return str(wrong)

    def start(self) -> GatewayAddress:
        assert not self.spawn()
        address = read_address(address_file(self.journal))
        assert address is not None
        self.address = address
        return address

    def kill(self) -> None:
        os.kill(self.address.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        until(lambda: not is_held(address_file(self.journal)))

    def end(self) -> None:
        if is_held(address_file(self.journal)):
            with suppress(ProcessLookupError):
                self.kill()

    def states(self) -> list[RequestState]:
        """Return what the journal says; to be read when the gateway has ended."""
        with closing(Journal(self.journal)) as journal:
            return [state for _, state in journal.states()]

    def ask(
        self,
        call: str | None = None,
        execution: str | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = PATIENCE,
    ) -> Received:
        """Return the response to a chat request."""
        sent = {TOKEN_HEADER: self.address.token, CALL_HEADER: call or self.call, **(headers or {})}
        if execution:
            sent[EXECUTION_HEADER] = execution
        with closing(HTTPConnection("127.0.0.1", self.address.port, timeout=timeout)) as connection:
            connection.request(
                "POST", "/v1/chat/completions", json.dumps(body or {"model": "stand-in"}), sent
            )
            response = connection.getresponse()
            return Received(response.status, response.headers, response.read().decode())

    def client_process(self, body: Mapping[str, Any] | None = None) -> subprocess.Popen[bytes]:
        """Start a client that asks once and prints the answer."""
        words = [
            str(self.address.port),
            self.address.token,
            self.call,
            json.dumps(body or {"model": "m"}),
        ]
        return subprocess.Popen(
            [sys.executable, "-c", CLIENT, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )


class Gate:
    """An answer that a provider gives when it is let to; it is billed then."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.arrived, self.opened = Event(), Event()
        self._reply = reply or Reply("late")

    def __call__(self, body: Body) -> Answer:
        self.arrived.set()
        assert self.opened.wait(PATIENCE)
        return self._reply
