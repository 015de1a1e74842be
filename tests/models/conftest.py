from collections.abc import Iterator

import pytest
from billing_server import BillingServer

from costada.models.metering import MeteredCall


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[BillingServer]:
    with BillingServer() as running:
        yield running


@pytest.fixture
def calls() -> list[MeteredCall]:
    return []
