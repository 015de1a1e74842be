"""Graphs whose generating model works with tools, over the billing server."""

from decimal import Decimal

from billing_server import BillingServer
from fakes import toy_problem

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.prices import Price

PRICE = Price("1", "2")
ANSWER_COST = Decimal("0.0002")
"""100 input tokens at 1 dollar and 50 output tokens at 2 dollars per million."""


def client(server: BillingServer, **options):
    return chat_model("openai:stand-in", base_url=server.url, retry_wait=0, **options)


def graph_on(server, store=None, *, problem=None, iterations=1, budget=1.0, saver=None, **changes):
    settings = Settings(
        price=PRICE, generator="agent", constants=Constants(max_iterations=iterations), **changes
    )
    return create_discovery_graph(
        problem or toy_problem(),
        client(server),
        budget=budget,
        settings=settings,
        store=store or RunStore(),
        checkpointer=saver,
    )


def spent(store: RunStore) -> Decimal:
    return store.call_log.spent(store.run_ids()[0], 10**9)


def billed(server: BillingServer) -> Decimal:
    total = server.total()
    return Decimal(total.input_tokens + 2 * total.output_tokens) / 1_000_000


def steps(store: RunStore):
    return store.steps(store.run_ids()[0])
