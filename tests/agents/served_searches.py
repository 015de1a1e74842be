"""A model for the searches of a server: each of its answers is better than the one before."""

import time
from contextlib import contextmanager

from billing_server import BillingServer, Reply
from fakes import rewrite

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
