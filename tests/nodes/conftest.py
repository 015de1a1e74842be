from collections.abc import Iterator
from itertools import count

import pytest
from billing_server import BillingServer, Reply
from fakes import rewrite


@pytest.fixture(scope="module")
def running_server() -> Iterator[BillingServer]:
    with BillingServer() as running:
        yield running


@pytest.fixture
def server(running_server: BillingServer, monkeypatch: pytest.MonkeyPatch) -> BillingServer:
    """A server with an empty bill that proposes a program; no key for any other is at hand."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    running_server.bill.clear()
    running_server.requests.clear()
    running_server._script.clear()
    running_server._ids = count(1)
    running_server.default = Reply(rewrite(0.3))
    return running_server
