"""Searches of a server, and their model: each of its answers is better than the one before."""

import time
from contextlib import contextmanager
from decimal import Decimal

from billing_server import BillingServer, Reply
from fakes import rewrite

from costada.agents.search_service import SearchService
from costada.runs.config import RunConfig
from costada.runs.search_request import SearchRequest

CALL_COST = Decimal("0.002")
"""1,000 input tokens at 1 dollar and 500 output tokens at 2 dollars per million."""

THINKING_SECONDS = 0.1


@contextmanager
def better_programs():
    """Serve a model whose every answer is a better program than the one before."""
    with BillingServer() as server:
        server.default = lambda body: Reply(
            rewrite(min(0.9, 0.2 + len(server.requests) / 50)), input_tokens=1000, output_tokens=500
        )
        yield server


@contextmanager
def taking_time(provider):
    """Let a provider's answers come late."""
    quick = provider.default

    def slow(body):
        time.sleep(THINKING_SECONDS)
        return quick(body)

    provider.default = slow
    yield
    provider.default = quick


def service_of(purse, parent, machine=""):
    """A service without problems, for what it does with its purse."""
    given = SearchRequest(RunConfig(problem="circle_packing"))
    return SearchService({}, given, purse, parent, machine=machine)
