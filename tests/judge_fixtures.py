"""Fixtures: the server of a provider that answers judges and writers, beside a key of the user."""

from collections.abc import Iterator

import pytest
from billing_server import BillingServer
from judged_problems import Providers


@pytest.fixture
def providers() -> Providers:
    return Providers()


@pytest.fixture
def server(providers: Providers, monkeypatch: pytest.MonkeyPatch) -> Iterator[BillingServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-key-of-the-user")
    with BillingServer(default=providers.answer) as running:
        yield running
