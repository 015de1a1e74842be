from collections.abc import Iterator

import pytest
from two_models import Provider


@pytest.fixture(scope="module")
def running_provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture
def provider(running_provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """A server with an empty bill and nothing to say; no settings of the developer are at hand."""
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    running_provider.bill.clear()
    running_provider.requests.clear()
    running_provider._script.clear()
    return running_provider
