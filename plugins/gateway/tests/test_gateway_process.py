"""What one client, or the files of one gateway, cannot do to the others of their process."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from billing_server import BillingServer, HangUp
from gateways import PATIENCE, Gateway

from costada.plugins.gateway import gateway_starter
from costada.plugins.gateway.gateway_starter import _begun

pytestmark = pytest.mark.process


class Begun(Gateway):
    """A gateway that a client asks for by a socket."""

    def __init__(self, folder: Path, upstream: str, channel: socket.socket) -> None:
        folder.mkdir()
        self._channel = channel
        super().__init__(folder, upstream)

    def spawn(self) -> str:
        given = {**self._settings, "journal": str(self.journal), "log": str(self.log)}
        self._channel.sendall(f"{json.dumps(given)}\n".encode())
        assert self._channel.recv(1, socket.MSG_PEEK)
        return ""


@pytest.fixture
def own_gateway(server: BillingServer, tmp_path: Path) -> Iterator[Gateway]:
    started = Gateway(tmp_path, server.url)
    yield started
    started.end()


@contextmanager
def client() -> Iterator[socket.socket]:
    """The socket of a client, by which it asks for gateways."""
    process, channel = _begun()
    with process, closing(channel):
        yield channel


def test_gateways_outlive_a_client_that_dies_before_it_has_read_an_answer(
    tmp_path: Path, server: BillingServer
):
    with client() as channel:
        gateway = Begun(tmp_path / "first", server.url, channel)
    assert gateway.ask().content == "hello"
    gateway.end()


def test_a_process_that_hears_of_no_more_gateways_is_asked_for_none(
    tmp_path: Path, server: BillingServer
):
    with client() as channel:
        gateway = Begun(tmp_path / "first", server.url, channel)
        channel.shutdown(socket.SHUT_WR)
        with channel.makefile("rb") as answers:
            assert answers.readlines() == [b'["", false]\n']
    assert gateway.ask().content == "hello"
    gateway.end()


def test_a_request_ends_though_the_log_cannot_be_written(
    own_gateway: Gateway, server: BillingServer
):
    own_gateway.log.unlink()
    own_gateway.log.mkdir()
    server.script(HangUp())
    with pytest.raises(ConnectionResetError):
        own_gateway.ask()


def test_a_pipe_in_place_of_a_log_is_refused(
    server: BillingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gateway_starter, "START_SECONDS", PATIENCE / 4)
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device"):
        gateway_starter.STARTER.start(server.url, tmp_path / "journal", pipe, PATIENCE)
