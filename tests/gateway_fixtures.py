"""Fixtures: a server with an empty bill, and a gateway in front of it."""

from collections.abc import Iterator
from itertools import count

import pytest
from billing_server import BillingServer, Reply
from gateways import Gateway

from costada.models.metering import MeteredCall


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(running_server: BillingServer) -> BillingServer:
    """A server with an empty bill that says hello."""
    return running_server.reset(Reply())


@pytest.fixture(scope="module")
def running_gateway(
    running_server: BillingServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    started = Gateway(tmp_path_factory.mktemp("gateway"), running_server.url)
    yield started
    started.end()


NUMBERS = count(1)


@pytest.fixture
def gateway(running_gateway: Gateway, server: BillingServer) -> Gateway:
    """A gateway in front of the server that has not been asked for this test's call."""
    running_gateway.call = f"run/{next(NUMBERS)}/generation/1"
    return running_gateway


@pytest.fixture
def calls() -> list[MeteredCall]:
    return []
