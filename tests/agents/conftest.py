import pytest
from billing_server import Reply
from two_models import Provider


@pytest.fixture(scope="module")
def running_provider():
    with Provider() as running:
        yield running


@pytest.fixture
def provider(running_provider, monkeypatch):
    """A server with an empty bill and nothing to say; no settings of the developer are at hand."""
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return running_provider.reset(Reply("nothing to say"))
