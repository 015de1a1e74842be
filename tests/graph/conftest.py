from collections.abc import Iterator

import pytest
from billing_server import BillingServer, Reply


@pytest.fixture(scope="module")
def running_server() -> Iterator[BillingServer]:
    with BillingServer() as running:
        yield running


@pytest.fixture
def server(running_server: BillingServer, monkeypatch: pytest.MonkeyPatch) -> BillingServer:
    """A server with an empty bill and nothing to say; no key for any other is at hand."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    running_server.bill.clear()
    running_server.requests.clear()
    running_server._script.clear()
    running_server.default = Reply("nothing to say")
    return running_server
