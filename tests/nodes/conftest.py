import pytest
from billing_server import BillingServer, Reply
from fakes import rewrite


@pytest.fixture
def server(running_server: BillingServer, monkeypatch: pytest.MonkeyPatch) -> BillingServer:
    """A server with an empty bill that proposes a program; no key for any other is at hand."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return running_server.reset(Reply(rewrite(0.3)))
